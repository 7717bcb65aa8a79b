/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the broker. */
#pragma once

#include "egress/broker.h"
#include "egress/dial.h"
#include "egress/peek.h"
#include "egress/pump.h"
#include "egress/resolve.h"
#include "egress/upstream.h"

struct broker {
	struct broker_conf conf;
	struct ruleset *rules;
	struct resolver *resolver;
	struct budget budget;
	struct pump_pool pool;
	struct stream *streams;
	uint64_t number;	/* last stream number */
	struct loop_timer look; /* at tapped streams: tapped.c */
	struct stream **tapped; /* by number, BROKER_TAPPED_SETS lists; NULL before the first */
	size_t n_tapped;
};

/* A stream whose bytes hutch-tap moves: tapped.c. The descriptors are duplicates of hutch-tap's
 * once `given`. */
struct stream;
typedef void tapped_end_fn(struct stream *s, enum broker_reason reason, const char *detail);

struct tapped {
	tapped_end_fn *end;
	struct stream *next; /* in its list */
	int client, server;
	bool given;
	bool over; /* hutch-tap has closed its ends */
	struct buf early;
	uint64_t out, in;	    /* bytes to and from the server so far */
	uint64_t base_out, base_in; /* bytes of the connection before it was handed over */
	uint64_t since, moved;	    /* since the connection; of the last byte */
};

/* A request with the rule that decided it. */
struct request {
	struct broker *broker;
	uint64_t number, since;
	struct target target;
	enum rule_proto proto;
	uint32_t rule_id;
	char rule[RULE_TEXT_MAX];
	bool private; /* the rule allows the name's private addresses */
	bool proxy;
	void *cookie;
};

struct stream {
	struct request req;
	struct stream *next, **prev;
	struct lookup *lookup;	   /* during the DNS lookup */
	struct dial *dial;	   /* while dialling */
	struct upstream *upstream; /* while the HTTP proxy is asked */
	struct pump pump;
	struct loop_timer first; /* until the first bytes have passed the filter */
	bool awaited, dialled, connected;
	struct addr addr; /* first the address dialled first, later the connected address */
	char detail[PEEK_DETAIL_MAX];
	struct http_reading http; /* the first bytes, if they are a request */
	struct tapped *tap;	  /* NULL: the pump moves the bytes */
};

/* broker-report.c */
void broker_report(const struct request *r, enum broker_what what, enum broker_reason reason,
		   const char *detail, const struct stream *s);

/* Starts a stream for a request that the budgets have counted; takes `fd` in any case. */
void stream_start(const struct request *r, int fd, const void *early, size_t n_early);
void stream_end(struct stream *s, enum broker_reason reason, const char *detail);

/* tapped.c: tapped_new() takes `fd` if it succeeds; tapped_connected() takes the server's. Both
 * sockets stay open until `end` stops the stream. */
int tapped_new(struct stream *s, int fd, const void *early, size_t n_early, tapped_end_fn *end);
void tapped_connected(struct stream *s, int fd);
/* Closes both ends; unless `gently`, both peers see a reset. */
void tapped_stop(struct stream *s, bool gently);

/* Refuses a socket: a proxy client gets an answer, any other client a reset. */
void stream_refuse(const struct request *r, int fd, enum broker_reason reason);
