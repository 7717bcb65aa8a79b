/* SPDX-License-Identifier: Apache-2.0 */
/* Landlock: rules on what this process, and all that it starts, may do with files, TCP and other
 * processes. See landlock(7). */
#pragma once

#include <linux/landlock.h>
#include <stdbool.h>
#include <stdint.h>

/* Newer than the headers of Debian 12. */
#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13) /* version 2 */
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14) /* 3 */
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15) /* 5 */
#endif

/* What a ruleset forbids where no rule allows it: struct landlock_ruleset_attr as of version 6. */
struct landlock_rights {
	uint64_t fs, net, scoped;
};

/* The version that this kernel has, from 1 on, or -errno: it has none, or it is switched off. */
int landlock_abi(void);

/* All rights of a version on files. */
uint64_t landlock_file_rights(int abi);

/* All rights of a version, but for connecting by TCP if that is to `connect`. */
struct landlock_rights landlock_all_rights(int abi, bool connect);

/* Makes a ruleset that forbids `rights`. The caller owns the descriptor, which is CLOEXEC; or
 * -errno. */
int landlock_ruleset(const struct landlock_rights *rights);

/* Allows `rights` on the file `fd`, or on all that is below the directory `fd`. 0 or -errno. */
int landlock_allow(int ruleset, int fd, uint64_t rights);

/* Puts the ruleset on this process, for good. It needs no_new_privs or CAP_SYS_ADMIN. 0 or -errno.
 */
int landlock_restrict(int ruleset);

/*
 * Forbids all that Landlock can forbid, but for `rights`, as far as this version has them, on `fd`
 * (-EBADF: on nothing), and connecting by TCP if that is to `connect`. 1, 0 where there is no
 * Landlock, or -errno.
 */
int landlock_forbid_all(bool connect, int fd, uint64_t rights);

/* -EPERM if "/" can be listed: for a process whose ruleset allows that nowhere. 0 where there is no
 * Landlock. */
int landlock_check(void);
