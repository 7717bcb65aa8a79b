/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of user and group: of the real, effective and saved ids at once, and checked. */
#pragma once

#include <sys/types.h>

/* First the group, then the user, for a user may not change its group. Other groups stay. 0 or
 * -errno; -EPERM also if the ids are not those that were asked for. */
int become_ids(uid_t uid, gid_t gid);

/* Drops all other groups, and takes `id` as group and as user. 0 or -errno. */
int become(uid_t id);
