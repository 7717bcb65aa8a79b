/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper's side of the output filter. All output of commands comes from the guest through
 * guest_data(), and goes from there to the record and to the client. With a filter in the policy,
 * it makes a detour over hutch-filter in between. So records, and with them logs, the API and MCP,
 * have filtered output only.
 *
 * A stream's end, the exit message and the guest's CLOSE wait until hutch-filter has returned the
 * output before them. The guest gets its credit back when filtered bytes have been passed on, so a
 * command that writes faster than its client reads still waits.
 *
 * If hutch-filter ends, the output that it had is lost, and the streams that it knew are withheld
 * to their end. Later commands get a new hutch-filter.
 */
#pragma once

#include "base/buf.h"
#include "base/loop.h"
#include "filter-link/filter-link.h"
#include "wire/wire.h"

struct keeper;
struct relay;

enum {
	FILTER_RECORDS_MAX = 100, /* records in a second; further hits are counted */
	FILTER_QUEUE_MAX = 64 * 1024 * 1024,
	FILTERED_GROWTH = 20, /* a stream with nothing but matches grows at most so much */
};

/* The relays, for the output filter. */
struct filtering_ops {
	/* Filtered output; may put the relay aside. */
	void (*data)(struct relay *r, unsigned int stream, const void *data, size_t n);
	/* All output was returned: the exit message and the end may follow. */
	void (*drained)(struct relay *r);
	void (*cut)(struct relay *r, enum wire_code code, const char *text);
};

struct filtering {
	const struct filtering_ops *ops;
	struct loop_fd src; /* fd -EBADF: not running */
	bool on;	    /* the policy has a filter */
	bool asked;	    /* a request to start it is under way */
	uint64_t next;	    /* number of the next relay */
	size_t open;	    /* streams that hutch-filter has not ended */
	struct buf queue;   /* packets that hutch-filter has not taken yet */
	size_t sent;
	uint64_t second;
	unsigned int recorded; /* hits recorded in this second */
	uint64_t dropped;      /* hits not recorded since the last record */
};

/* The part of a relay whose output is filtered. */
struct filtered {
	uint64_t number;     /* 0: no output so far */
	uint8_t open, ended; /* bits of streams that hutch-filter has; of those that were ended */
	uint8_t eof;	     /* bits of streams whose EOF waits */
	size_t inside[WIRE_STREAMS]; /* bytes that hutch-filter has not answered */
	uint8_t withheld; /* bits of streams whose output is dropped: hutch-filter has failed */
};

void filtering_init(struct keeper *k, const struct filtering_ops *ops);
void filtering_begin(struct keeper *k); /* after "go" */
void filtering_done(struct keeper *k);

/* Is the output of this relay filtered? */
bool filtering_has(const struct relay *r);

/* Output from the guest; may put the relay aside. */
void filtering_data(struct relay *r, unsigned int stream, const void *data, size_t n);

/* Ends a stream. True: its EOF waits, and flow_eof() is called later. */
bool filtering_eof(struct relay *r, unsigned int stream);

/* Ends all streams of the relay. True: output is still in the filter; ops->drained() follows. */
bool filtering_ends(struct relay *r);

/* The relay is put aside: nothing is returned for it any more. */
void filtering_forget(struct relay *r);

/* NOTE_FILTER: the socket of a started hutch-filter, or without a file the errno of its failure.
 * False: not expected. */
bool filtering_came(struct keeper *k, uint64_t error, const int *files, size_t n);
