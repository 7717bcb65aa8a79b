/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes between a program's pipe, terminal or socket and a stream of its channel, in both
 * directions, never more of them here than the protocol's credit.
 */
#pragma once

#include "guest/guest.h"

/* What a program writes, on its way to the keeper. */
struct outflow {
	struct job *job;
	unsigned int stream;
	void (*ended)(struct job *j); /* after EOF was sent; may free the job */
	/* private */
	struct loop_fd src;
	int fd;	      /* -EBADF: ended, or never begun */
	bool large;   /* the pipe has been made larger */
	bool limited; /* only `left` more bytes are read */
	size_t left;
};

/* What the keeper sends, on its way to a program. */
struct inflow {
	struct job *job;
	unsigned int stream;
	bool terminal; /* an end is typed, as Ctrl-D */
	/* Either may be NULL, and may free the job. */
	void (*drained)(struct job *j); /* everything up to EOF has been passed on */
	void (*dropped)(struct job *j); /* nobody reads any more */
	/* private */
	struct loop_fd src;
	int fd; /* -EBADF: what comes is thrown away */
	bool eof;
	struct buf queue;
	size_t old; /* of the queue: bytes of a channel that is gone, which give no credit */
};

/* Takes `fd` (non-blocking). Nothing is read before outflow_wake(). */
void outflow_init(struct outflow *o, struct job *j, unsigned int stream, int fd,
		  void (*ended)(struct job *j));
void outflow_done(struct outflow *o);

/* Reads again, if there is credit and room. */
void outflow_wake(struct outflow *o);
void outflow_pause(struct outflow *o); /* until outflow_wake() */
bool outflow_running(const struct outflow *o);

/*
 * Takes what is in the pipe now and then ends, whoever else may still hold its other end. May free
 * the job.
 */
void outflow_limit(struct outflow *o);

void inflow_init(struct inflow *i, struct job *j, unsigned int stream, int fd);
void inflow_done(struct inflow *i);
void inflow_data(struct inflow *i, const void *data, size_t n);
void inflow_eof(struct inflow *i);

/* The channel is gone; what it brought is still passed on. */
void inflow_orphan(struct inflow *i);
