/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-guest as /init of a virtual machine. Its life has two parts:
 *
 * - vm_boot(): what every machine of an image has in common. The port is opened last; from then on
 *   the machine may be saved as a template, and each copy of it goes on from here. So nothing that
 * a copy must have for itself is touched before: no random numbers, no disk of its own.
 * - vm_settle(), at HELLO: the seed, the time, the disk, the root that users see. After it there is
 *   no way back to the initramfs, and the kernel is locked down.
 *
 * Users see what they see in a container: a /dev of harmless devices, /proc with the same places
 * covered, no sysfs, and no block device, port or cgroup anywhere.
 */
#pragma once

#include <sys/types.h>

#include "err.h"
#include "message.h"

/* Mounts, modules, the image; the descriptor of the port. */
int vm_boot(int *ret_port, struct err *e);

/* The rest, from the keeper's HELLO. Nothing in other guests. */
int vm_settle(const struct fields *hello, struct err *e);

/* On WAKE: the same machine goes on. Stops and starts are nothing to other guests either. */
int vm_wake(const struct fields *f, struct err *e);

/* Ends the machine; returns only where there is none. */
void vm_end(void);

/* ---- vm-root.c ---- */

/* Makes the root that users see of the image at `lower` and the disk, and moves into it. */
int vm_root(const struct fields *hello, const char *lower, struct err *e);

/* Writes a file of /etc below `root`, over what the image has there, whatever that is. 0 or -errno.
 */
int vm_replace(int root, const char *name, mode_t mode, const char *text, size_t n);

/* ---- vm-lock.c ---- */

/* What the kernel offers to nobody from here on. Needs /proc. */
int vm_lock(struct err *e);

/* ---- vm-identity.c ---- */

/*
 * What a copy must not share with another: random numbers first, then the time. For HELLO and for
 * WAKE.
 */
int vm_refresh(const struct fields *f, struct err *e);

/* The name and the machine-id: at HELLO. In the root that users see. */
int vm_name(const struct fields *hello, struct err *e);

/* ---- vm-users.c: the cgroup that users' processes are in ---- */

int vm_users_make(uint64_t pids, struct err *e);

/* In a child: moves there. 0 or -errno; -EAGAIN when there are too many. */
int vm_users_join(void);

/* Stops them all, or lets them go on. */
int vm_users_freeze(struct err *e);
int vm_users_thaw(struct err *e);
