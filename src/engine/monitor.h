/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper's second connection to a VM: the monitor, by which it boots, saves and restores the
 * guest. A guest may have broken into the process at the other end, so an implementation trusts
 * nothing it reads: an unexpected answer ends the VM.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct loop;

/* How the guest begins to run. */
enum vm_start {
	VM_BOOT,    /* the kernel boots, or a stopped VM continues */
	VM_RESTORE, /* continues from a snapshot */
};

/* Why a VM stopped without an order. */
enum vm_stop {
	VM_STOP_UNKNOWN,
	VM_STOP_DISK_FULL, /* its disk's file cannot grow */
};

/* Called from the loop. */
struct monitor_user {
	void (*up)(void *arg);			      /* the VM exists, its guest is stopped */
	void (*failed)(void *arg, const char *why);   /* the VM can no longer be trusted */
	void (*gone)(void *arg, bool in_the_middle);  /* the VM ended, in the middle of an order */
	void (*stopped)(void *arg, enum vm_stop why); /* the VM stopped without an order */
};

struct monitor;

struct monitor_ops {
	/* Takes over `fd`. `patience`: extra seconds for each step. NULL: out of memory. */
	struct monitor *(*start)(struct loop *loop, int fd, uint64_t patience,
				 const struct monitor_user *user, void *arg);
	/* run() and save() return false if the monitor is busy. Else they call `done` once, unless
	 * failed() is called. */
	bool (*run)(struct monitor *m, enum vm_start how, void (*done)(void *arg));
	/* Continues a stopped VM. Has no deadline: the VM may be frozen. It may stop again at
	 * once. */
	bool (*again)(struct monitor *m, void (*done)(void *arg));
	/* Stops the guest and writes its state to `file`, which it takes over: all but memory and
	 * disk. */
	bool (*save)(struct monitor *m, int file, void (*done)(void *arg, bool saved));
	bool (*idle)(const struct monitor *m);
	void (*free)(struct monitor *m); /* accepts NULL */
};
