/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, opens and removes control groups. */
#include "engine/cgroup.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "engine/cgroup-inner.h"

#define REMOVE_TIME (2 * NSEC_PER_SEC)

/* The id becomes part of a path. */
static bool id_valid(const char *id)
{
	size_t n = strlen(id);

	for (size_t i = 0; i < n; i++)
		if (!ascii_is_lower(id[i]) && !ascii_is_digit(id[i]) && id[i] != '-')
			return false;
	return n > 0 && n <= CGROUP_NAME_MAX && id[0] != '-';
}

static int open_root(void)
{
	int fd = RETRY_EINTR(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));

	return fd < 0 ? -errno : fd;
}

/* Removes a group through its own directory, so that we cannot remove any other group. */
static int remove_group(int dir, const char *id)
{
	char path[CGROUP_NAME_MAX + 8];

	(void)snprintf(path, sizeof(path), "../%s", id);
	return unlinkat(dir, path, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int cgroup_make_at(int root_fd, const char *id, const struct cgroup_limits *limits,
		   struct cgroup *ret, struct err *e)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct cgroup_where where = { 0 };
	int r;

	if (!id_valid(id))
		return err_set(e, -EINVAL, "'%s' is not the name of a control group", id);
	r = cgroup_place_make(root_fd, id, limits->disk_bandwidth > 0 || limits->disk_ops > 0, &g,
			      &where, e);
	for (enum cgroup_part p = 0; p < CGROUP_PARTS && r == 0; p++)
		if (g.dir[p] >= 0 && p != CGROUP_IO)
			r = cgroup_limit(&g, p, limits, where.path[p], e);
	if (r == 0)
		r = FAULT_ERR("cgroup-limited", e);
	for (enum cgroup_part p = 0; p < CGROUP_PARTS && r < 0; p++)
		if (cgroup_first(&g, p))
			(void)remove_group(g.dir[p], id);
	if (r < 0)
		return r;
	(void)snprintf(g.name, sizeof(g.name), "%s", id);
	*ret = g;
	g = (struct cgroup)CGROUP_INIT;
	return 0;
}

int cgroup_make(const char *id, const struct cgroup_limits *limits, struct cgroup *ret,
		struct err *e)
{
	_cleanup_close_ int root = open_root();

	if (root < 0)
		return err_set(e, root, "cannot open /: %s", strerror(-root));
	return cgroup_make_at(root, id, limits, ret, e);
}

int cgroup_open_at(int root_fd, const char *id, struct cgroup *ret, struct cgroup_where *ret_where)
{
	*ret = (struct cgroup)CGROUP_INIT;
	*ret_where = (struct cgroup_where){ 0 };
	if (!id_valid(id))
		return -EINVAL;
	(void)snprintf(ret->name, sizeof(ret->name), "%s", id);
	return cgroup_place_open(root_fd, id, ret, ret_where);
}

void cgroup_open(const char *id, struct cgroup *ret)
{
	_cleanup_close_ int root = open_root();
	struct cgroup_where where;

	*ret = (struct cgroup)CGROUP_INIT;
	if (root >= 0)
		(void)cgroup_open_at(root, id, ret, &where);
}

/* A process that was just killed keeps its group busy for a moment. */
static int remove_patiently(int dir, const char *id, uint64_t deadline)
{
	const struct timespec pause = { .tv_nsec = (long)NSEC_PER_MSEC };
	int r;

	for (;;) {
		r = remove_group(dir, id);
		if (r != -EBUSY || clock_mono() >= deadline)
			return r;
		(void)nanosleep(&pause, NULL);
	}
}

static int keeper_group(const char *id, bool make)
{
	_cleanup_close_ int root = open_root();

	if (!id_valid(id))
		return -EINVAL;
	return root < 0 ? root : cgroup_place_keeper(root, id, make);
}

int cgroup_keeper_make(const char *id)
{
	return keeper_group(id, true);
}

int cgroup_keeper_open(const char *id)
{
	return keeper_group(id, false);
}

static int remove_keeper(int root_fd, const char *id, uint64_t deadline, struct err *e)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	int r = cgroup_place_keeper(root_fd, id, false);

	if (r == -ENOENT)
		return 0;
	if (r >= 0) {
		g.dir[CGROUP_PIDS] = r;
		g.v2[CGROUP_PIDS] = true;
		(void)cgroup_kill(&g, deadline);
		r = remove_patiently(g.dir[CGROUP_PIDS], id, deadline);
	}
	(void)FAULT("cgroup-keeper-removed");
	return r < 0 ? err_set(e, r, "cannot remove hutch-keepers/%s: %s", id, strerror(-r)) : 0;
}

int cgroup_keeper_remove(const char *id, struct err *e)
{
	_cleanup_close_ int root = open_root();

	if (root < 0)
		return err_set(e, root, "cannot open /: %s", strerror(-root));
	return remove_keeper(root, id, clock_mono() + REMOVE_TIME, e);
}

int cgroup_remove_at(int root_fd, const char *id, struct err *e)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	uint64_t deadline = clock_mono() + REMOVE_TIME;
	struct err other = ERR_INIT;
	struct cgroup_where where;
	int first;

	if (!id_valid(id))
		return err_set(e, -EINVAL, "'%s' is not the name of a control group", id);
	first = cgroup_open_at(root_fd, id, &g, &where);
	if (first < 0)
		first = err_set(e, first, "cannot find the control groups of '%s': %s", id,
				strerror(-first));
	(void)cgroup_kill(&g, deadline); /* a survivor makes the removal below fail */
	if (first == 0)
		first = FAULT_ERR("cgroup-killed", e);
	for (enum cgroup_part p = 0; p < CGROUP_PARTS; p++) {
		int r = cgroup_first(&g, p) ? remove_patiently(g.dir[p], id, deadline) : 0;

		(void)FAULT("cgroup-removed");
		/* Continue with the other groups after a failure. */
		if (r < 0 && first == 0)
			first = err_set(e, r, "cannot remove %s: %s", where.path[p], strerror(-r));
	}
	if (remove_keeper(root_fd, id, deadline, first == 0 ? e : &other) < 0 && first == 0)
		first = e->num;
	return first;
}

int cgroup_remove(const char *id, struct err *e)
{
	_cleanup_close_ int root = open_root();

	if (root < 0)
		return err_set(e, root, "cannot open /: %s", strerror(-root));
	return cgroup_remove_at(root, id, e);
}

int cgroup_each(int (*fn)(const char *name, void *arg), void *arg)
{
	_cleanup_close_ int root = open_root();

	return root < 0 ? root : cgroup_place_each(root, fn, arg);
}

void cgroup_warmed(struct cgroup *g)
{
	if (g->warm > 0)
		(void)RETRY_EINTR(waitpid(g->warm, NULL, __WALL));
	g->warm = 0;
}

void cgroup_close(struct cgroup *g)
{
	cgroup_warmed(g);
	for (enum cgroup_part p = 0; p < CGROUP_PARTS; p++)
		if (cgroup_first(g, p))
			(void)fd_close(g->dir[p]);
	*g = (struct cgroup)CGROUP_INIT;
}
