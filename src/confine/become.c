/* SPDX-License-Identifier: Apache-2.0 */
#include "confine/become.h"

#include <grp.h>

#include "base/util.h"

static int check(uid_t uid, gid_t gid)
{
	uid_t u[3];
	gid_t g[3];

	if (getresuid(&u[0], &u[1], &u[2]) < 0 || getresgid(&g[0], &g[1], &g[2]) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(u); i++)
		if (u[i] != uid || g[i] != gid)
			return -EPERM;
	return 0;
}

int become_ids(uid_t uid, gid_t gid)
{
	if (setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return -errno;
	return check(uid, gid);
}

int become(uid_t id)
{
	return setgroups(0, NULL) < 0 ? -errno : become_ids(id, id);
}
