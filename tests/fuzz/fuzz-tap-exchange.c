/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both sides of an exchange. The first byte selects the configuration. Segments follow, each ended
 * by NUL: "c" and bytes of the client, "s" and bytes of the server, "C" or "S" alone: that side has
 * closed. Each input is fed in whole segments and in pieces, and must have the same result.
 *
 * The bytes for the server are parsed again by a simple reader: it must find exactly the requests
 * that were reported, each for the right host, with the right credential and nothing behind it.
 */
#include <string.h>
#include <strings.h>

#include "../unit/tap-world.h"
#include "fuzz.h"
#include "tap/gateway.h"

#define VALUE "secret-value-0123456789"

enum {
	MODE_PLAIN = 1, /* no TLS */
	MODE_BASIC = 2, /* the form of the secret; both bits: query, neither: bearer */
	MODE_HEADER = 4,
	MODE_PATHS = 8, /* the secret is bound to some paths */
	MODE_RULES = 16,
	MODE_AWS = 32,
	MODE_LLM = 128, /* the host has models; bit 6 is for pieces */
	MODES = 63 | MODE_LLM,
};

static const char *const paths[] = { "/v1/**" };
static const char *const methods[] = { "GET", "POST" };
static const char *const denied[] = { "/v1/*/x" };

/* The warden: grants most calls, and little for their answers. */
static struct gateway *asked;
static uint64_t least;

static int reserve(void *arg, struct gateway *g, struct tap_reserve *r)
{
	assert(!asked && r->least_tokens <= r->tokens);
	g->id = r->call = 1;
	asked = g;
	least = r->least_tokens;
	return 0;
}

static void settle(void *arg, struct gateway *g, struct tap_settle *s)
{
	assert(g->id == 1);
	g->id = 0;
	asked = asked == g ? NULL : asked;
}

static void answer(struct world *w)
{
	struct gateway *g = asked;

	if (!g)
		return;
	asked = NULL;
	gateway_answer(g, &(struct tap_grant){ .granted = least % 7 > 0,
					       .tokens = least + 20,
					       .usd = UINT64_MAX });
	assert(exchange_resume(w->x) == 0);
	world_drain(w);
}

static void allow_models(struct world *w)
{
	static const char *const hosts[] = { WORLD_HOST }, *const models[] = { "m*" };
	static struct tap_llm rule = { .provider = LLM_COMPATIBLE,
				       .hosts = { hosts, 1 },
				       .models = { models, 1 },
				       .tokens = 1000,
				       .at = "f:3" };

	w->config.llm = &rule;
	w->config.n_llm = 1;
	w->conf.reserve = reserve;
	w->conf.settle = settle;
}

static void configure(struct world *w, unsigned int mode)
{
	static const enum secret_form forms[] = { SECRET_BEARER, SECRET_BASIC, SECRET_HEADER,
						  SECRET_QUERY };
	struct tap_secret *s;
	struct l7_rule *r;

	world_init(w);
	w->conf.tls = !(mode & MODE_PLAIN);
	w->conf.port = mode & MODE_PLAIN ? 80 : 443;
	s = world_secret(w, "KEY", forms[(mode & (MODE_BASIC | MODE_HEADER)) / MODE_BASIC], VALUE);
	s->header = "X-Api-Key";
	s->parameter = "key";
	if (mode & MODE_AWS) {
		s->form = SECRET_AWS;
		s->value = "AKID:" VALUE;
	}
	if (mode & MODE_PATHS)
		s->paths = (struct l7_list){ paths, 1 };
	if (mode & MODE_LLM)
		allow_models(w);
	if (!(mode & MODE_RULES))
		return;
	r = world_rule(w, "f:1");
	r->methods = (struct l7_list){ methods, 2 };
	r->max_body = 1000;
	r->rate = 10;
	r = world_rule(w, "f:2");
	r->paths = (struct l7_list){ denied, 1 };
	r->deny = true;
}

/* ---- the server's side ---- */

static size_t count_field(const char *head, const char *end, const char *name, const char **value)
{
	size_t n = strlen(name), count = 0;

	for (const char *p = strstr(head, "\r\n"); p && p + 2 < end; p = strstr(p + 2, "\r\n"))
		if (strncasecmp(p + 2, name, n) == 0 && p[2 + n] == ':') {
			*value = p + 2 + n + 1;
			count++;
		}
	return count;
}

/* Returns the end of the body of chunks, or NULL if it is incomplete. */
static const char *read_chunks(const char *p, const char *end)
{
	for (;;) {
		char *after;
		size_t n;

		if (p >= end)
			return NULL;
		n = strtoul(p, &after, 16);
		assert(after > p && memcmp(after, "\r\n", 2) == 0);
		p = after + 2 + n + 2;
		if (n == 0)
			return p <= end ? p : NULL;
		assert(p > end || memcmp(p - 2, "\r\n", 2) == 0);
	}
}

static void check_head(const struct world *w, const char *head, const char *end, unsigned int mode)
{
	const char *value = NULL;

	assert(count_field(head, end, "host", &value) == 1);
	assert(strncmp(value, " " WORLD_HOST "\r\n", STRLEN(" " WORLD_HOST "\r\n")) == 0);
	assert(count_field(head, end, "content-length", &value) +
		       count_field(head, end, "transfer-encoding", &value) <=
	       1);
	if (mode & (MODE_PLAIN | MODE_PATHS | MODE_AWS))
		return;
	/* One credential, and it is ours. */
	if (w->secrets[0].form == SECRET_QUERY) {
		assert(count_field(head, end, "authorization", &value) == 0);
		assert(memmem(head, (size_t)(end - head), "key=" VALUE, STRLEN("key=" VALUE)));
		return;
	}
	assert(count_field(head, end, "authorization", &value) +
		       count_field(head, end, "x-api-key", &value) ==
	       1);
	if (w->secrets[0].form == SECRET_BEARER)
		assert(strncmp(value, " Bearer " VALUE "\r\n", STRLEN(" Bearer " VALUE "\r\n")) ==
		       0);
}

/* Returns the number of complete heads, all of which must be valid. */
static size_t read_requests(const struct world *w, unsigned int mode)
{
	const char *p = buf_text(&w->to_server), *end = p + w->to_server.len, *value;
	size_t count = 0;

	while (p && p < end) {
		const char *body = strstr(p, "\r\n\r\n");
		bool upgrade;

		assert(body && *p >= 'A' && *p <= 'Z'); /* a head is written whole */
		check_head(w, p, body + 2, mode);
		count++;
		upgrade = count_field(p, body + 2, "upgrade", &value) > 0;
		body += 4;
		if (upgrade)
			return count; /* a stream may follow */
		if (count_field(p, body - 2, "transfer-encoding", &value) > 0)
			body = read_chunks(body, end);
		else if (count_field(p, body - 2, "content-length", &value) > 0)
			body += strtoull(value, NULL, 10);
		p = body;
	}
	return count;
}

/* ---- running ---- */

static void run(struct world *w, const uint8_t *data, size_t size)
{
	_cleanup_buf_ struct buf client = BUF_INIT(1024 * 1024);
	const char *s = (const char *)data;

	world_begin(w);
	for (size_t at = 0, n; at < size; at += n + 1) {
		const char *end = memchr(s + at, '\0', size - at);

		n = end ? (size_t)(end - (s + at)) : size - at;
		if (n == 0 || w->n_records > WORLD_RECORDS - 4)
			continue;
		if (s[at] == 'c') {
			assert(buf_put(&client, s + at + 1, n - 1) == 0);
		} else if (s[at] == 's') {
			(void)world_feed(w, false, s + at + 1, n - 1);
		} else if (s[at] == 'S') {
			exchange_server_eof(w->x);
		} else if (s[at] == 'C' && client.len == 0) {
			exchange_client_eof(w->x);
		}
		if (client.len > 0)
			buf_consume(&client, world_feed(w, true, client.data, client.len));
		answer(w);
		world_drain(w);
		assert(!exchange_over(w->x) || !exchange_idle(w->x));
	}
	exchange_abort(w->x, TAP_TIME, "the end");
	world_drain(w);
	assert(exchange_over(w->x));
}

static void compare(const struct world *a, const struct world *b)
{
	assert(a->n_records == b->n_records);
	for (size_t i = 0; i < a->n_records; i++) {
		const struct tap_request *x = &a->record[i], *y = &b->record[i];

		assert(x->result == y->result && x->status == y->status && x->rule == y->rule &&
		       x->secret == y->secret && x->upgraded == y->upgraded);
		assert(str_eq(x->method, y->method) && str_eq(x->path, y->path) &&
		       str_eq(x->text, y->text));
		assert(x->result != TAP_DONE ||
		       (x->bytes_in == y->bytes_in && x->bytes_out == y->bytes_out &&
			x->reflected == y->reflected));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world whole, pieces;
	unsigned int mode;

	if (size < 2 || size > 64 * 1024)
		return 0;
	mode = data[0] & MODES;
	configure(&whole, mode);
	configure(&pieces, mode);
	pieces.seed = data[0] & 64 ? 1 : 2u + data[0];
	run(&whole, data + 1, size - 1);
	run(&pieces, data + 1, size - 1);
	compare(&whole, &pieces);
	assert(read_requests(&whole, mode) == read_requests(&pieces, mode));
	/* The sandbox never gets the value, unless the input had it. */
	if (!(mode & (MODE_PLAIN | MODE_PATHS)) && whole.record[0].secret == 0 &&
	    !memmem(data, size, VALUE, 8))
		assert(!memmem(buf_text(&whole.to_client), whole.to_client.len, VALUE, 23));
	world_done(&whole);
	world_done(&pieces);
	return 0;
}
