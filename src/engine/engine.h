/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines: the programs that run sandboxes. Each engine is one row, a struct engine in a file of
 * its own; table.c lists the rows, and docs/ENGINES.md says how to add one. All other code asks a
 * row for its level, its traits and its operations, and names no engine.
 *
 * The warden (src/warden) calls the operations. It is single-threaded and alone in a mount
 * namespace of its own: mounts made here go with it.
 */
#pragma once

#include <limits.h>

#include "base/proc.h"
#include "engine/cgroup.h"
#include "engine/monitor.h"
#include "receipt/level.h"
#include "receipt/receipt.h"
#include "state/spec.h"

/* Input of start(), from the warden. Missing file descriptors are -EBADF. */
struct engine_start {
	const struct engine *engine;
	const struct spec *spec;
	const struct cgroup *group; /* the sandbox's processes are in it from their birth */
	const char *guest;	    /* absolute path of hutch-guest */
	int channel;		    /* the guest's end of the channel: descriptor 3 of PID 1 */
	uint32_t ids;  /* host id of the sandbox's id 0, as the warden sees it: 65,536 follow */
	bool rootless; /* the warden is root only in a user namespace of its own */
	bool egress;   /* netns_capture() follows: the sandbox's resolver is on loopback */
	/* The sandbox's writable disk, an unnamed file. -EBADF: a container writes to memory. */
	int disk;
	int monitor; /* the engine's end of the monitor, if it has one */
	/* Memory and state of the snapshot that the VM continues from; none: it boots. */
	int memory, state;
	bool console; /* keep the guest kernel's messages, for the keeper to ask for */
	/* The warden's own work, which start() calls once while the runtime makes the sandbox: that
	 * saves milliseconds. If it fails, start() fails with its error. May be NULL. */
	int (*meanwhile)(void *arg, struct err *e);
	void *arg;
};

/* Files that a VM's process holds open; the verifier compares device and inode. */
enum engine_file {
	ENGINE_FILE_ROOT,
	ENGINE_FILE_DISK,
	ENGINE_FILE_MEMORY,
	ENGINE_FILE_STATE,
	ENGINE_FILES,
};

struct engine_sandbox {
	struct proc init; /* PID 1 of the sandbox: reaped by the warden */
	uint64_t disk;	  /* writable bytes, as the mount reports */
	dev_t disk_dev;	  /* the block device of a container's disk; 0: none */
	enum vm_start how;
	/* Where the engine's process has mapped the VM's memory, known from seal() on. */
	uint64_t ram, ram_size;
	int ram_report; /* reports the address; -EBADF from seal() on */
	int said;	/* stderr of the engine's process, or -EBADF; the warden closes it */
	struct {
		dev_t dev;
		ino_t ino; /* 0: none */
	} file[ENGINE_FILES];
};

#define ENGINE_SANDBOX_INIT                                              \
	{                                                                \
		.init = PROC_INIT, .said = -EBADF, .ram_report = -EBADF, \
	}

/* How engines differ, for code that must treat them differently. */
enum engine_trait {
	/* The root directory is an overlay on the host, and its writable layer ("scratch") is a
	 * disk or, where asked for, memory; the host can measure it. */
	ENGINE_SCRATCH = 1 << 0,
	/* A VM: needs a guest kernel, the image as a disk, and an accelerator. Its own kernel
	 * limits its memory and processes, hutch-guest captures its egress, and the keeper sets its
	 * clock. */
	ENGINE_OWN_KERNEL = 1 << 1,
	ENGINE_SNAPSHOTS = 1 << 2, /* a running sandbox can be saved with its memory, and resumed */
	ENGINE_FORKS = 1 << 3,	   /* and copied while it runs */
};

/* A known vulnerability; the last row of a list has no id. */
struct engine_cve {
	const char *id;
	const char *fixed;  /* versions that fixed it, oldest branch first: "7.2.11 8.2.3" */
	const char *what;   /* the attacker's gain */
	const char *not_us; /* why sandboxes cannot reach it; NULL: they can */
};

struct engine {
	const char *name; /* in specs, receipts, host.yaml and $HUTCH_ENGINE */
	enum level level;
	unsigned int traits; /* enum engine_trait */

	/* For doctor: what to look for and print. */
	const char *title;   /* "QEMU" */
	const char *check;   /* the id of doctor's check: "engine.NAME" */
	const char *program; /* found by engine_program() */
	const char *package; /* of Debian and Ubuntu */
	const struct engine_cve *cves;

	/* The limits of the sandbox's control groups, for the engine's own processes too. */
	struct cgroup_limits (*limits)(const struct spec *spec);
	/* Starts the sandbox up to hutch-guest waiting for HELLO: no user code has run. An error
	 * contains the runtime's message. On failure, everything left ends with the warden. A
	 * runtime's helpers that outlive it for a moment become children of the warden, a
	 * subreaper, which must reap every child, known or not. */
	int (*start)(const struct engine_start *s, struct engine_sandbox *ret, struct err *e);
	/* Removes what only the start needed, before anything of the sandbox runs: called when the
	 * monitor has answered. NULL without a monitor. */
	int (*seal)(const struct engine_start *s, struct engine_sandbox *b, struct err *e);
	/* The last line that the runtime printed, escaped, or "": for the message about a failed
	 * start or an unexpected end. NULL: start() reports everything. */
	void (*last_words)(const struct engine_sandbox *b, char *ret, size_t n);
	/* Inspects the running PID 1 from outside and fills in every row of the receipt but
	 * landlock, keeper-locked, dial-guard and audit. */
	void (*verify)(const struct engine_start *s, const struct engine_sandbox *b,
		       struct receipt *r);
	/* Stops and continues every process of the sandbox; `until` is clock_mono()'s. */
	int (*pause)(const struct cgroup *group, uint64_t until);
	int (*resume)(const struct cgroup *group, uint64_t until);
	/* How the keeper boots, saves and restores a VM (monitor.h). NULL: no monitor. */
	const struct monitor_ops *monitor;
	const void *own; /* private to the row */
};

/* table.c: every row, in the order of preference; NULL at the end. */
extern const struct engine *const engines[];

/* The row of this name, or NULL. */
const struct engine *engine_find(const char *name);

/* The first row with this level, or NULL: no engine of this version provides it. */
const struct engine *engine_first(enum level level);

/* The first row with all of these traits, for messages: "use --level LEVEL". */
const struct engine *engine_with(unsigned int traits);

/*
 * The row that runs sandboxes of `level` on this host: the one called `wish`, if it has that level;
 * else the first whose program is installed; else the first. -EINVAL: no row is called `wish`.
 * -ENOTSUP: no row has that level.
 */
int engine_choose(enum level level, const char *wish, const struct engine **ret, struct err *e);

/* The row of a spec, or -EINVAL if this version has no such row or the rest of the spec is for
 * another engine. */
int engine_of(const struct spec *spec, const struct engine **ret, struct err *e);

/* The same for a spec that is started: with the parts of a VM exactly if the engine runs VMs. */
int engine_to_start(const struct spec *spec, const struct engine **ret, struct err *e);

/* Whether the engine of this spec has all of these traits; false if there is no such row. */
bool engine_can(const struct spec *spec, unsigned int traits);

/* Finds a file of Hutch's own: in $HUTCH_LIBEXEC_DIR if set, in libexec as seen from hutch and
 * hutchd, beside this program (hutch-keeper), or in `built`, a directory of the build tree; NULL:
 * none. */
bool engine_own_file(const char *name, const char *built, char ret[static PATH_MAX]);

/* Finds the row's program among Hutch's own files, where tools/small-qemu.sh puts one, else on the
 * system's path; its path without links. -ENOENT: the message names the package. */
int engine_program(const struct engine *row, char ret[static PATH_MAX], struct err *e);

static inline bool engine_has(const struct engine *e, unsigned int traits)
{
	return (e->traits & traits) == traits;
}
