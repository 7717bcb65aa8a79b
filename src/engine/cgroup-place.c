/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the place of the groups. A v1 controller has a mount point, where only root can make
 * groups. v2 has one tree: we descend from its mount point towards our own group, to the first
 * directory in which we may make groups and hand controllers down. That is the mount point itself
 * for root and user@1000.service for a systemd user. We take the highest one because every other
 * process of the same user finds the same one when it cleans up. We do not check the uid: the
 * warden of an ordinary user is root in its own user namespace.
 *
 * The group "hutch" below that stays forever, so that two processes cannot race to remove it. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "engine/cgroup-inner.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

static const char group_name[] = "hutch";
/* Groups of keepers are elsewhere: they have no limits, and must not look like a sandbox's. */
static const char keepers_name[] = "hutch-keepers";

static_assert((int)CGROUP_CPU == CG_CPU && (int)CGROUP_MEMORY == CG_MEMORY &&
		      (int)CGROUP_PIDS == CG_PIDS && (int)CGROUP_FREEZER == CG_FREEZER &&
		      (int)CGROUP_IO == CG_IO,
	      "a part is the number of its controller");

struct place {
	int root_fd;
	const char *id;
	struct cgroup_layout l;
	struct cgroup *g;
	struct cgroup_where *w;
};

static const char *part_name(enum cgroup_part p)
{
	return cgroup_controller_name((enum cg)p);
}

static int open_dir(int dir, const char *path)
{
	int fd = RETRY_EINTR(openat(dir, path, OPEN_DIR | O_NOFOLLOW));

	return fd < 0 ? -errno : fd;
}

static void set_where(const struct place *m, enum cgroup_part p, const char *top)
{
	(void)snprintf(m->w->path[p], sizeof(m->w->path[p]), "%s/%s/%s", top, group_name, m->id);
}

static int open_hutch(int top, const char *name)
{
	if (mkdirat(top, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	return open_dir(top, name);
}

static bool lists(int dir, const char *file, enum cgroup_part p)
{
	char line[512];

	return fd_read_line(dir, file, line, sizeof(line)) == 0 && str_has_word(line, part_name(p));
}

/* On v2, a process in a group without controllers could keep another start from handing them
 * down. */
int cgroup_place_top(int root_fd)
{
	char path[CGROUP_PATH_MAX + sizeof(group_name) + 1];
	struct cgroup_layout l;
	int top;

	(void)cgroup_layout_read(root_fd, &l);
	(void)snprintf(path, sizeof(path), "%s/%s", l.v1[CG_PIDS][0] ? l.v1[CG_PIDS] : l.v2,
		       group_name);
	top = open_dir(root_fd, path + 1);
	if (top < 0 || l.v1[CG_PIDS][0] || lists(top, "cgroup.subtree_control", CGROUP_PIDS))
		return top;
	(void)fd_close(top);
	return -ENOENT;
}

static int make_group(int hutch, const char *id)
{
	int fd;

	if (mkdirat(hutch, id, 0755) < 0)
		return -errno;
	fd = FAULT("cgroup-made");
	if (fd == 0)
		fd = open_dir(hutch, id);
	if (fd < 0)
		(void)unlinkat(hutch, id, AT_REMOVEDIR);
	return fd;
}

/* An earlier part on the same v1 hierarchy ("cpu,memory"), or CGROUP_PARTS. */
static enum cgroup_part same_mount(const struct place *m, enum cgroup_part p)
{
	for (enum cgroup_part i = 0; i < p; i++)
		if (str_eq(m->l.v1[i], m->l.v1[p]))
			return i;
	return CGROUP_PARTS;
}

static int make_v1(struct place *m, enum cgroup_part p)
{
	_cleanup_close_ int top = -EBADF, hutch = -EBADF;
	enum cgroup_part same = same_mount(m, p);
	int r;

	if (same < CGROUP_PARTS) {
		m->g->dir[p] = m->g->dir[same];
		memcpy(m->g->why[p], m->g->why[same], sizeof(m->g->why[p]));
		return 0;
	}
	r = top = open_dir(m->root_fd, m->l.v1[p] + 1);
	if (r >= 0)
		r = hutch = open_hutch(top, group_name);
	if (r >= 0)
		r = m->g->dir[p] = make_group(hutch, m->id);
	if (r >= 0)
		return 0;
	m->g->dir[p] = -EBADF;
	if (r == -EACCES || r == -EPERM)
		cgroup_because(m->g, p, "%s/%s: on cgroup v1 only root can make groups", m->l.v1[p],
			       group_name);
	else
		cgroup_because(m->g, p, "%s/%s: %s", m->l.v1[p], group_name, strerror(-r));
	return r;
}

static int hand_down(int dir, enum cgroup_part p)
{
	_cleanup_close_ int fd = -EBADF;
	char text[16];

	if (lists(dir, "cgroup.subtree_control", p))
		return 0;
	fd = RETRY_EINTR(openat(dir, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC));
	if (fd < 0)
		return -errno;
	(void)snprintf(text, sizeof(text), "+%s", part_name(p));
	return fd_write_all(fd, text, strlen(text));
}

/* Hands the controllers down to the children of `dir`, one at a time, so that a refused one does
 * not block the others. Clears `want` for each controller that is unavailable. 0 if any is left.
 * The v2 freezer is not a controller: we get it along with any controller, or alone if no
 * controller is wanted. */
static int hand_down_all(int dir, bool want[static CGROUP_PARTS])
{
	int worst = -ENODATA;
	bool any = false, others = false;

	for (enum cgroup_part p = 0; p < CGROUP_PARTS; p++) {
		int r;

		if (!want[p] || p == CGROUP_FREEZER)
			continue;
		others = true;
		r = lists(dir, "cgroup.controllers", p) ? hand_down(dir, p) : -ENODATA;
		if (r < 0 && worst == -ENODATA)
			worst = r;
		want[p] = r == 0;
		any = any || want[p];
	}
	return any || !others ? 0 : worst;
}

/* Checks, before we change anything, that we can make groups here and move processes below. */
static int may_use(int top)
{
	if (faccessat(top, ".", W_OK, 0) < 0 || faccessat(top, "cgroup.procs", W_OK, 0) < 0)
		return -errno;
	return 0;
}

/* Makes the group below `top` with as many of the wanted controllers as are available. */
static int make_v2_in(struct place *m, const char *top_path, bool want[static CGROUP_PARTS])
{
	_cleanup_close_ int top = open_dir(m->root_fd, top_path + 1), hutch = -EBADF;
	int fd, r = top < 0 ? top : may_use(top);

	/* A container sees other processes at the top of its tree: that group is not ours. */
	if (r == 0)
		r = cgroup_make_room(top, str_eq(top_path, m->l.own) && !str_eq(top_path, m->l.v2));
	if (r == 0)
		r = hand_down_all(top, want);
	if (r < 0)
		return r;
	hutch = open_hutch(top, group_name);
	if (hutch < 0)
		return hutch;
	r = hand_down_all(hutch, want);
	if (r < 0)
		return r;
	fd = make_group(hutch, m->id);
	if (fd < 0)
		return fd;
	for (enum cgroup_part p = 0; p < CGROUP_PARTS; p++)
		if (want[p]) {
			m->g->dir[p] = fd;
			m->g->v2[p] = true;
			set_where(m, p, top_path);
		}
	return 0;
}

/* Steps from the mount point down to our own group: extends `path` by one group. False after the
 * last. */
static bool next_top(const struct cgroup_layout *l, char path[static 2 * CGROUP_PATH_MAX])
{
	const char *own = l->own[0] ? l->own : l->v2;
	size_t n = strlen(path);

	if (n == 0)
		n = strlen(l->v2);
	else if (own[n] == '\0')
		return false;
	else
		n += 1 + strcspn(own + n + 1, "/");
	memcpy(path, own, n);
	path[n] = '\0';
	return true;
}

static void explain_v2(struct cgroup *g, enum cgroup_part p, int r, const char *path)
{
	if (r == -EBUSY)
		cgroup_because(g, p,
			       "%s: contains processes, so groups below it can have no limits",
			       path);
	else if (r == -ENODATA)
		cgroup_because(g, p, "%s: does not enable the %s controller for its groups", path,
			       part_name(p));
	else if (r == -EACCES || r == -EPERM)
		cgroup_because(g, p, "%s: this group was not delegated to us", path);
	else
		cgroup_because(g, p, "%s: %s", path, strerror(-r));
}

static bool is_denied(int r)
{
	return r == -EACCES || r == -EPERM || r == -EROFS;
}

static int make_v2(struct place *m, const bool want[static CGROUP_PARTS])
{
	char path[2 * CGROUP_PATH_MAX] = "", at[2 * CGROUP_PATH_MAX] = "";
	bool got[CGROUP_PARTS] = { false }, done = false;
	int why = -EACCES, r = -EACCES;

	while (!done && next_top(&m->l, path)) {
		memcpy(got, want, sizeof(got));
		r = make_v2_in(m, path, got);
		done = r == 0 || r == -EEXIST || cgroup_full(r);
		/* Any other error says more than a permission error. */
		if (done || is_denied(why)) {
			why = r;
			memcpy(at, path, sizeof(at));
		}
	}
	for (enum cgroup_part p = 0; p < CGROUP_PARTS; p++)
		if (want[p] && m->g->dir[p] < 0)
			explain_v2(m->g, p, why < 0 ? why : -ENODATA, at);
	return r;
}

static void explain_absent(struct place *m, enum cgroup_part p)
{
	if (m->l.mode == CGROUP_NONE)
		cgroup_because(m->g, p, "no control groups are mounted");
	else if (m->l.disabled[p])
		cgroup_because(m->g, p, "%s is switched off on the kernel's command line",
			       part_name(p));
	else
		cgroup_because(m->g, p, "no hierarchy with the %s controller is mounted",
			       part_name(p));
}

static int refused(int r, const char *why, struct err *e)
{
	if (r == -EEXIST)
		return err_set(e, r, "the control group exists already: %s", why);
	if (cgroup_full(r))
		return err_set(e, r, "cannot create a control group: %s", why);
	return 0;
}

int cgroup_place_make(int root_fd, const char *id, bool io, struct cgroup *g,
		      struct cgroup_where *w, struct err *e)
{
	struct place m = { .root_fd = root_fd, .id = id, .g = g, .w = w };
	bool want[CGROUP_PARTS] = { false }, any = false;
	int r = cgroup_layout_read(root_fd, &m.l);

	if (r < 0)
		return err_set(e, r, "cannot find the control groups: %s", strerror(-r));
	for (enum cgroup_part p = 0; p < CGROUP_PARTS && r == 0; p++) {
		if (p == CGROUP_IO && !io)
			continue;
		if (m.l.v1[p][0]) {
			set_where(&m, p, m.l.v1[p]);
			r = refused(make_v1(&m, p), g->why[p], e);
		} else if (m.l.v2[0] && !m.l.disabled[p]) {
			any = want[p] = true;
		} else {
			explain_absent(&m, p);
		}
	}
	if (r < 0 || !any)
		return r;
	r = make_v2(&m, want);
	for (enum cgroup_part p = 0; p < CGROUP_PARTS; p++)
		if (want[p] && g->dir[p] < 0)
			return refused(r, g->why[p], e);
	return 0;
}

/* We cannot have made a group where we may not look: root may have closed hutch/ to other users. */
static int open_below(const struct place *m, const char *top)
{
	char path[CGROUP_WHERE_MAX];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s/%s", top + 1, group_name, m->id);
	fd = open_dir(m->root_fd, path);
	return is_denied(fd) ? -ENOENT : fd;
}

static int open_v2(struct place *m)
{
	char top[2 * CGROUP_PATH_MAX] = "";
	int fd = -ENOENT;

	while (fd == -ENOENT && next_top(&m->l, top))
		fd = open_below(m, top);
	for (enum cgroup_part p = 0; p < CGROUP_PARTS && fd >= 0; p++)
		if (!m->l.v1[p][0]) {
			m->g->dir[p] = fd;
			m->g->v2[p] = true;
			set_where(m, p, top);
		}
	return fd < 0 && fd != -ENOENT ? fd : 0;
}

static int open_v1(struct place *m, enum cgroup_part p)
{
	enum cgroup_part same = same_mount(m, p);
	int fd = same < CGROUP_PARTS ? m->g->dir[same] : open_below(m, m->l.v1[p]);

	set_where(m, p, m->l.v1[p]);
	m->g->dir[p] = fd < 0 ? -EBADF : fd;
	return fd < 0 && fd != -ENOENT && fd != -EBADF ? fd : 0;
}

int cgroup_place_open(int root_fd, const char *id, struct cgroup *g, struct cgroup_where *w)
{
	struct place m = { .root_fd = root_fd, .id = id, .g = g, .w = w };
	int k, r = cgroup_layout_read(root_fd, &m.l);
	bool v2 = false;

	for (enum cgroup_part p = 0; p < CGROUP_PARTS; p++) {
		if (m.l.v1[p][0]) {
			k = open_v1(&m, p);
			r = r < 0 ? r : k;
		} else {
			v2 = m.l.v2[0];
		}
	}
	k = v2 ? open_v2(&m) : 0;
	return r < 0 ? r : k;
}

static int each_below(int root_fd, const char *top, const char *group,
		      int (*fn)(const char *name, void *arg), void *arg)
{
	char path[CGROUP_WHERE_MAX];
	struct dirent *entry;
	int fd, r = 0;
	DIR *d;

	(void)snprintf(path, sizeof(path), "%s/%s", top + 1, group);
	fd = open_dir(root_fd, path);
	if (fd < 0)
		return fd == -ENOENT || is_denied(fd) ? 0 : fd;
	d = fdopendir(fd);
	if (!d) {
		r = -errno;
		(void)fd_close(fd);
		return r;
	}
	while (r >= 0 && (entry = readdir(d)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			r = fn(entry->d_name, arg);
	(void)closedir(d);
	return r < 0 ? r : 0;
}

int cgroup_place_each(int root_fd, int (*fn)(const char *name, void *arg), void *arg)
{
	char top[2 * CGROUP_PATH_MAX] = "";
	struct cgroup_layout l;
	int r = cgroup_layout_read(root_fd, &l);

	for (enum cgroup_part p = 0; r == 0 && p < CGROUP_PARTS; p++)
		if (l.v1[p][0])
			r = each_below(root_fd, l.v1[p], group_name, fn, arg);
	while (r == 0 && l.v2[0] && next_top(&l, top))
		r = each_below(root_fd, top, group_name, fn, arg);
	if (r == 0 && l.v2[0])
		r = each_below(root_fd, l.v2, keepers_name, fn, arg);
	return r;
}

/* ---- keepers ---- */

int cgroup_place_keeper(int root_fd, const char *id, bool make)
{
	_cleanup_close_ int top = -EBADF, all = -EBADF;
	struct cgroup_layout l;
	int r = cgroup_layout_read(root_fd, &l);

	if (r < 0)
		return r;
	if (!l.v2[0])
		return make ? -ENODATA : -ENOENT;
	top = open_dir(root_fd, l.v2 + 1);
	if (top < 0)
		return top;
	all = make ? open_hutch(top, keepers_name) : open_dir(top, keepers_name);
	if (all < 0)
		return !make && is_denied(all) ? -ENOENT : all;
	return make ? make_group(all, id) : open_dir(all, id);
}
