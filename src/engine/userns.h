/* SPDX-License-Identifier: Apache-2.0 */
/* User namespaces of sandboxes and of ordinary users' wardens. */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* For an ordinary user. Puts the calling process into a user and a mount namespace of its
 * own, where id 0 is the user and 1 to 65,536 are the user's subordinate ids, by newuidmap(1) and
 * newgidmap(1). */
int userns_enter(uint64_t sub_uid, uint64_t sub_gid, struct err *e);

/* A user namespace that belongs to `ids` itself, not to root: what its processes take (inotify
 * instances, ...) is counted for that id alone. `pids` is the most processes in it; 0: as many as
 * we may have. *ret_fd refers to it. */
int userns_make(uint32_t ids, uint64_t pids, int *ret_fd, struct err *e);

/* One for mount_setattr(2): ids from `uid` and `gid` on are those from `ids` on. */
int userns_idmap(uint64_t uid, uint64_t gid, uint32_t ids, int *ret_fd, struct err *e);
