/* SPDX-License-Identifier: Apache-2.0 */
/* Apart from proc.c because hutch-guest links this function only. */
#include <errno.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/proc.h"

int proc_die_with(pid_t parent, int signo)
{
	if (prctl(PR_SET_PDEATHSIG, signo) < 0)
		return -errno;
	return parent == 0 || getppid() == parent ? 0 : -ESRCH;
}
