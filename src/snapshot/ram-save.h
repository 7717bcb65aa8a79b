/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves a VM: its state, which the hypervisor writes into a pipe, and its memory, which is copied
 * from outside out of the hypervisor's process. A child does both, without any privilege: all that
 * it reads may come from a guest that has taken over its hypervisor.
 *
 * The copy has the pages that the VM has written and, from the file that the VM was started from,
 * those that it has not. Pages of zeros are holes. So the time depends on the memory in use, and
 * the VM uses no more memory than before.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/proc.h"
#include "snapshot/pages.h"

/* A VM whose memory the process `pid` has mapped at `address`, as hutch-ram.so does. */
struct ram_source {
	pid_t pid;
	uint64_t address, size;
	int base;    /* memory of the snapshot that it was started from; -EBADF: it has booted */
	uint32_t id; /* the child's user and group */
};

struct ram_save {
	struct proc saver;
	int go;	    /* the child copies the memory after a byte, and exits at the end of file */
	int result; /* the child's answer */
};

#define RAM_SAVE_INIT                                               \
	{                                                           \
		.saver = PROC_INIT, .go = -EBADF, .result = -EBADF, \
	}
#define _cleanup_ram_save_ _cleanup_(ram_save_done)

/* -EOPNOTSUPP if the kernel lets no process read the memory of another: Yama's ptrace_scope is 3.
 */
int ram_save_allowed(struct err *e);

/* Starts the child, which copies from the pipe *ret_pipe to the file `state` at once, and later the
 * memory to `memory`, an empty file. */
int ram_save_start(const struct ram_source *from, int state, int memory, struct ram_save *ret,
		   int *ret_pipe, struct err *e);

/* Call it when the guest has stopped and its state is written: the child copies the memory. When
 * `result` can be read, ram_save_result() returns how that ended. */
void ram_save_go(struct ram_save *s);
/* *ret_hex: the digest of the memory. */
int ram_save_result(struct ram_save *s, char ret_hex[static PAGES_HEX], struct err *e);

/* Both, and waits between them, at most until `deadline` (clock_mono()). */
int ram_save_finish(struct ram_save *s, uint64_t deadline, char ret_hex[static PAGES_HEX],
		    struct err *e);

/* Stops the child, if it still runs. */
void ram_save_done(struct ram_save *s);

/* ---- internal ---- */

/* ram-save-confine.c: drops every privilege that the child does not need. -errno: it must exit. */
int ram_save_confine(uint32_t id);
