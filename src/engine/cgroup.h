/* SPDX-License-Identifier: Apache-2.0 */
/* The control groups of a sandbox, which Hutch makes and removes itself for every engine, on v2, v1
 * and hybrid hosts. As root, the group is hutch/NAME below the root of every hierarchy with one of
 * our controllers; for an ordinary user on v2, below the highest group delegated to us. An
 * unavailable controller is not an error here: `has` is false, and the receipt shows it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum cgroup_part {
	CGROUP_CPU,
	CGROUP_MEMORY,
	CGROUP_PIDS,
	CGROUP_FREEZER, /* pauses the sandbox; not a limit */
	CGROUP_IO,	/* only if the limits ask for it; see cgroup_limit_disk() */
	CGROUP_PARTS,
};

enum {
	CGROUP_NAME_MAX = 64
};

struct cgroup_limits {
	uint64_t cpus; /* thousandths */
	uint64_t memory, pids;
	uint64_t disk_bandwidth, disk_ops; /* per second, for reads and writes each; 0: none */
};

struct cgroup {
	int dir[CGROUP_PARTS];	     /* the group's directory, shared on v2; -EBADF: none */
	bool v2[CGROUP_PARTS];	     /* controllers may be on v1 or v2, each on its own */
	bool has[CGROUP_PARTS];	     /* the limit was written and read back */
	char why[CGROUP_PARTS][128]; /* if not: "/sys/fs/cgroup/memory/hutch: Permission denied" */
	char name[CGROUP_NAME_MAX + 1];
	pid_t warm; /* the child of cgroup_warm(), until cgroup_warmed() */
};

#define CGROUP_INIT                                                \
	{                                                          \
		.dir = { -EBADF, -EBADF, -EBADF, -EBADF, -EBADF }, \
	}
#define _cleanup_cgroup_ _cleanup_(cgroup_close)

/* Makes the groups with their limits. A name is [a-z0-9-]+. Fails only on a full system (no memory,
 * no groups left) or if a group of that name exists, and then leaves nothing behind. */
int cgroup_make(const char *id, const struct cgroup_limits *limits, struct cgroup *ret,
		struct err *e);

/* Limits what the group does with the block device `dev`, which may not exist before the group.
 * Sets has[CGROUP_IO] or why[CGROUP_IO]. cgroup v1 does not limit write-back: a kernel thread does
 * it, in no group. 0, or an error as cgroup_make(). */
int cgroup_limit_disk(struct cgroup *g, dev_t dev, const struct cgroup_limits *limits,
		      struct err *e);

/* The files with these limits and their only line, as written and as the kernel prints it. Returns
 * how many there are. For the verifier, too. */
enum {
	CGROUP_IO_FILES = 4,
	CGROUP_IO_LINE = 128,
};
struct cgroup_io_line {
	const char *file;
	char line[CGROUP_IO_LINE];
};
size_t cgroup_io_lines(bool v2, dev_t dev, const struct cgroup_limits *limits,
		       struct cgroup_io_line ret[static CGROUP_IO_FILES]);

/* The first process to enter a group after a while waits 6 to 13 ms for the kernel (an RCU grace
 * period); the next ones do not, for about 15 ms. This starts the wait early, in a child that
 * enters the groups and exits, while the caller does other work. The child sends no SIGCHLD, and
 * only a wait(2) with __WALL sees it; cgroup_close() reaps it. */
void cgroup_warm(struct cgroup *g);

/* Waits for the child of cgroup_warm(), which counts as a process of the group until then. */
void cgroup_warmed(struct cgroup *g);

/* The same before there are groups, for root: a child enters the group of all sandboxes. Called at
 * the first sign that a sandbox will start. Does nothing while a child is under way, and reaps the
 * last one; cgroup_expected() reaps it if it has ended. */
void cgroup_expect(void);
void cgroup_expected(void);

/* Enters the groups, in a child between fork and exec. Async-signal-safe: openat(2), write(2),
 * close(2). 0 or -errno. */
int cgroup_enter(const struct cgroup *g);

/* Freezes all processes of the groups and waits until they have stopped, at most until `deadline`
 * (clock_mono()); on failure nothing stays frozen. Invisible to the processes. 0; -EOPNOTSUPP: no
 * freezer; -ETIME; or -errno. */
int cgroup_freeze(const struct cgroup *g, uint64_t deadline);
int cgroup_thaw(const struct cgroup *g, uint64_t deadline);

/* Kills all processes in the groups, frozen or not, until none is left or `deadline` (clock_mono())
 * passes. 0 or -ETIME. */
int cgroup_kill(const struct cgroup *g, uint64_t deadline);

/* Usage, and how often each limit was hit. A missing counter reads 0. */
struct cgroup_usage {
	uint64_t memory;	     /* not reclaimable: processes, tmpfs, the kernel's */
	uint64_t memory_cache;	     /* pages of files on disk, reclaimable */
	uint64_t memory_peak;	     /* memory and cache together */
	uint64_t oom_kills;	     /* processes killed by the memory limit */
	uint64_t pids, pids_refused; /* refused: forks over the limit */
	uint64_t cpu_us, throttled;  /* throttled: periods that hit the CPU limit */
};
void cgroup_usage(const struct cgroup *g, struct cgroup_usage *ret);

/* Opens the groups of a sandbox that another process made. A missing part is -EBADF; `has` is not
 * set. */
void cgroup_open(const char *id, struct cgroup *ret);

/* The group of a sandbox's keeper, hutch-keepers/NAME at the top of the v2 tree, wherever the
 * controllers are. It has no limits; the dial guard attaches BPF programs to it. Returns the
 * descriptor; -ENODATA: no v2 tree is mounted; -ENOENT: cannot open, none exists; or -errno. */
int cgroup_keeper_make(const char *id);
int cgroup_keeper_open(const char *id);
int cgroup_keeper_remove(const char *id, struct err *e);

/* Kills all processes inside and removes the groups, including the keeper's, within two seconds. 0
 * also if there are none. */
int cgroup_remove(const char *id, struct err *e);

/* Calls `fn` with the name of every group in hutch/ and hutch-keepers/, once per hierarchy,
 * including groups that we may not make ourselves. 0, the first negative result of `fn`, or
 * -errno. */
int cgroup_each(int (*fn)(const char *name, void *arg), void *arg);

void cgroup_close(struct cgroup *g);
