/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker does one file operation as the requesting user and reports the result to PID 1. It is a
 * fork without exec, confined like a command, so it can open only what the user may open.
 *
 * The control socket (SOCK_SEQPACKET) carries packets from the worker: a byte of enum packet, then
 * fields or, for PACKET_END, a struct failure. For a write, one byte to the worker means "all
 * contents sent". Contents go through a pipe.
 */
#pragma once

#include <sys/stat.h>

#include "guest/child.h"
#include "tar/extract.h"

enum packet {
	PACKET_ACCEPT = 1,
	PACKET_ENTRY,
	PACKET_EVENT,
	PACKET_END,
	PACKET_BYTES = 48 * 1024, /* the longest packet: an entry with two paths and all metadata */
};

enum {
	WORKER_PATH_MAX = 4096, /* with the NUL */
};

struct worker {
	const struct fields *fields;
	int control;
	int pipe; /* contents, in or out; may be -EBADF */
	struct buf packet;
	char path[WORKER_PATH_MAX], target[WORKER_PATH_MAX]; /* absolute */
	struct failure fail;
	char note[ERR_MSG_MAX]; /* sent with success */
};

/* Never returns. Takes the descriptors and closes all others. */
_noreturn_ void worker_run(enum wire_op op, const struct fields *f, int control, int pipe);

/* Sends a packet, with the entry `st` named `path` unless `st` is NULL. -1 with w->fail. */
int worker_send(struct worker *w, enum packet kind, int dirfd, const char *name, const char *path,
		const struct stat *st);

/* Sends an event; `full` is where `path` is found, or "". */
int worker_send_event(struct worker *w, enum wire_event event, const char *full, const char *path);

/* Sends the last packet: w->fail. */
int worker_send_end(struct worker *w);

/*
 * Adds the fields of an entry to w->packet (entry.c). `path` is its reported name; `name` in
 * `dirfd` is where it is found. Without `st`, an event has only its path.
 */
void entry_put(struct worker *w, enum wire_event event, int dirfd, const char *name,
	       const char *path, const struct stat *st);

/* Sets w->fail from errno and w->path; returns -1. */
int worker_fail(struct worker *w, const char *what);

/* Operations: 0, or -1 with w->fail. */
int worker_read(struct worker *w);
int worker_write(struct worker *w);
int worker_list(struct worker *w);
int worker_remove(struct worker *w);
int worker_watch(struct worker *w);
int worker_pack(struct worker *w);
int worker_unpack(struct worker *w);

/* Creates the missing parent directories of `path`. 0 or -1 with errno. */
int worker_make_parents(const char *path);

/* A file's metadata: one extended attribute for each key. */
#define META_PREFIX "user.e2b."

/* Name prefixes of a write's temporary file: they tell watches if a file is replaced. */
#define TEMP_NEW EXTRACT_TEMP_NEW
#define TEMP_OLD EXTRACT_TEMP_OLD
enum {
	TEMP_PREFIX = STRLEN(TEMP_NEW),
	TEMP_RANDOM = 16, /* hexadecimal digits */
};
