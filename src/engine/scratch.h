/* SPDX-License-Identifier: Apache-2.0 */
/* The root directory of a container, in the warden's mount namespace, on a tmpfs mounted over /run
 * there:
 *
 *	/run/r	the merged tree: overlay of the image below and the scratch above
 *	/run/s	the scratch: an ext4 on a loop device (scratch-disk.c), or a tmpfs, with a limited
 *		size and number of inodes
 *	/run/l	the image's tree, with its ids shifted to those of the sandbox (root), or unchanged
 *	/run/g	hutch-guest
 *	/run/b	the bundle
 *	/run/c	the runtime's state
 *	/run/d	devices */
#pragma once

#include "engine/engine.h"

#define SCRATCH_ROOT   "/run/r"
#define SCRATCH_GUEST  "/run/g"
#define SCRATCH_SPACE  "/run/s"
#define SCRATCH_LOWER  "/run/l"
#define SCRATCH_BUNDLE "/run/b"
#define SCRATCH_STATE  "/run/c"
#define SCRATCH_DEV    "/run/d"

/* Sets `disk` and `disk_dev` of *ret. */
int scratch_mount(const struct engine_start *s, struct engine_sandbox *ret, struct err *e);

/* Size in bytes of a scratch in memory. It counts as the sandbox's memory, so it leaves a part of
 * that for the processes. */
uint64_t scratch_in_memory(uint64_t disk, uint64_t memory);

/* Whether a scratch with this many bytes left counts as full: ext4 allocates whole large folios. */
bool scratch_is_full(uint64_t left);

/* scratch-disk.c: mounts the ext4 in `file` at SCRATCH_SPACE. The caller may close the file
 * afterwards. `reserved`: the file keeps the room that it has. */
int scratch_disk_mount(int file, bool reserved, struct err *e);

/* Opens the directory in which the kernel counts the errors of the sandbox's disk, or -errno. */
int scratch_disk_stats(void);

/* Errors so far: writes that failed in the background and damage to the file system. */
uint64_t scratch_disk_errors(int stats);

/* Discards dirty pages of the sandbox's disk, so that the kernel does not write them first. Call
 * after the last process of the sandbox has ended. */
void scratch_disk_drop(void);

/* crun refuses to start on a hybrid host while unified/cgroup.controllers lists a controller:
 * covers that file in this mount namespace. */
int scratch_hide_controllers(struct err *e);

/* Covers the six devices that the runtime passes in with nodes of this sandbox's own, in this mount
 * namespace. All sandboxes would share the host's nodes, and a process that watches or locks one
 * (inotify(7), flock(2)) would notice what the others do. Only root can make devices. */
int scratch_own_devices(struct err *e);
