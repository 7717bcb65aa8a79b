/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines: what really holds a sandbox. One table, a row each (container; gVisor and microVM will
 * follow). Called by the warden (src/keeper), which is single-threaded and already alone in a mount
 * namespace of its own: mounts made here go with it.
 */
#pragma once

#include "cgroup.h"
#include "proc.h"
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
};

struct engine_sandbox {
	struct proc init; /* PID 1 of the sandbox: reaped by the warden */
	char dir[64];	  /* private to the engine */
	uint64_t disk;	  /* bytes that can be written, as the mount says */
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
	/* Looks at the running PID 1 from outside and fills in every row of the receipt but
	 * landlock and keeper-locked. */
	void (*verify)(const struct engine_start *s, const struct engine_sandbox *b,
		       struct receipt *r);
};

extern const struct engine engine_container;

/*
 * scratch.c: the root of a container, in the warden's mount namespace, on a tmpfs mounted over /run
 * there:
 *	/run/r	the merged tree: overlay of the image below and the scratch above
 *	/run/s	the scratch: a tmpfs of its own with a size and a number of inodes
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

/* verify.c */
void verify_container(const struct engine_start *s, const struct engine_sandbox *b,
		      struct receipt *r);
