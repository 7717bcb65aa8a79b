/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a template, once on a host: a sealed memfd that all clones map. A small process,
 * hutch-hold, has read it from the snapshot's file, checked it on the way, and hands descriptors of
 * it to whoever starts a clone. Nobody depends on that process: clones that run have their mapping,
 * and when it is gone the next start makes another.
 *
 *   RUN/templates/NAME.sock   NAME: the first 32 digits of the memory's digest
 *   RUN/templates/lock        flock held while a socket is put there or taken away
 *
 * The socket is bound by whoever starts the process and is there before it has read anything: those
 * who come meanwhile wait in the socket's queue, and are told by its end if the process dies.
 */
#pragma once

#include <stdint.h>

#include "err.h"
#include "pages.h"
#include "state.h"

enum {
	HOLD_SECONDS = 600, /* without a request it ends; $HUTCH_HOLD_SECONDS */
	HOLD_NAME = 32 + 6, /* with ".sock" and NUL */
	HOLD_BACKLOG = 1024,
};

/* What is asked for: one byte on a SOCK_SEQPACKET socket. Only the same user is answered. */
enum hold_request {
	HOLD_MEMORY = 'm', /* answer: struct hold_answer, with the memfd if that is HOLD_OK */
	HOLD_END = 'e',	   /* answer: the end of the connection, when the process has gone */
};

enum hold_status {
	HOLD_OK,
	HOLD_DAMAGED, /* the file is not what its digest says */
	HOLD_FAILED,  /* memory is short, or the disk fails: error */
};

struct hold_answer {
	uint32_t status; /* enum hold_status */
	int32_t error;	 /* -errno of HOLD_FAILED */
};

/* Descriptors of hutch-hold. Its arguments: NAME.sock DIGEST SIZE SECONDS. */
enum {
	HOLD_FD_LISTENER = 3,
	HOLD_FD_DIR,	 /* of the snapshot: when it goes, so does the process */
	HOLD_FD_MEMORY,	 /* the file */
	HOLD_FD_SOCKETS, /* RUN/templates */
	HOLD_FD_LOCK,
};

/* The memory of a machine, of one's own: copies what is not zero of `file` into a memfd of `size`
 * bytes that nobody can change. -EBADMSG: its digest is another. */
int hold_load(int file, uint64_t size, const char *digest, int *ret_memfd);

/* hold-confine.c. Takes away all that hutch-hold does not need. 0, or -errno: then it must end. */
int hold_confine(void);

/* Whether this is a memfd of that size that nobody can change any more. */
bool hold_is_sealed(int memfd, uint64_t size);

/* The same, shared: from the process that has it, which is started if there is none. `dir`: the
 * snapshot. -EBADMSG as above; with any other error one of one's own is as good. */
int hold_get(const struct state_root *run, int dir, uint64_t size, const char *digest,
	     int *ret_memfd, struct err *e);

/* Ends all such processes of this run directory; `took` is told the name of each. */
int hold_end_all(const struct state_root *run, void (*took)(const char *name, void *arg), void *arg,
		 struct err *e);
