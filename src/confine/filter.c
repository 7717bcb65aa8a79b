/* SPDX-License-Identifier: Apache-2.0 */
#include "confine/filter.h"

int filter_apply(const struct sock_filter *filter, size_t n)
{
	const struct sock_fprog prog = { .len = (unsigned short)n,
					 .filter = (struct sock_filter *)filter };

	assert(n > 0 && n <= BPF_MAXINSNS);
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0 ? -errno : 0;
}
