/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of cgroup*.c, also for their tests, which pass another root than "/". */
#pragma once

#include "base/cgroup-layout.h"
#include "engine/cgroup.h"

enum {
	CGROUP_WHERE_MAX = 2 * CGROUP_PATH_MAX + 64
};

/* The path of each part's group, existing or not, for messages: "/sys/fs/cgroup/pids/hutch/ID". */
struct cgroup_where {
	char path[CGROUP_PARTS][CGROUP_WHERE_MAX];
};

int cgroup_make_at(int root_fd, const char *id, const struct cgroup_limits *limits,
		   struct cgroup *ret, struct err *e);
/* 0, or the -errno of a group that may exist and could not be opened. */
int cgroup_open_at(int root_fd, const char *id, struct cgroup *ret, struct cgroup_where *ret_where);
int cgroup_remove_at(int root_fd, const char *id, struct err *e);

/* True for the first part in each group: several parts may share a group. */
bool cgroup_first(const struct cgroup *g, enum cgroup_part p);

/* Fills in g->why[p]. */
void cgroup_because(struct cgroup *g, enum cgroup_part p, const char *fmt, ...) _printf_(3, 4);

/* True for errors that are temporary, not missing support: no memory, no space, too many files. */
bool cgroup_full(int r);

/* cgroup-place.c: makes the directories, for CGROUP_IO only with `io`; sets `why` of each missing
 * part. 0 or -errno. */
int cgroup_place_make(int root_fd, const char *id, bool io, struct cgroup *g,
		      struct cgroup_where *w, struct err *e);
int cgroup_place_open(int root_fd, const char *id, struct cgroup *g, struct cgroup_where *w);

/* Makes or opens the v2 group of a sandbox's keeper. Returns the descriptor; -ENODATA: cannot make
 * one, no v2 tree is mounted; -ENOENT: there is none to open; or -errno. */
int cgroup_place_keeper(int root_fd, const char *id, bool make);

/* Opens the group of all sandboxes. The descriptor, or -errno. */
int cgroup_place_top(int root_fd);

int cgroup_place_each(int root_fd, int (*fn)(const char *name, void *arg), void *arg);

/* cgroup-leaf.c: makes sure that the v2 group `top` has no processes. Moves them to a group below
 * if `top` is our own group; otherwise -EBUSY. 0 or -errno. */
int cgroup_make_room(int top, bool ours);

/* cgroup-use.c: the number after `key` in a file of "key number" lines; 0 if missing. */
uint64_t cgroup_keyed(int dir, const char *file, const char *key);

/* cgroup-freeze.c: sets has[CGROUP_FREEZER], or why[] if there is no freezer. 0 or -errno. */
int cgroup_find_freezer(struct cgroup *g, const char *path, struct err *e);

/* cgroup-limit.c: writes the limits of one part and reads them back; sets has[p] or why[p]. */
int cgroup_limit(struct cgroup *g, enum cgroup_part p, const struct cgroup_limits *limits,
		 const char *path, struct err *e);
