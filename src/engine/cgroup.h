/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control groups of a sandbox, made and removed by us, for every engine: v2, v1 and hybrid. The
 * group is called hutch/NAME below the root of every hierarchy that has one of our controllers (as
 * root), or below the highest group that was delegated to us (an ordinary user on v2). What cannot
 * be had is not an error here: it is missing from `has`, and the receipt says so.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum cgroup_part {
	CGROUP_CPU,
	CGROUP_MEMORY,
	CGROUP_PIDS,
	CGROUP_FREEZER, /* no limit: what pauses */
	CGROUP_PARTS,
};

enum {
	CGROUP_NAME_MAX = 64
};

struct cgroup_limits {
	uint64_t cpus; /* thousandths */
	uint64_t memory, pids;
};

struct cgroup {
	int dir[CGROUP_PARTS];	     /* the group's directory, the same on v2; -EBADF: not there */
	bool v2[CGROUP_PARTS];	     /* each controller is where the host has it: v1 or v2 */
	bool has[CGROUP_PARTS];	     /* the limit was written and read back */
	char why[CGROUP_PARTS][128]; /* why not: "/sys/fs/cgroup/memory/hutch: Permission denied" */
	char name[CGROUP_NAME_MAX + 1];
	pid_t warm; /* the child of cgroup_warm(), until cgroup_warmed() */
};

#define CGROUP_INIT                                        \
	{                                                  \
		.dir = { -EBADF, -EBADF, -EBADF, -EBADF }, \
	}
#define _cleanup_cgroup_ _cleanup_(cgroup_close)

/*
 * Makes the groups with their limits. A name is [a-z0-9-]+. Only a full system (no memory, no more
 * groups) and a group of that id that is there already are errors; nothing stays behind then.
 */
int cgroup_make(const char *id, const struct cgroup_limits *limits, struct cgroup *ret,
		struct err *e);

/*
 * The first process that enters a v1 hierarchy after a while waits 6 to 13 ms for the kernel (an
 * RCU grace period); for some milliseconds the next ones do not. Starts that wait now, in a child
 * that enters and ends, so that it passes while the caller does other things: 8 ms of them save 4,
 * 12 ms save 7. The child sends no SIGCHLD and no wait(2) without __WALL sees it; cgroup_close()
 * reaps it.
 */
void cgroup_warm(struct cgroup *g);

/* Waits for that child, which counts as a process of the group until then. */
void cgroup_warmed(struct cgroup *g);

/*
 * In a child between fork and exec: enters the groups. Async-signal-safe: openat(2), write(2),
 * close(2). 0 or -errno.
 */
int cgroup_enter(const struct cgroup *g);

/*
 * Stops every process of the groups, and sees that they have stopped, until `deadline`
 * (clock_mono()); else nothing is stopped. They notice nothing of it. 0; -EOPNOTSUPP: there is no
 * freezer; -ETIME; or -errno.
 */
int cgroup_freeze(const struct cgroup *g, uint64_t deadline);
int cgroup_thaw(const struct cgroup *g, uint64_t deadline);

/* Kills whatever is in the groups, frozen or not, until nothing is, at most until `deadline`
 * (clock_mono()). 0 or -ETIME. */
int cgroup_kill(const struct cgroup *g, uint64_t deadline);

/* What happened to the limits, and what is used. Counters that are not there are 0. */
struct cgroup_usage {
	uint64_t memory;       /* bytes that cannot be had back: processes, tmpfs, the kernel's */
	uint64_t memory_cache; /* pages of files on disks, which are dropped when memory is short */
	uint64_t memory_peak;  /* of both together */
	uint64_t oom_kills;    /* processes killed by the memory limit */
	uint64_t pids, pids_refused; /* forks that the limit refused */
	uint64_t cpu_us, throttled;  /* periods in which the CPU limit was met */
};
void cgroup_usage(const struct cgroup *g, struct cgroup_usage *ret);

/* Opens the groups of a sandbox that somebody else made; parts that are not there are -EBADF, and
 * `has` says nothing. */
void cgroup_open(const char *id, struct cgroup *ret);

/*
 * The group of a sandbox's keeper, hutch-keepers/NAME at the top of the v2 tree, whatever the
 * controllers are on: nothing is limited by it, and programs can be attached to it. The descriptor;
 * -ENODATA: no v2 tree is mounted; opening: -ENOENT; or -errno.
 */
int cgroup_keeper_make(const char *id);
int cgroup_keeper_open(const char *id);
int cgroup_keeper_remove(const char *id, struct err *e);

/* Kills what is inside and removes the groups, also the keeper's, within two seconds. 0 also when
 * there are none. */
int cgroup_remove(const char *id, struct err *e);

/*
 * Calls `fn` with the name of every group in hutch/ and hutch-keepers/, once for each place; those
 * that are not ours to make are among them. 0, what `fn` gave if that was below 0, or -errno.
 */
int cgroup_each(int (*fn)(const char *name, void *arg), void *arg);

void cgroup_close(struct cgroup *g);
