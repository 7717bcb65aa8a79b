/* SPDX-License-Identifier: Apache-2.0 */
/* Who a command or a file operation runs as: from /etc/passwd and /etc/group, without NSS. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

enum {
	USER_NAME_MAX = 64,
	USER_HOME_MAX = 1024,
	USER_GROUPS_MAX = 64,
	USER_FILE_MAX = 1024 * 1024, /* of /etc/passwd and /etc/group */
};

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[USER_GROUPS_MAX];
	size_t n_groups;
	char name[USER_NAME_MAX + 1]; /* "" for a number without an entry */
	char home[USER_HOME_MAX];
};

/*
 * Finds a user by name, "UID" or "UID:GID"; NULL is the sandbox's default user. -ENOENT: there is
 * none of that name; -EINVAL: not a name, an unmapped number, or 2^32 - 1.
 */
int user_find(const char *spec, struct user *ret, struct err *e);

/*
 * What a number is called, or the number itself as text. Good until the next call. The files are
 * those that user_find() has read: a worker that has become the user may not be able to any more.
 */
const char *user_name(uid_t uid);
const char *group_name(gid_t gid);

/*
 * What a user means by a path, as an absolute one: "", "~" and what is relative are at home. Links
 * and dots stay as they are. -EINVAL: the home of somebody else ("~name"); -ENAMETOOLONG.
 */
int user_path(const struct user *u, const char *path, size_t n, char *ret, size_t size);

/*
 * Finds out, once and at the start, whether this process may become somebody else at all: the
 * default user is the guest's own where it may not (a user namespace of one).
 */
void users_start(void);
