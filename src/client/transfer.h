/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File operations over a connection to a keeper, one after the other, for a program that has
 * nothing else to do: every call waits. Contents are on stream 0.
 */
#pragma once

#include "link.h"

enum {
	TRANSFER_NAME = 64,
};

struct transfer {
	int fd;	  /* the connection: the caller's */
	int stop; /* when this is hung up, everything ends with -ECANCELED; -EBADF: nothing is
		     watched */
	void (*event)(const struct fields *f, void *arg); /* of a watch; may be NULL */
	void *arg;
	/* private */
	struct link *link;
	uint32_t ch;
	bool hello, accepted, closed, ended;
	unsigned int code;
	char text[WIRE_TEXT_MAX + 1];
	uint64_t deadline;	  /* of a life */
	char name[TRANSFER_NAME]; /* of a snapshot */
	uint8_t kind;		  /* of the entry that was accepted; 0: none */
	struct buf kept;	  /* came, and nobody has asked for it yet */
	size_t taken;
	char *want; /* where what comes next goes */
	size_t want_n, want_done;
	size_t owed; /* credit that was not given back yet */
	struct err *error;
};

#define TRANSFER_INIT(connection)                                                           \
	{                                                                                   \
		.fd = (connection), .stop = -EBADF, .kept = BUF_INIT(2 * WIRE_CREDIT_START) \
	}
#define _cleanup_transfer_ _cleanup_(transfer_done)

void transfer_done(struct transfer *t);

/*
 * Asks for an operation on `path` as `user` (NULL: the sandbox's own) and waits for the answer. 0;
 * -EREMOTEIO when it is refused, with transfer_code() and the other side's text in `e`; or -errno.
 */
int transfer_open(struct transfer *t, enum wire_op op, const char *path, const char *user,
		  bool recursive, struct err *e);

/* Asks for the root as an archive for an image, and waits as above. */
int transfer_open_root(struct transfer *t, struct err *e);

/* Adds a rule to what the sandbox may connect to. 0 when it holds; else as transfer_open(). */
int transfer_rule(struct transfer *t, const char *rule, bool deny, struct err *e);

/* What is wanted of the sandbox's life; 0 leaves a thing as it is. */
struct transfer_life {
	uint64_t timeout; /* ms from now */
	enum wire_on_timeout on_timeout;
	enum wire_want want;
};

/* Asks for that. 0 when it is so, and the deadline (wall clock, ms; 0: none); else as
 * transfer_open(). */
int transfer_life(struct transfer *t, const struct transfer_life *life, uint64_t *ret_deadline,
		  struct err *e);

/* Asks for a snapshot: its name. Else as transfer_open(). */
int transfer_save(struct transfer *t, enum wire_save what_for, char ret[static TRANSFER_NAME],
		  struct err *e);

/* The enum wire_code that the operation was closed with, and the text that came with it. */
static inline unsigned int transfer_code(const struct transfer *t)
{
	return t->code;
}

/* 1 to n bytes, 0 at the end of the contents, or -errno. */
int64_t transfer_read(struct transfer *t, void *buf, size_t n, struct err *e);

/*
 * Waits until `fd` can be read, and does meanwhile what the other side says. 0, or -errno when it
 * has ended the operation.
 */
int transfer_wait(struct transfer *t, int fd, struct err *e);

/* Sends all of it. 0 or -errno; -EREMOTEIO when the other side has ended the operation. */
int transfer_write(struct transfer *t, const void *data, size_t n, struct err *e);

/* No more is sent; waits until the other side has ended it. 0 if that went well. */
int transfer_finish(struct transfer *t, struct err *e);
