/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange between two texts, fed in pieces; used by the tests and the fuzzer of hutch-tap. */
#pragma once

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "tap/exchange.h"

enum {
	WORLD_SECRETS = 8,
	WORLD_RULES = 8,
	WORLD_RECORDS = 16,
	WORLD_TEXTS = 8,
};

#define WORLD_HOST "api.example.com"

struct world {
	struct tap_secret secrets[WORLD_SECRETS];
	struct l7_rule rules[WORLD_RULES];
	struct tap_config config;
	struct exchange_conf conf;
	struct name host;
	struct exchange *x;
	bool over_rate;
	size_t passes; /* calls of may_pass() */
	struct tap_request record[WORLD_RECORDS];
	size_t n_records;
	struct buf to_server, to_client; /* all output so far */
	uint32_t seed;			 /* for pieces; 0: whole, 1: single bytes */
};

static inline void world_report(void *arg, const struct tap_request *r)
{
	struct world *w = arg;

	assert(w->n_records < WORLD_RECORDS);
	w->record[w->n_records++] = *r;
}

static inline bool world_may_pass(void *arg, size_t i)
{
	struct world *w = arg;

	assert(i < w->config.n_http);
	w->passes++;
	return !w->over_rate;
}

static inline void world_init(struct world *w)
{
	struct err e = ERR_INIT;

	*w = (struct world){
		.config = { .roots = "", .ca_cert = "", .ca_key = "" },
		.to_server = BUF_INIT(64 * 1024 * 1024),
		.to_client = BUF_INIT(64 * 1024 * 1024),
	};
	assert(name_parse(WORLD_HOST, strlen(WORLD_HOST), &w->host, &e) == 0);
	w->config.secrets = w->secrets;
	w->config.http = w->rules;
	w->conf = (struct exchange_conf){
		.config = &w->config,
		.host = &w->host,
		.port = 443,
		.tls = true,
		.report = world_report,
		.may_pass = world_may_pass,
		.arg = w,
	};
}

static inline void world_begin(struct world *w)
{
	buf_reset(&w->to_server);
	buf_reset(&w->to_client);
	w->n_records = 0;
	w->x = exchange_free(w->x);
	assert(exchange_new(&w->conf, &w->x) == 0);
}

static inline void world_done(struct world *w)
{
	w->x = exchange_free(w->x);
	buf_done(&w->to_server);
	buf_done(&w->to_client);
}

/* A secret of this form, bound to the host of the world. */
static inline struct tap_secret *world_secret(struct world *w, const char *name,
					      enum secret_form form, const char *value)
{
	static const char *const host[] = { WORLD_HOST };
	struct tap_secret *s = &w->secrets[w->config.n_secrets++];

	*s = (struct tap_secret){
		.name = name,
		.header = "",
		.format = "{}",
		.user = "",
		.parameter = "",
		.placeholder = "hutch-placeholder-0",
		.hosts = { host, 1 },
		.form = form,
		.value = value,
	};
	return s;
}

static inline struct l7_rule *world_rule(struct world *w, const char *at)
{
	struct l7_rule *r = &w->rules[w->config.n_http++];

	*r = (struct l7_rule){ .host = { .kind = RULE_NAME, .name = w->host }, .at = at };
	return r;
}

static inline size_t world_piece(struct world *w, size_t n)
{
	if (w->seed == 0)
		return n;
	if (w->seed == 1)
		return 1;
	w->seed = w->seed * 1664525 + 1013904223;
	return MIN(n, 1 + (w->seed >> 16) % (w->seed >> 30 ? 7 : 4000));
}

static inline void world_drain(struct world *w)
{
	struct buf *s = exchange_to_server(w->x), *c = exchange_to_client(w->x);

	assert(buf_put(&w->to_server, s->data, s->len) == 0);
	assert(buf_put(&w->to_client, c->data, c->len) == 0);
	buf_consume(s, s->len);
	buf_consume(c, c->len);
}

/* Feeds one side until it stops; returns the number of bytes taken. */
static inline size_t world_feed(struct world *w, bool client, const char *data, size_t n)
{
	size_t at = 0, used;

	while (at < n) {
		size_t piece = world_piece(w, n - at);
		char *copy = malloc(piece); /* exactly as long, for the sanitizer */

		assert(copy);
		memcpy(copy, data + at, piece);
		assert((client ? exchange_from_client : exchange_from_server)(w->x, copy, piece,
									      &used) == 0);
		free(copy);
		assert(used <= piece);
		world_drain(w);
		at += used;
		if (used == 0)
			break;
	}
	return at;
}

/* One response for each time that the client's bytes are stuck or used up. */
static inline void world_talk(struct world *w, const char *client, const char *const *server)
{
	size_t n = strlen(client), at = 0;

	do {
		at += world_feed(w, true, client + at, n - at);
		if (!server || !*server)
			break;
		(void)world_feed(w, false, *server, strlen(*server));
		server++;
	} while (!exchange_over(w->x) || *server);
	(void)world_feed(w, true, client + at, n - at);
}

/* Takes chunked framing out of a message, whose chunks depend on the pieces. */
static inline void world_unchunk(struct buf *b)
{
	char *p = b->data ? strstr(b->data, "Transfer-Encoding: chunked") : NULL, *from, *to;

	p = p ? strstr(p, "\r\n\r\n") : NULL;
	if (!p)
		return;
	from = to = p + 4;
	for (;;) {
		size_t n = strtoul(from, &from, 16);

		if (n == 0)
			break;
		from += 2;
		memmove(to, from, n);
		to += n;
		from += n + 2;
	}
	*to = '\0';
	b->len = (size_t)(to - b->data);
}
