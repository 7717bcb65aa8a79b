/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LLM gateway: calls of language models, by the rules of `llm`. Part of call*.c.
 *
 * A call's body is collected, because it names the model. Then the warden is asked for a
 * reservation in the budget, and the request waits for the answer. The response passes unchanged
 * while its usage is read; it is cut when it has used what was reserved. At the end of the call the
 * reservation is settled with the usage. A call without a settlement counts as what it reserved,
 * also one whose answer the program did not wait for: the server may complete it.
 */
#pragma once

#include "llm/llm.h"
#include "tap/call.h"

enum {
	GATEWAY_BODY_MAX = 32 * 1024 * 1024, /* the limit of providers */
	GATEWAY_OUTPUT_MAX = 131072, /* tokens reserved for a request without a limit of its own */
};

struct gateway {
	const struct exchange_conf *conf;
	size_t rule; /* index in tap_config.llm */
	enum {
		GATEWAY_COLLECTS,
		GATEWAY_WAITS, /* for the warden */
		GATEWAY_GRANTED,
		GATEWAY_REFUSED,
	} state;
	struct llm_endpoint endpoint;
	bool gzip;     /* the body is compressed */
	bool is_named; /* `model` is read */
	char model[LLM_MODEL_MAX + 1];
	uint64_t input; /* tokens: the guess for the request */
	bool has_price;
	struct llm_price price; /* without its pattern */

	/* The reservation; tap.c has a list of those without a settlement. */
	uint64_t id; /* 0: none */
	struct gateway *prev, *next;
	struct tap_grant grant;

	bool is_sent;		   /* the server may have the request */
	bool is_refused;	   /* by the server: nothing was used */
	bool is_known;		   /* how much was used, or a good guess: else as reserved */
	struct llm_reader *reader; /* NULL: no response with usage */
	bool is_cut;
	struct buf out;
};

struct gateway *gateway_free(struct gateway *g); /* settles */

/* Does a rule name the host? Its index, or -1. */
int gateway_rule_of(const struct tap_config *c, const struct name *host);

/* At the head of a request to such a host: sets ret->need_body for a call. As call_admit(). */
int gateway_admit(struct call *c, const struct request *q, struct injection *ret,
		  struct refusal *why);

/* At the end of the body. 0: granted, 1: wait for the warden, -EBADMSG or -ENOMEM. */
int gateway_review(struct call *c, struct refusal *why);

/* The warden's answer. */
void gateway_answer(struct gateway *g, const struct tap_grant *grant);

/* At the head and the body of the final response. */
int gateway_response(struct gateway *g, struct response *r);
int gateway_read(struct gateway *g, const char **data, size_t *n); /* 0 or -ENOMEM */

/* Fills in the record's part about the call, and settles. */
void gateway_report(struct gateway *g, struct tap_request *record);

/* Makes the answer of a refusal one that the provider could have given. */
void gateway_refuse(const struct gateway *g, const struct refusal *why, struct answer *a);
