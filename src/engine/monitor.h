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
	VM_BOOT,     /* the kernel boots; or a stopped VM continues */
	VM_TEMPLATE, /* the same, with its memory in a file that is kept */
	VM_CLONE,    /* of a template: memory is a private mapping of that file */
	VM_RESTORE,  /* of a saved VM: everything is in the state */
};

/* Called from the loop. */
struct monitor_user {
	void (*up)(void *arg);			     /* the VM is there, and nothing runs in it */
	void (*failed)(void *arg, const char *why);  /* the VM cannot be trusted any more */
	void (*gone)(void *arg, bool in_the_middle); /* of what it was told to do */
};

struct monitor;

struct monitor_ops {
	/* Takes `fd`. `patience` is how many seconds one step may take. NULL without memory. */
	struct monitor *(*start)(struct loop *loop, int fd, uint64_t patience,
				 const struct monitor_user *user, void *arg);
	/* Both are false if the monitor is busy; else `done` is called once, unless it failed. */
	bool (*run)(struct monitor *m, enum vm_start how, void (*done)(void *arg));
	/* Stops the guest and writes everything but its disk to `file`, which it takes. */
	bool (*save)(struct monitor *m, int file, void (*done)(void *arg, bool saved));
	bool (*idle)(const struct monitor *m);
	void (*free)(struct monitor *m); /* NULL is nothing */
};
