/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the mounted cgroup hierarchies from three text files: /proc/self/mountinfo (mount points),
 * /proc/self/cgroup (our own group), /proc/cgroups (controllers disabled on the kernel command
 * line).
 */
#include "base/cgroup-layout.h"

#include <string.h>

#include "base/fd.h"
#include "base/str.h"

static const char *const names[] = {
	[CG_CPU] = "cpu",	  [CG_MEMORY] = "memory", [CG_PIDS] = "pids",
	[CG_FREEZER] = "freezer", [CG_IO] = "io",
};
static_assert(ARRAY_SIZE(names) == CG_MAX, "a controller without a name");

enum {
	MOUNTINFO_MAX = 1024 * 1024,
	LINE_FIELDS = 24,
};

const char *cgroup_controller_name(enum cg c)
{
	return names[c];
}

static const char *v1_name(enum cg c)
{
	return c == CG_IO ? "blkio" : names[c];
}

/* Splits a line into at most LINE_FIELDS words, in place. */
static size_t split(char *line, char *ret[static LINE_FIELDS])
{
	size_t n = 0;

	while (line && n < LINE_FIELDS) {
		char *word = strsep(&line, " \t");

		if (*word)
			ret[n++] = word;
	}
	return n;
}

/* "36 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory" */
static void take_mount(struct cgroup_layout *l, char *line)
{
	char *field[LINE_FIELDS];
	size_t n = split(line, field), dash = 6;
	const char *where, *options;

	while (dash < n && !str_eq(field[dash], "-"))
		dash++;
	if (dash + 3 >= n || strlen(field[4]) >= CGROUP_PATH_MAX || field[4][0] != '/')
		return;
	where = field[4];
	options = field[dash + 3];
	if (str_eq(field[dash + 1], "cgroup2") && (!l->v2[0] || str_eq(where, "/sys/fs/cgroup")))
		(void)snprintf(l->v2, sizeof(l->v2), "%s", where);
	if (!str_eq(field[dash + 1], "cgroup"))
		return;
	for (enum cg c = 0; c < CG_MAX; c++)
		if (!l->v1[c][0] && str_has_word(options, v1_name(c)))
			(void)snprintf(l->v1[c], sizeof(l->v1[c]), "%s", where);
}

static void for_lines(char *text, struct cgroup_layout *l,
		      void (*fn)(struct cgroup_layout *l, char *line))
{
	while (text) {
		char *line = strsep(&text, "\n");

		fn(l, line);
	}
}

/* "0::/user.slice/session-1.scope"; the other hierarchies do not matter. */
static void take_own(struct cgroup_layout *l, char *line)
{
	const char *path = line + STRLEN("0::");

	if (!str_has_prefix(line, "0::/") || !l->v2[0])
		return;
	/* A group outside of our cgroup namespace shows as /../x: use the mount point instead. */
	if (strstr(path, "..") || str_eq(path, "/"))
		path = "";
	if (strlen(l->v2) + strlen(path) < sizeof(l->own))
		(void)snprintf(l->own, sizeof(l->own), "%s%s", l->v2, path);
}

/* "memory 4 8 1": name, hierarchy, groups, enabled. */
static void take_enabled(struct cgroup_layout *l, char *line)
{
	char *field[LINE_FIELDS];

	if (split(line, field) < 4 || !str_eq(field[3], "0"))
		return;
	for (enum cg c = 0; c < CG_MAX; c++)
		if (str_eq(field[0], v1_name(c)))
			l->disabled[c] = true;
}

static int read_lines(int root_fd, const char *path, struct cgroup_layout *l,
		      void (*fn)(struct cgroup_layout *l, char *line))
{
	_cleanup_buf_ struct buf b = BUF_INIT(MOUNTINFO_MAX);
	struct err e = ERR_INIT;
	int r = fd_read_file(root_fd, path, &b, &e);

	/* The beginning of a file that is too long is still used. */
	if (b.len > 0)
		for_lines(b.data, l, fn);
	return r == -ENOENT || r == -EFBIG ? 0 : r;
}

static void take_v2_controllers(int root_fd, struct cgroup_layout *l)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	char path[2 * CGROUP_PATH_MAX + 32];
	struct err e = ERR_INIT;
	const char *list;

	(void)snprintf(path, sizeof(path), "%s/cgroup.controllers", l->own[0] ? l->own : l->v2);
	(void)fd_read_file(root_fd, path + 1, &b, &e);
	list = buf_text(&b);
	for (enum cg c = 0; c < CG_MAX; c++)
		l->v2_has[c] = str_has_word(list, names[c]);
	/* Part of every v2 group since 5.2, not a controller. */
	l->v2_has[CG_FREEZER] = true;
}

int cgroup_layout_read(int root_fd, struct cgroup_layout *ret)
{
	bool v1 = false;
	int r, k;

	*ret = (struct cgroup_layout){ .mode = CGROUP_NONE };
	r = read_lines(root_fd, "proc/self/mountinfo", ret, take_mount);
	k = read_lines(root_fd, "proc/self/cgroup", ret, take_own);
	r = r < 0 ? r : k;
	k = read_lines(root_fd, "proc/cgroups", ret, take_enabled);
	r = r < 0 ? r : k;
	for (enum cg c = 0; c < CG_MAX; c++)
		v1 = v1 || ret->v1[c][0];
	if (ret->v2[0])
		take_v2_controllers(root_fd, ret);
	if (ret->v2[0] && v1)
		ret->mode = CGROUP_HYBRID;
	else if (ret->v2[0])
		ret->mode = CGROUP_V2;
	else if (v1)
		ret->mode = CGROUP_V1;
	return r;
}
