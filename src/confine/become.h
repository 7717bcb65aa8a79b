/* SPDX-License-Identifier: Apache-2.0 */
/* Changes user and group: the real, effective and saved ids at once, with a check. */
#pragma once

#include <sys/types.h>

/* Changes the group first, because the new user may not. Supplementary groups stay. 0 or -errno;
 * -EPERM also if the resulting ids differ from those requested. */
int become_ids(uid_t uid, gid_t gid);

/* Drops supplementary groups, and sets group and user to `id`. 0 or -errno. */
int become(uid_t id);
