/* SPDX-License-Identifier: Apache-2.0 */
/* Empties our own delegated group. A service with Delegate=yes has its processes in the delegated
 * group itself, and the kernel hands no controllers down from a group with processes (cgroups(7),
 * "no internal processes"), or, worse, only cpu and pids, and then no group below can have
 * processes. systemd 254 and later moves the processes down with DelegateSubgroup=. With an older
 * systemd the service does that itself: here, for us and the processes that started us. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/cgroup-inner.h"

enum {
	PROCS_MAX = 64 * 1024, /* bytes of cgroup.procs: some thousand processes */
	ROUNDS = 8,	       /* each round finds processes forked during the last */
};

/* Same name as DelegateSubgroup= in hutch-starter@.service. */
static const char leaf_name[] = "warden";

/* Moves one process; ignores one that has exited. */
static int move(int leaf, const char *pid)
{
	_cleanup_close_ int fd = RETRY_EINTR(openat(leaf, "cgroup.procs", O_WRONLY | O_CLOEXEC));
	int r = fd < 0 ? -errno : fd_write_all(fd, pid, strlen(pid));

	return r == -ESRCH ? 0 : r;
}

/* Moves the processes that are in `top` now. Returns their number or -errno. "0" stands for a
 * process of another pid namespace and is skipped: written to cgroup.procs, it would move us. */
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

	/* The root group has no cgroup.type; it may have processes and controllers. */
	if (faccessat(top, "cgroup.type", F_OK, 0) < 0)
		return 0;
	r = fd_read_file(top, "cgroup.procs", &procs, &e);
	if (r < 0 || procs.len == 0)
		return r;
	return ours ? move_below(top) : -EBUSY;
}
