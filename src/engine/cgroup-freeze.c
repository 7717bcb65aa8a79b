/* SPDX-License-Identifier: Apache-2.0 */
/* The freezer: a separate controller on v1, a file of every group on v2. Freezing takes time: until
 * the last process has stopped, v1 reads FREEZING and v2 "frozen 0". A killed process of a frozen
 * group dies only after the thaw on v1, and at once on v2.
 *
 * v1 can stay in FREEZING forever: a process that starts to wait for its vfork(2) child just after
 * the request does not stop by itself, and counts as frozen only if it is asked while it waits. So
 * we repeat the request until the group is frozen. */
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "engine/cgroup-inner.h"

static int ask(const struct cgroup *g, bool frozen)
{
	const bool v2 = g->v2[CGROUP_FREEZER];
	_cleanup_close_ int fd =
		RETRY_EINTR(openat(g->dir[CGROUP_FREEZER], v2 ? "cgroup.freeze" : "freezer.state",
				   O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
	const char *text = v2 ? (frozen ? "1" : "0") : frozen ? "FROZEN" : "THAWED";

	return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

/* 1: the group is frozen; 0: no process in it is; -EAGAIN: in transition; or -errno. */
static int look(const struct cgroup *g)
{
	char text[64];
	int r;

	if (g->v2[CGROUP_FREEZER]) {
		uint64_t frozen = cgroup_keyed(g->dir[CGROUP_FREEZER], "cgroup.events", "frozen");

		r = fd_read_line(g->dir[CGROUP_FREEZER], "cgroup.freeze", text, sizeof(text));
		if (r < 0)
			return r;
		/* A thaw takes effect at once. */
		return str_eq(text, "0") ? 0 : frozen == 1 ? 1 : -EAGAIN;
	}
	r = fd_read_line(g->dir[CGROUP_FREEZER], "freezer.state", text, sizeof(text));
	if (r < 0)
		return r;
	return str_eq(text, "FROZEN") ? 1 : str_eq(text, "THAWED") ? 0 : -EAGAIN;
}

static int wait_for(const struct cgroup *g, bool frozen, uint64_t deadline)
{
	const struct timespec pause = { .tv_nsec = (long)NSEC_PER_MSEC };

	for (;;) {
		int r = look(g);

		if (r == frozen)
			return 0;
		if (r < 0 && r != -EAGAIN)
			return r;
		if (clock_mono() >= deadline)
			return -ETIME;
		r = frozen && !g->v2[CGROUP_FREEZER] ? ask(g, true) : 0;
		if (r < 0)
			return r;
		(void)nanosleep(&pause, NULL);
	}
}

int cgroup_freeze(const struct cgroup *g, uint64_t deadline)
{
	int r = g->dir[CGROUP_FREEZER] < 0 ? -EOPNOTSUPP : ask(g, true);

	if (r == 0)
		r = FAULT("cgroup-freezing");
	if (r == 0)
		r = wait_for(g, true, deadline);
	/* A half-frozen group is worse than a running one. */
	if (r < 0 && r != -EOPNOTSUPP)
		(void)ask(g, false);
	return r;
}

int cgroup_thaw(const struct cgroup *g, uint64_t deadline)
{
	int r = g->dir[CGROUP_FREEZER] < 0 ? -EOPNOTSUPP : ask(g, false);

	return r < 0 ? r : wait_for(g, false, deadline);
}

int cgroup_find_freezer(struct cgroup *g, const char *path, struct err *e)
{
	int r = look(g);

	if (cgroup_full(r))
		return err_set(e, r, "cannot find a freezer: %s: %s", path, strerror(-r));
	g->has[CGROUP_FREEZER] = r == 0;
	if (r != 0)
		cgroup_because(g, CGROUP_FREEZER, "%s: %s", path,
			       r < 0 ? strerror(-r) : "a new group is frozen");
	return 0;
}
