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
	uint64_t number; /* last stream number */
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
};

/* broker-report.c */
void broker_report(const struct request *r, enum broker_what what, enum broker_reason reason,
		   const char *detail, const struct stream *s);

/* Starts a stream for a request that the budgets have counted; takes `fd` in any case. */
void stream_start(const struct request *r, int fd, const void *early, size_t n_early);
void stream_end(struct stream *s, enum broker_reason reason, const char *detail);

/* Refuses a socket: a proxy client gets an answer, any other client a reset. */
void stream_refuse(const struct request *r, int fd, enum broker_reason reason);
