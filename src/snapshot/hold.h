/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds the memory of a template once per host, in a sealed memfd that all clones map. A small
 * process, hutch-hold, reads it from the snapshot's file, verifies it, and sends descriptors of it
 * to processes that start a clone. Nothing depends on hutch-hold: running clones keep their
 * mapping, and if it is gone, the next start launches another.
 *
 *   RUN/templates/NAME.sock   NAME: the first 32 digits of the memory's digest
 *   RUN/templates/lock        flock held while a socket is created or removed
 *
 * The process that launches hutch-hold binds the socket first. Clients that connect while the
 * memory is being read wait in the socket's queue; if hutch-hold dies, the connection closes.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "snapshot/pages.h"
#include "state/state.h"

enum {
	HOLD_SECONDS = 600, /* exits after this time without a request; $HUTCH_HOLD_SECONDS */
	HOLD_NAME = 32 + 6, /* with ".sock" and NUL */
	HOLD_BACKLOG = 1024,
};

/* A request: one byte on a SOCK_SEQPACKET socket. Only the same user gets an answer. */
enum hold_request {
	HOLD_MEMORY = 'm', /* answer: struct hold_answer, with the memfd if HOLD_OK */
	HOLD_END = 'e',	   /* answer: the connection closes when the process has exited */
};

enum hold_status {
	HOLD_OK,
	HOLD_DAMAGED, /* the file does not match its digest */
	HOLD_FAILED,  /* out of memory, or a disk error: see `error` */
};

struct hold_answer {
	uint32_t status; /* enum hold_status */
	int32_t error;	 /* -errno of HOLD_FAILED */
};

/* Descriptors of hutch-hold. Its arguments: NAME.sock DIGEST SIZE SECONDS. */
enum {
	HOLD_FD_LISTENER = 3,
	HOLD_FD_DIR,	 /* snapshot directory: hutch-hold exits when it is removed */
	HOLD_FD_MEMORY,	 /* the memory file */
	HOLD_FD_SOCKETS, /* RUN/templates */
	HOLD_FD_LOCK,
};

/* Loads a private copy of a VM's memory: copies the non-zero pages of `file` into a sealed memfd of
 * `size` bytes. -EBADMSG: the digest does not match. */
int hold_load(int file, uint64_t size, const char *digest, int *ret_memfd);

/* hold-confine.c: drops every privilege that hutch-hold does not need. -errno: it must exit. */
int hold_confine(void);

/* Whether this is a memfd of that size, sealed against changes. */
bool hold_is_sealed(int memfd, uint64_t size);

/* The same, shared: from hutch-hold, which is started if needed. `dir`: the snapshot. -EBADMSG as
 * above; after any other error use hold_load(). */
int hold_get(const struct state_root *run, int dir, uint64_t size, const char *digest,
	     int *ret_memfd, struct err *e);

/* Stops all such processes of this run directory; calls `took` with each name. */
int hold_end_all(const struct state_root *run, void (*took)(const char *name, void *arg), void *arg,
		 struct err *e);
