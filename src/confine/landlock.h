/* SPDX-License-Identifier: Apache-2.0 */
/* Landlock: restricts this process and its children in their use of files, TCP and other processes.
 * See landlock(7). */
#pragma once

#include <linux/landlock.h>
#include <stdbool.h>
#include <stdint.h>

/* Missing from the headers of Debian 12. */
#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13) /* version 2 */
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14) /* 3 */
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15) /* 5 */
#endif

/* Rights that a ruleset denies unless a rule allows them: struct landlock_ruleset_attr as of
 * version 6. */
struct landlock_rights {
	uint64_t fs, net, scoped;
};

/* Returns the kernel's version, from 1 on, or -errno if Landlock is missing or disabled. */
int landlock_abi(void);

/* All file rights of a version. */
uint64_t landlock_file_rights(int abi);

/* All rights of a version, except connecting by TCP if `connect`. */
struct landlock_rights landlock_all_rights(int abi, bool connect);

/* Makes a ruleset that denies `rights`. Returns a CLOEXEC descriptor that the caller owns, or
 * -errno. */
int landlock_ruleset(const struct landlock_rights *rights);

/* Allows `rights` on the file `fd`, or on everything below the directory `fd`. 0 or -errno. */
int landlock_allow(int ruleset, int fd, uint64_t rights);

/* Applies the ruleset to this process permanently. Needs no_new_privs or CAP_SYS_ADMIN. 0 or
 * -errno. */
int landlock_restrict(int ruleset);

/*
 * Denies everything that Landlock can deny, except `rights` on `fd` (-EBADF: on no file), as far as
 * this version supports them, and except connecting by TCP if `connect`. Returns 1; 0 without
 * Landlock; or -errno.
 */
int landlock_forbid_all(bool connect, int fd, uint64_t rights);

/* -EPERM if "/" can be listed: for a process whose ruleset allows no listing. 0 without Landlock.
 */
int landlock_check(void);
