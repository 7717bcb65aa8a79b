/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines: what really holds a sandbox. One table, a row each (container, microVM; gVisor will
 * follow). Called by the warden (src/keeper), which is single-threaded and already alone in a mount
 * namespace of its own: mounts made here go with it.
 */
#pragma once

#include "cgroup.h"
#include "proc.h"
#include "qemu.h"
#include "receipt.h"
#include "spec.h"

/* What the warden has arranged. */
struct engine_start {
	const struct spec *spec;
	const struct cgroup *group; /* the sandbox's processes are to be in it from their birth */
	const char *guest;	    /* absolute path of hutch-guest */
	int channel;		    /* the guest's end of the channel: descriptor 3 of PID 1 */
	uint32_t
		ids; /* what id 0 of the sandbox is in the warden's user namespace: 65,536 follow */
	bool rootless; /* the warden is root only in a user namespace of its own */
	bool egress;   /* netns_capture() follows: names are asked for on loopback */
	/* A machine's second disk, or what a container writes to: a file without a name, for
	 * reading and writing. -EBADF: a container writes to memory. */
	int disk;
	/* Of a machine alone. Those that are not there are -EBADF. */
	int qmp; /* QEMU's end of what the keeper speaks to it by */
	/* Both: it is a clone. Memory alone: a template is made, in that file. State alone: one
	 * that ran goes on. None: it boots. Memory is opened again by QEMU, who is nobody: a file
	 * that all may write, as every memfd is. */
	int memory, state;
	bool console; /* what its kernel says is kept, for the keeper to ask for */
};

/* What QEMU has open of a machine, to be known again. */
enum engine_file {
	ENGINE_FILE_ROOT,
	ENGINE_FILE_DISK,
	ENGINE_FILE_MEMORY,
	ENGINE_FILE_STATE,
	ENGINE_FILES,
};

struct engine_sandbox {
	struct proc init; /* PID 1 of the sandbox: reaped by the warden */
	char dir[64];	  /* private to the engine */
	uint64_t disk;	  /* bytes that can be written, as the mount says */
	uint64_t how;	  /* of a machine: enum qemu_start */
	int said;	  /* of a machine: what QEMU has said; the warden closes it */
	struct {
		dev_t dev;
		ino_t ino; /* 0: there is none */
	} file[ENGINE_FILES];
};

struct engine {
	const char *name;
	/*
	 * Starts the sandbox up to hutch-guest waiting for HELLO: no code of a user has run. An
	 * error says what the runtime said. Nothing stays behind on failure that does not go with
	 * the warden. A runtime's helpers that outlive it by a moment become children of the
	 * warden, as subreaper: it must reap whatever ends, known or not.
	 */
	int (*start)(const struct engine_start *s, struct engine_sandbox *ret, struct err *e);
	/*
	 * Takes away what only the start has needed, before anything of the sandbox runs. NULL:
	 * there is nothing. Called when the keeper has heard from the machine.
	 */
	int (*seal)(const struct engine_start *s, const struct engine_sandbox *b, struct err *e);
	/*
	 * The last line that the runtime has said, escaped; "" if it said nothing. For the message
	 * about a start that failed, or an end. NULL: start() has told all.
	 */
	void (*last_words)(const struct engine_sandbox *b, char *ret, size_t n);
	/* Looks at the running PID 1 from outside and fills in every row of the receipt but
	 * landlock and keeper-locked. */
	void (*verify)(const struct engine_start *s, const struct engine_sandbox *b,
		       struct receipt *r);
};

extern const struct engine engine_container, engine_microvm;

/*
 * scratch.c: the root of a container, in the warden's mount namespace, on a tmpfs mounted over /run
 * there:
 *	/run/r	the merged tree: overlay of the image below and the scratch above
 *	/run/s	the scratch: an ext4 on a loop device (scratch-disk.c), or a tmpfs, of its own, with
 *		a size and a number of inodes
 *	/run/l	the image's tree, with its ids shifted to those of the sandbox (root), or as it is
 *	/run/g	hutch-guest
 *	/run/b	the bundle
 *	/run/c	the runtime's state
 *	/run/d	devices
 */
#define SCRATCH_ROOT   "/run/r"
#define SCRATCH_GUEST  "/run/g"
#define SCRATCH_SPACE  "/run/s"
#define SCRATCH_LOWER  "/run/l"
#define SCRATCH_BUNDLE "/run/b"
#define SCRATCH_STATE  "/run/c"
#define SCRATCH_DEV    "/run/d"

int scratch_mount(const struct engine_start *s, uint64_t *ret_disk, struct err *e);

/* Bytes of a scratch in memory. It counts as memory of the sandbox, and a part of that is left for
 * its processes. */
uint64_t scratch_in_memory(uint64_t disk, uint64_t memory);

/* Whether a scratch with so many bytes left is full: ext4 takes large folios in whole. */
bool scratch_is_full(uint64_t left);

/* scratch-disk.c: mounts the ext4 in `file` at SCRATCH_SPACE. The file may be closed then. */
int scratch_disk_mount(int file, struct err *e);

/* At the end of a sandbox, of which nothing runs: forgets what was not written to its disk yet, so
 * that the kernel does not write it first. */
void scratch_disk_drop(void);

/* On a hybrid host crun refuses to start while unified/cgroup.controllers lists something: covers
 * that file, in this mount namespace. */
int scratch_hide_controllers(struct err *e);

/*
 * Covers the six devices that the runtime will hand in by others that are this sandbox's alone, in
 * this mount namespace. The nodes of the host would be seen by all: whoever watches or locks one
 * (inotify(7), flock(2)) sees what everybody else does with it. Only root can make devices.
 */
int scratch_own_devices(struct err *e);

/* userns.c: for an ordinary user. Puts the calling process into a user and a mount namespace of its
 * own, where id 0 is the user and 1 to 65,536 are the user's subordinate ids, by newuidmap(1) and
 * newgidmap(1). */
int userns_enter(uint64_t sub_uid, uint64_t sub_gid, struct err *e);

/* A user namespace that belongs to `ids` itself, not to root: what its processes take (inotify
 * instances, ...) is counted for that id alone. `pids` is the most processes in it; 0: as many as
 * we may have. *ret_fd refers to it. */
int userns_make(uint32_t ids, uint64_t pids, int *ret_fd, struct err *e);

/* One for mount_setattr(2): ids from `uid` and `gid` on are those from `ids` on. */
int userns_idmap(uint64_t uid, uint64_t gid, uint32_t ids, int *ret_fd, struct err *e);

/* microvm.c: the limits of the sandbox's groups: those of the spec; those of a machine have QEMU in
 * them beside the guest. */
struct cgroup_limits engine_limits(const struct spec *spec);

/* What QEMU is told of a machine, but for what is measured. */
void machine_describe(const struct spec *spec, enum qemu_start start, struct qemu_machine *ret);

/* verify-machine.c */
void verify_machine(const struct engine_start *s, const struct engine_sandbox *b,
		    struct receipt *r);

/* verify.c */
void verify_container(const struct engine_start *s, const struct engine_sandbox *b,
		      struct receipt *r);
