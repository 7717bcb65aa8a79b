/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root directory of a container, in the warden's mount namespace, on a tmpfs mounted over /run
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
#pragma once

#include "engine/engine.h"

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
