/* SPDX-License-Identifier: Apache-2.0 */
/* What Landlock can forbid, by its version; with what is newer than the headers of Debian 12. */
#pragma once

#include <linux/landlock.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13)
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif

/* struct landlock_ruleset_attr as of version 6. */
struct landlock_rights {
	uint64_t fs, net, scoped;
};

/* All there are, but for connecting by TCP if that is to `connect`. *ret_n: the size for the
 * kernel. */
static inline struct landlock_rights landlock_rights(long abi, bool connect, size_t *ret_n)
{
	/* 13 at first; then refer, truncate, and (5) ioctl of devices. */
	unsigned int fs = abi >= 5 ? 16 : abi >= 3 ? 15 : abi >= 2 ? 14 : 13;
	struct landlock_rights a = { .fs = (UINT64_C(1) << fs) - 1 };

	if (abi >= 4)
		a.net = connect ? 1 : 3; /* bind, connect */
	if (abi >= 6)
		a.scoped = 3; /* abstract sockets and signals */
	*ret_n = abi >= 6 ? sizeof(a) : abi >= 4 ? 2 * sizeof(a.fs) : sizeof(a.fs);
	return a;
}
