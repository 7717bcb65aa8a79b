/* SPDX-License-Identifier: Apache-2.0 */
#include "confine/self.h"

#include <fcntl.h>
#include <sys/prctl.h>

#include "base/proc.h"
#include "base/util.h"

int self_no_new_privileges(void)
{
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

int self_check_privileges(void)
{
	return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : -EPERM;
}

int self_not_dumpable(void)
{
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}

int self_die_with_parent(void)
{
	return proc_die_with(0, SIGKILL);
}

int self_null_stdio(int n)
{
	int r = 0, null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return -errno;
	for (int fd = 0; r == 0 && fd < n; fd++)
		if (fd != null && dup2(null, fd) < 0)
			r = -errno;
	/* If one of the three was closed before, `null` took its place and stays open. */
	if (null > STDERR_FILENO)
		(void)fd_close(null);
	return r;
}
