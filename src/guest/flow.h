/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves bytes between a program's pipe, terminal or socket and a stream of its channel, in both
 * directions. The protocol's credit limits how many bytes are held here.
 */
#pragma once

#include "guest/guest.h"

/* From a program to the keeper. */
struct outflow {
	struct job *job;
	unsigned int stream;
	void (*ended)(struct job *j); /* after EOF was sent; may free the job */
	/* private */
	struct loop_fd src;
	int fd;	      /* -EBADF: ended, or never started */
	bool large;   /* the pipe has been enlarged */
	bool limited; /* only `left` more bytes will be read */
	size_t left;
};

/* From the keeper to a program. */
struct inflow {
	struct job *job;
	unsigned int stream;
	bool terminal; /* send Ctrl-D at EOF */
	/* Either may be NULL, and may free the job. */
	void (*drained)(struct job *j); /* everything up to EOF has been passed on */
	void (*dropped)(struct job *j); /* the reader is gone */
	/* private */
	struct loop_fd src;
	int fd; /* -EBADF: data is dropped */
	bool eof;
	struct buf queue;
	size_t old; /* queued bytes of a closed channel, which give no credit */
};

/* Takes `fd` (non-blocking). Nothing is read before outflow_wake(). */
void outflow_init(struct outflow *o, struct job *j, unsigned int stream, int fd,
		  void (*ended)(struct job *j));
void outflow_done(struct outflow *o);

/* Starts reading again, if there is credit and room. */
void outflow_wake(struct outflow *o);
void outflow_pause(struct outflow *o); /* until outflow_wake() */
bool outflow_running(const struct outflow *o);

/*
 * Reads the bytes that are in the pipe now and then ends, even if other processes still hold the
 * other end. May free the job.
 */
void outflow_limit(struct outflow *o);

void inflow_init(struct inflow *i, struct job *j, unsigned int stream, int fd);
void inflow_done(struct inflow *i);
void inflow_data(struct inflow *i, const void *data, size_t n);
void inflow_eof(struct inflow *i);

/* The channel is gone; queued bytes are still passed on. */
void inflow_orphan(struct inflow *i);
