/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-guest as /init of a VM. Its life has two parts:
 *
 * - vm_boot() does everything that VMs of one image and size have in common: it builds the root
 *   directory that users see and locks down the kernel. There is no way back to the initramfs. It
 *   opens the port last; from then on the VM may be saved as a template, and each copy continues
 * from here, with a copy of the disk. So the guest draws no random number before.
 * - vm_settle(), at HELLO, sets the seed, the time, the name and the limits.
 *
 * Users see the same as in a container: a /dev with harmless devices, /proc with the same paths
 * hidden, no sysfs, and no block device, port or cgroup. vm_is_nested() is the exception.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "wire/message.h"

/* Mounts /dev, /proc and /sys, and opens descriptors 0 to 2. */
int vm_begin(struct err *e);
int vm_boot(struct err *e);

/* Opens the port as descriptor `number`. */
int vm_open_channel(int number, struct err *e);

/* Applies the settings of the keeper's HELLO. Does nothing outside a VM. */
int vm_settle(const struct fields *hello, struct err *e);

/* At WAKE: sets the clock and continues the VM. Does nothing outside a VM. */
int vm_wake(const struct fields *f, struct err *e);

/* Whether the guest runs in a VM. */
bool vm_is_running(void);

/* Powers off the VM; returns only outside a VM. */
void vm_end(void);

/* ---- vm-mode.c ---- */

/* Reads the kernel's command line, the host's word from the time before any program of a user: it
 * is part of the template. */
int vm_read_mode(struct err *e);

/*
 * Whether isolation.nested is set: users see the VM's kernel as it is, with sysfs, cgroups and a
 * /proc/sys to write; root has all capabilities; no filter, no Landlock, set-user-id programs work.
 * Nothing in the VM then protects this program. The host trusts it no more than any other VM.
 */
bool vm_is_nested(void);

/* ---- vm-root.c ---- */

/* Builds the users' root directory from the image at `lower` and the disk, and moves into it. */
int vm_root(const char *lower, const char *disk, struct err *e);

/* At the first HELLO: creates the workspace and configures name resolution. */
int vm_root_settle(const struct fields *hello, struct err *e);

/* ---- vm-nested.c ---- */

/*
 * In a nested VM: completes the root directory `root`. Adds the devices of containers, and mounts
 * directories of the disk at `space` where Docker and Podman keep images.
 */
int vm_nested_root(int root, const char *space, struct err *e);

/* ---- vm-lock.c ---- */

/* Disables kernel interfaces for all processes. Needs /proc. */
int vm_lock(struct err *e);

/* ---- vm-pit.c ---- */

/*
 * Stops the PIT, unless the kernel takes its interrupts from it. It runs from reset on, and the
 * monitor wakes up for each of its periods, also while the guest sleeps. Needs /sys. Without
 * success the VM only costs more.
 */
void vm_pit_stop(void);

/* ---- vm-identity.c ---- */

/* Needs the kernel's own /dev. */
int vm_random_open(struct err *e);

/* Creates the file, still empty, that users see as /proc/sys/kernel/random/boot_id. */
int vm_boot_id_open(const char *path, struct err *e);

/* At HELLO and WAKE: replaces state that copies must not share: random numbers, then the time. */
int vm_refresh(const struct fields *f, struct err *e);

/* At HELLO: sets the host name, boot id and machine-id in the root directory that users see. */
int vm_name(const struct fields *hello, struct err *e);

/* ---- vm-users.c: the cgroup of users' processes ---- */

/* In a nested VM, this process enters a cgroup namespace, whose root is the users' cgroup. */
int vm_users_make(struct err *e);
int vm_users_limit(uint64_t pids, struct err *e); /* 0: no limit */

/* In a child: joins the cgroup. 0 or -errno; -EAGAIN if it has too many processes. */
int vm_users_join(void);
int vm_users_fd(unsigned int i); /* 0 and 1, needed by vm_users_join(), or -EBADF */

/* ---- met.c: limits that users hit. `users` is the directory of their cgroup. ---- */

int met_open(int users, struct err *e);
void met_begin(void); /* the counts start again for another sandbox */

/* ---- vm-users.c again ---- */

/* Freezes or thaws all processes of users. */
int vm_users_freeze(struct err *e);
int vm_users_thaw(struct err *e);
