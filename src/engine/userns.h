/* SPDX-License-Identifier: Apache-2.0 */
/* User namespaces of sandboxes and of ordinary users' wardens. */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* For an ordinary user: moves the calling process into a new user and mount namespace. Id 0 is the
 * user; 1 to 65,536 are the user's subordinate ids, mapped by newuidmap(1) and newgidmap(1). */
int userns_enter(uint64_t sub_uid, uint64_t sub_gid, struct err *e);

/* Makes a user namespace owned by `ids` itself, not by root, so that the kernel counts the
 * resources of its processes (inotify instances, ...) for that id alone. `pids` limits its
 * processes; 0: our own limit. *ret_fd refers to the namespace. */
int userns_make(uint32_t ids, uint64_t pids, int *ret_fd, struct err *e);

/* Makes a user namespace for mount_setattr(2), which maps ids from `uid` and `gid` on to `ids`
 * on. */
int userns_idmap(uint64_t uid, uint64_t gid, uint32_t ids, int *ret_fd, struct err *e);
