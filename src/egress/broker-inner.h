/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the broker share. */
#pragma once

#include "broker.h"
#include "dial.h"
#include "peek.h"
#include "pump.h"
#include "resolve.h"
#include "upstream.h"

struct broker {
	struct broker_conf conf;
	struct ruleset *rules;
	struct resolver *resolver;
	struct budget budget;
	struct pump_pool pool;
	struct stream *streams;
	uint64_t number; /* of the last stream */
};

/* What was asked for and what was said about it. */
struct request {
	struct broker *broker;
	uint64_t number, since;
	struct target target;
	enum rule_proto proto;
	uint32_t rule_id;
	char rule[RULE_TEXT_MAX];
	bool private; /* the rule allows private addresses of its name */
	bool proxy;
	void *cookie;
};

struct stream {
	struct request req;
	struct stream *next, **prev;
	struct lookup *lookup;	   /* while it looks up */
	struct dial *dial;	   /* while it dials */
	struct upstream *upstream; /* while a proxy is asked */
	struct pump pump;
	struct loop_timer first; /* until the first bytes have passed */
	bool awaited, dialled, connected;
	struct addr addr; /* what is dialled first, then what is connected to */
	char detail[PEEK_DETAIL_MAX];
};

/* broker-report.c */
void broker_report(const struct request *r, enum broker_what what, enum broker_reason reason,
		   const char *detail, const struct stream *s);

/* Begins a stream of a request that the budgets have counted; takes `fd` in any case. */
void stream_start(const struct request *r, int fd, const void *early, size_t n_early);
void stream_end(struct stream *s, enum broker_reason reason, const char *detail);

/* A refused socket: an answer for a proxy's client, a reset for anybody else. */
void stream_refuse(const struct request *r, int fd, enum broker_reason reason);
