/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File operations over a connection to a keeper, one after the other. Every call blocks. Contents
 * are on stream 0.
 */
#pragma once

#include "wire/link.h"

enum {
	TRANSFER_NAME = 64,
};

struct transfer {
	int fd;	  /* the connection; the caller owns it */
	int stop; /* a hang-up on it ends every call with -ECANCELED; -EBADF: not watched */
	void (*event)(const struct fields *f, void *arg); /* called for a watch; may be NULL */
	void *arg;
	/* private */
	struct link *link;
	uint32_t ch;
	bool hello, accepted, closed, ended;
	unsigned int code;
	char text[WIRE_TEXT_MAX + 1];
	uint64_t deadline;	  /* answer to LIFE */
	char name[TRANSFER_NAME]; /* answer to SAVE: the snapshot */
	uint8_t kind;		  /* type of the accepted entry; 0: none */
	struct buf kept;	  /* received, not yet read by the caller */
	size_t taken;
	char *want; /* where the next contents go */
	size_t want_n, want_done;
	size_t owed; /* credit not yet returned */
	struct err *error;
};

#define TRANSFER_INIT(connection)                                                           \
	{                                                                                   \
		.fd = (connection), .stop = -EBADF, .kept = BUF_INIT(2 * WIRE_CREDIT_START) \
	}
#define _cleanup_transfer_ _cleanup_(transfer_done)

void transfer_done(struct transfer *t);

/*
 * Requests an operation on `path` as `user` (NULL: the sandbox's default) and waits for the answer.
 * 0; -EREMOTEIO if refused, with transfer_code() and the other side's text in `e`; or -errno.
 */
int transfer_open(struct transfer *t, enum wire_op op, const char *path, const char *user,
		  bool recursive, struct err *e);

/* Requests the root directory as an archive for an image, and waits as above. */
int transfer_open_root(struct transfer *t, struct err *e);

/* Adds an egress rule to the sandbox. 0 when it is in force; else as transfer_open(). */
int transfer_rule(struct transfer *t, const char *rule, bool deny, struct err *e);

/* Changes to a sandbox's life; 0 leaves a value unchanged. */
struct transfer_life {
	uint64_t timeout; /* ms from now */
	enum wire_on_timeout on_timeout;
	enum wire_want want;
};

/* Requests these changes. 0 when done, with the deadline (wall clock, ms; 0: none); else as
 * transfer_open(). */
int transfer_life(struct transfer *t, const struct transfer_life *life, uint64_t *ret_deadline,
		  struct err *e);

/* Requests a snapshot and returns its name. Errors as transfer_open(). */
int transfer_save(struct transfer *t, enum wire_save what_for, char ret[static TRANSFER_NAME],
		  struct err *e);

/* The enum wire_code with which the other side closed the operation. */
static inline unsigned int transfer_code(const struct transfer *t)
{
	return t->code;
}

/* 1 to n bytes, 0 at the end of the contents, or -errno. */
int64_t transfer_read(struct transfer *t, void *buf, size_t n, struct err *e);

/*
 * Waits until `fd` is readable, and processes the other side's frames meanwhile. 0, or -errno if
 * the other side ended the operation.
 */
int transfer_wait(struct transfer *t, int fd, struct err *e);

/* Sends all `n` bytes. 0 or -errno; -EREMOTEIO if the other side ended the operation. */
int transfer_write(struct transfer *t, const void *data, size_t n, struct err *e);

/* Ends the contents and waits until the other side closes the operation. 0 on success. */
int transfer_finish(struct transfer *t, struct err *e);
