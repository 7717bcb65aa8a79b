/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/exchange-inner.h"

#include <sodium.h>

enum {
	OUT_MAX = 40 * 1024 * 1024, /* above a body that was collected */
};

int exchange_new(const struct exchange_conf *c, struct exchange **ret)
{
	struct exchange *x = calloc(1, sizeof(*x));

	if (!x)
		return -ENOMEM;
	x->conf = *c;
	x->to_server = x->to_client = (struct buf)BUF_INIT(OUT_MAX);
	x->client_head = x->server_head = (struct head_input)HEAD_INPUT_INIT;
	call_init(&x->call, &x->conf);
	*ret = x;
	return 0;
}

struct exchange *exchange_free(struct exchange *x)
{
	if (!x)
		return NULL;
	if (x->to_server.data)
		sodium_memzero(x->to_server.data, x->to_server.cap);
	buf_done(&x->to_server);
	buf_done(&x->to_client);
	head_input_reset(&x->client_head);
	head_input_reset(&x->server_head);
	call_done(&x->call);
	x->h2 = h2_free(x->h2);
	free(x);
	return NULL;
}

int exchange_use_http2(struct exchange *x)
{
	assert(!x->h2 && exchange_idle(x));
	return h2_new(&x->conf, &x->h2);
}

/* ---- ends ---- */

void exchange_abort(struct exchange *x, enum tap_result result, const char *text)
{
	struct refusal why;

	if (x->h2) {
		h2_abort(x->h2, result, text);
		return;
	}
	if (x->over)
		return;
	if (call_refusal(result, text, &why))
		exchange_refuse(x, &why);
	call_report(&x->call, result, text);
	x->over = true;
}

/* ---- bytes ---- */

static int failed(struct exchange *x)
{
	exchange_abort(x, TAP_FAULT, "out of memory");
	return -ENOMEM;
}

static int run(struct exchange *x, struct buf *out, const char *data, size_t n, size_t *ret_used,
	       ssize_t (*step)(struct exchange *x, const char *data, size_t n))
{
	ssize_t used = 1;
	size_t at = 0;

	*ret_used = 0;
	if (!x->over && out->len >= EXCHANGE_BUFFER)
		return 0;
	n = x->over ? n : MIN(n, (size_t)EXCHANGE_BUFFER);
	while (at < n && used > 0 && !x->over) {
		used = step(x, data + at, n - at);
		if (used < 0 || x->to_server.err || x->to_client.err)
			return failed(x);
		at += (size_t)used;
	}
	*ret_used = x->over ? n : at;
	return 0;
}

int exchange_from_client(struct exchange *x, const char *data, size_t n, size_t *ret_used)
{
	if (x->h2)
		return h2_from_client(x->h2, data, n, ret_used);
	return run(x, &x->to_server, data, n, ret_used, exchange_client_step);
}

int exchange_resume(struct exchange *x)
{
	if (x->h2)
		return h2_resume(x->h2);
	if (x->over || x->client != CLIENT_ASK)
		return 0;
	return exchange_resume_request(x) < 0 || x->to_server.err || x->to_client.err ? failed(x)
										      : 0;
}

int exchange_from_server(struct exchange *x, const char *data, size_t n, size_t *ret_used)
{
	if (x->h2)
		return h2_from_server(x->h2, data, n, ret_used);
	return run(x, &x->to_client, data, n, ret_used, exchange_server_step);
}

/* ---- ends of connections ---- */

void exchange_client_eof(struct exchange *x)
{
	if (x->h2) {
		h2_client_eof(x->h2);
		return;
	}
	if (x->over)
		return;
	switch (x->client) {
	case CLIENT_HEAD:
	case CLIENT_COLLECT:
	case CLIENT_BODY:
		exchange_abort(x, TAP_CLIENT_CLOSED, "the client closed before its request's end");
		break;
	case CLIENT_ASK:
	case CLIENT_WAIT:
		x->client_eof = true;
		break;
	case CLIENT_RAW:
		x->client_eof = x->server_done = true;
		break;
	}
}

/*
 * Without any byte of a response on a connection that was used before, the server has just closed
 * an idle connection. A client repeats its request then, but not after a 502.
 */
static bool is_stale(const struct exchange *x)
{
	return x->served > 0 && x->server_head.text.len == 0 && x->call.interims == 0;
}

void exchange_server_eof(struct exchange *x)
{
	if (x->h2) {
		h2_server_eof(x->h2);
		return;
	}
	if (x->over)
		return;
	switch (x->server) {
	case SERVER_IDLE:
	case SERVER_HEAD:
		if (is_stale(x)) {
			call_report(&x->call, TAP_SERVER_CLOSED,
				    "the server closed before its response");
			x->over = true;
		}
		exchange_abort(x, TAP_SERVER_CLOSED, "the server closed before its response");
		break;
	case SERVER_BODY:
		if (x->server_body.kind == BODY_UNTIL_CLOSE && exchange_flush_mask(x) == 0) {
			body_end(&x->to_client, x->to_client_kind);
			exchange_complete(x);
		}
		exchange_abort(x, TAP_SERVER_CLOSED, "the server closed in its response");
		break;
	case SERVER_RAW:
		(void)exchange_flush_mask(x);
		call_report(&x->call, TAP_DONE, "");
		x->over = true;
		break;
	}
}

struct buf *exchange_to_server(struct exchange *x)
{
	if (x->h2)
		return h2_to_server(x->h2);
	return &x->to_server;
}

struct buf *exchange_to_client(struct exchange *x)
{
	if (x->h2)
		return h2_to_client(x->h2);
	return &x->to_client;
}

bool exchange_over(const struct exchange *x)
{
	if (x->h2)
		return h2_over(x->h2);
	return x->over;
}

bool exchange_server_done(const struct exchange *x)
{
	return x->server_done;
}

bool exchange_idle(const struct exchange *x)
{
	if (x->h2)
		return h2_idle(x->h2);
	return !x->over && !x->call.active && x->client_head.text.len == 0;
}

bool exchange_in_request(const struct exchange *x)
{
	if (x->h2)
		return h2_in_request(x->h2);
	return x->call.active;
}

bool exchange_cuts_request(const struct exchange *x)
{
	return x->to_server.len > 0 || (x->client == CLIENT_BODY && x->server != SERVER_IDLE);
}
