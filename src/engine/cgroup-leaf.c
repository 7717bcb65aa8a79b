/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service with Delegate=yes has its processes in the very group that was delegated, and from a
 * group with processes the kernel hands nothing down (cgroups(7), "no internal processes"); or,
 * worse, only cpu and pids, whereupon no group below it can have processes. systemd 254 and later
 * puts them below where DelegateSubgroup= says so; with an older one it is the service's to do, and
 * the service is us and whoever started us.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/cgroup-inner.h"

enum {
	PROCS_MAX = 64 * 1024, /* bytes of cgroup.procs: some thousand processes */
	ROUNDS = 8,	       /* what was forked meanwhile is found by the next one */
};

/* The name that DelegateSubgroup= has in hutch-starter@.service. */
static const char leaf_name[] = "warden";

/* Moves one process; one that has ended is none. */
static int move(int leaf, const char *pid)
{
	_cleanup_close_ int fd = RETRY_EINTR(openat(leaf, "cgroup.procs", O_WRONLY | O_CLOEXEC));
	int r = fd < 0 ? -errno : fd_write_all(fd, pid, strlen(pid));

	return r == -ESRCH ? 0 : r;
}

/* Those that are in `top` now: how many, or -errno. A process of another pid namespace, "0", would
 * be us. */
static int move_all(int top, int leaf)
{
	_cleanup_buf_ struct buf procs = BUF_INIT(PROCS_MAX);
	struct err e = ERR_INIT;
	int n = 0, r = fd_read_file(top, "cgroup.procs", &procs, &e);
	char *text = r == 0 && procs.len > 0 ? procs.data : NULL;

	while (r == 0 && text) {
		const char *pid = strsep(&text, "\n");

		if (!*pid || str_eq(pid, "0"))
			continue;
		r = move(leaf, pid);
		n++;
	}
	return r < 0 ? r : n;
}

static int move_below(int top)
{
	_cleanup_close_ int leaf = -EBADF;
	int r = -EBUSY;

	if (mkdirat(top, leaf_name, 0755) < 0 && errno != EEXIST)
		return -errno;
	leaf = RETRY_EINTR(openat(top, leaf_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (leaf < 0)
		return -errno;
	for (int i = 0; i < ROUNDS && r != 0; i++) {
		r = move_all(top, leaf);
		if (r < 0)
			return r;
	}
	return r == 0 ? 0 : -EBUSY;
}

int cgroup_make_room(int top, bool ours)
{
	_cleanup_buf_ struct buf procs = BUF_INIT(PROCS_MAX);
	struct err e = ERR_INIT;
	int r;

	/* The root of all groups has no type, and may have both. */
	if (faccessat(top, "cgroup.type", F_OK, 0) < 0)
		return 0;
	r = fd_read_file(top, "cgroup.procs", &procs, &e);
	if (r < 0 || procs.len == 0)
		return r;
	return ours ? move_below(top) : -EBUSY;
}
