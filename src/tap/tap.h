/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sandbox's hutch-tap: its streams, its configuration, and its two sockets. The keeper's socket
 * may be full: then messages wait in a queue, and while that is long no stream is served.
 */
#pragma once

#include "tap/config.h"
#include "tap/tls.h"

enum {
	TAP_QUEUE_LONG = 1024, /* messages: beyond, streams wait */
	TAP_OPENS_AT_ONCE = 32,
};

struct stream;

struct tap_queued {
	struct tap_queued *next;
	uint32_t kind;
	union {
		struct tap_request request;
		struct tap_end end;
	};
};

struct tap {
	struct loop *loop;
	struct loop *narrow; /* instead, while the queue is long: the two sockets only */
	struct loop_fd warden[2], keeper[2];
	struct tap_config config;
	bool has_config;
	X509_STORE *store; /* until the first configuration */
	struct tls *tls;
	size_t n_streams, max_streams;
	size_t most_streams;		     /* since memory was last given back */
	size_t n_requests;		     /* by HTTP/2, at the same time; at most max_streams */
	struct stream *due_first, *due_last; /* more to do for them, without an event */
	struct tap_queued *first, *last;
	size_t n_queued;
	uint64_t passes[L7_RULES_MAX]; /* for each rule with a rate: when all requests so far fit */
	struct gateway *calls;	       /* with a reservation that is not settled */
	uint64_t last_call;
	unsigned int probes; /* for secrets, by guessing: mask.h */
	bool is_over;
	int result;
};

/* Serves until a socket ends. 0, or -errno with a message. */
int tap_run(struct tap *t, struct err *e);

/* tell.c: queues a message for the keeper and sends what it takes. */
void tap_tell(struct tap *t, const struct tap_message *m);
void tap_send_queued(struct tap *t);

/* Counts one request against rule `i`; false: over its rate. */
bool tap_may_pass(struct tap *t, size_t i);

/* Budgets: asks the warden, settles, and takes its answer. */
int tap_reserve(struct tap *t, struct gateway *g, struct tap_reserve *r); /* 0 or -errno */
void tap_settle(struct tap *t, struct gateway *g, struct tap_settle *s);
void tap_granted(struct tap *t, const struct tap_grant *grant);

/* Ends the process's work: tap_run() returns `result`. */
void tap_stop(struct tap *t, int result);
