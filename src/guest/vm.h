/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-guest as /init of a virtual machine. Its life has two parts:
 *
 * - vm_boot(): what all machines of an image and a size have in common, which is nearly all: the
 *   root that users see, and a kernel that is locked down. There is no way back to the initramfs.
 *   The port is opened last; from then on the machine may be saved as a template, and each copy of
 *   it goes on from here, with a copy of its disk. So no random number is drawn before.
 * - vm_settle(), at HELLO: the seed, the time, the name, the limits.
 *
 * Users see what they see in a container: a /dev of harmless devices, /proc with the same places
 * covered, no sysfs, and no block device, port or cgroup anywhere.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "wire/message.h"

/* /dev, /proc, /sys, and descriptors 0 to 2. */
int vm_begin(struct err *e);
int vm_boot(struct err *e);

/* The port becomes descriptor `number`. */
int vm_open_channel(int number, struct err *e);

/* The rest, from the keeper's HELLO. Nothing in other guests. */
int vm_settle(const struct fields *hello, struct err *e);

/* On WAKE: the machine goes on, with the time of this moment. Stops and starts are nothing to other
 * guests either. */
int vm_wake(const struct fields *f, struct err *e);

/* Whether there is one. */
bool vm_is_running(void);

/* Ends the machine; returns only where there is none. */
void vm_end(void);

/* ---- vm-root.c ---- */

/* Makes the root that users see of the image at `lower` and the disk, and moves into it. */
int vm_root(const char *lower, const char *disk, struct err *e);

/* The workspace, and who answers for names: at the first HELLO. */
int vm_root_settle(const struct fields *hello, struct err *e);

/* ---- vm-lock.c ---- */

/* What the kernel offers to nobody from here on. Needs /proc. */
int vm_lock(struct err *e);

/* ---- vm-identity.c ---- */

/* While /dev is the kernel's. */
int vm_random_open(struct err *e);

/* Makes the file, still empty, that users see as /proc/sys/kernel/random/boot_id. */
int vm_boot_id_open(const char *path, struct err *e);

/*
 * What a copy must not share with another: random numbers first, then the time. For HELLO and for
 * WAKE.
 */
int vm_refresh(const struct fields *f, struct err *e);

/* The name, the boot id and the machine-id: at HELLO. In the root that users see. */
int vm_name(const struct fields *hello, struct err *e);

/* ---- vm-users.c: the cgroup that users' processes are in ---- */

int vm_users_make(struct err *e);
int vm_users_limit(uint64_t pids, struct err *e); /* 0: none */

/* In a child: moves there. 0 or -errno; -EAGAIN when there are too many. */
int vm_users_join(void);
int vm_users_fd(void); /* which that needs, or -EBADF */

/* ---- met.c: limits that they meet. `users` is the directory of that group. ---- */

int met_open(int users, struct err *e);
void met_begin(void); /* from here on it is another sandbox's */

/* ---- vm-users.c again ---- */

/* Stops them all, or lets them go on. */
int vm_users_freeze(struct err *e);
int vm_users_thaw(struct err *e);
