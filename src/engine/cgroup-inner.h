/* SPDX-License-Identifier: Apache-2.0 */
/* Inside cgroup*.c, and for their test: the same with another root than "/". */
#pragma once

#include "base/cgroup-layout.h"
#include "engine/cgroup.h"

enum {
	CGROUP_WHERE_MAX = 2 * CGROUP_PATH_MAX + 64
};

/* Where the group of each part is, or would be, for messages: "/sys/fs/cgroup/pids/hutch/ID". */
struct cgroup_where {
	char path[CGROUP_PARTS][CGROUP_WHERE_MAX];
};

int cgroup_make_at(int root_fd, const char *id, const struct cgroup_limits *limits,
		   struct cgroup *ret, struct err *e);
/* 0, or the -errno of a group that may be there and could not be opened. */
int cgroup_open_at(int root_fd, const char *id, struct cgroup *ret, struct cgroup_where *ret_where);
int cgroup_remove_at(int root_fd, const char *id, struct err *e);

/* True for the first part of each group: several parts may be in one. */
bool cgroup_first(const struct cgroup *g, enum cgroup_part p);

/* Fills in g->why[p]. */
void cgroup_because(struct cgroup *g, enum cgroup_part p, const char *fmt, ...) _printf_(3, 4);

/* Errors that say "not now" rather than "not here": no memory, no room, too many files. */
bool cgroup_full(int r);

/* cgroup-place.c: makes the directories; a part that cannot be had gets its `why`. 0 or -errno. */
int cgroup_place_make(int root_fd, const char *id, struct cgroup *g, struct cgroup_where *w,
		      struct err *e);
int cgroup_place_open(int root_fd, const char *id, struct cgroup *g, struct cgroup_where *w);

/*
 * The v2 group of a sandbox's keeper: makes it, or opens the one that is there. The descriptor;
 * -ENODATA: no v2 tree is mounted to make one in; -ENOENT: there is none; or -errno.
 */
int cgroup_place_keeper(int root_fd, const char *id, bool make);

int cgroup_place_each(int root_fd, int (*fn)(const char *name, void *arg), void *arg);

/* cgroup-leaf.c: sees to it that the v2 group `top` has no processes: if it is our own they are
 * moved to one below it, else -EBUSY. 0 or -errno. */
int cgroup_make_room(int top, bool ours);

/* cgroup-use.c: the number behind a word in a file of such lines; 0 if it is not there. */
uint64_t cgroup_keyed(int dir, const char *file, const char *key);

/* cgroup-freeze.c: whether there is one: has[CGROUP_FREEZER], or why[]. 0 or -errno. */
int cgroup_find_freezer(struct cgroup *g, const char *path, struct err *e);

/* cgroup-limit.c: writes the limits of one part and reads them back: has[p], or why[p]. */
int cgroup_limit(struct cgroup *g, enum cgroup_part p, const struct cgroup_limits *limits,
		 const char *path, struct err *e);
