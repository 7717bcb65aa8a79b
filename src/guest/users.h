/* SPDX-License-Identifier: Apache-2.0 */
/* The user of a command or a file operation: from /etc/passwd and /etc/group, without NSS. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

enum {
	USER_NAME_MAX = 64,
	USER_HOME_MAX = 1024,
	USER_GROUPS_MAX = 64,
	USER_FILE_MAX = 1024 * 1024, /* size of /etc/passwd and of /etc/group */
};

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[USER_GROUPS_MAX];
	size_t n_groups;
	char name[USER_NAME_MAX + 1]; /* "" for a uid without an entry */
	char home[USER_HOME_MAX];
};

/*
 * Finds a user by name, "UID" or "UID:GID"; NULL is the sandbox's default user. -ENOENT: no such
 * user; -EINVAL: an invalid name, an unmapped uid, or 2^32 - 1.
 */
int user_find(const char *spec, struct user *ret, struct err *e);

/*
 * Returns the name of an id, or the number as text; valid until the next call. Uses the files that
 * user_find() has read, because a worker that has become the user may not be able to read them.
 */
const char *user_name(uid_t uid);
const char *group_name(gid_t gid);

/*
 * Makes a user's path absolute: "", "~" and relative paths are below the home directory. Links and
 * dots stay. -EINVAL: another user's home ("~name"); -ENAMETOOLONG.
 */
int user_path(const struct user *u, const char *path, size_t n, char *ret, size_t size);

/*
 * Checks once, at the start, whether this process may change its uid. If not (a user namespace with
 * one uid), the default user is the guest's own.
 */
void users_start(void);
