/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/exchange-inner.h"

static int switch_protocols(struct exchange *x, struct response *r, struct refusal *why)
{
	if (!x->websocket || !r->websocket || x->client != CLIENT_WAIT)
		return call_bad_response(why, "an upgrade that was not requested");
	x->to_client_kind = BODY_NONE;
	response_write(&x->to_client, r, BODY_NONE, false, x->call.mask);
	if (call_response(&x->call, r) < 0)
		return -ENOMEM;
	x->call.record.upgraded = true;
	x->server = SERVER_RAW;
	x->client = CLIENT_RAW;
	return 0;
}

/* 100 (Continue), 103 (Early Hints), ... */
static int interim(struct exchange *x, struct response *r, struct refusal *why)
{
	if (r->status == STATUS_SWITCHING)
		return switch_protocols(x, r, why);
	if (call_interim(&x->call, why) < 0)
		return -EBADMSG;
	if (!x->old)
		response_write(&x->to_client, r, BODY_NONE, false, x->call.mask);
	return 0;
}

static int final(struct exchange *x, struct response *r)
{
	enum body_kind kind = r->kind;

	/* A client of HTTP/1.0 does not know chunks. */
	if (kind == BODY_CHUNKED && x->old)
		kind = BODY_UNTIL_CLOSE;
	x->close |= r->close || kind == BODY_UNTIL_CLOSE || x->client != CLIENT_WAIT;
	x->to_client_kind = kind;
	if (call_response(&x->call, r) < 0)
		return -ENOMEM;
	response_write(&x->to_client, r, kind, x->close, x->call.mask);
	body_start(&x->server_body, r->kind, r->length, true);
	x->server = SERVER_BODY;
	if (x->server_body.done)
		exchange_complete(x);
	return 0;
}

static int read_head(struct exchange *x, struct refusal *why)
{
	const char *reason = NULL;
	struct response r;
	int ret = response_parse(&x->server_head, x->call.record.method, &r, &reason);

	if (ret < 0)
		ret = call_bad_response(why, reason);
	else if (r.status < STATUS_FINAL)
		ret = interim(x, &r, why);
	else
		ret = final(x, &r);
	head_input_reset(&x->server_head);
	return ret;
}

static ssize_t step_head(struct exchange *x, const char *data, size_t n, struct refusal *why)
{
	const char *reason = NULL;
	size_t used;
	int r = head_feed(&x->server_head, data, n, &used, &reason);

	if (r == -EBADMSG)
		return call_bad_response(why, reason);
	if (r == -E2BIG)
		return call_bad_response(why, "a head that is too long");
	if (r > 0)
		r = read_head(x, why);
	return r < 0 ? r : (ssize_t)used;
}

/* Passes on bytes of a body or stream, masked. */
static int pass(struct exchange *x, const char *data, size_t n)
{
	const char *masked;
	size_t masked_n;

	if (call_pass(&x->call, data, n, &masked, &masked_n) < 0)
		return -ENOMEM;
	body_write(&x->to_client, x->to_client_kind, masked, masked_n);
	return 0;
}

/* The gateway has ended the response, and the server would continue it. */
static int end_cut(struct exchange *x)
{
	int r = exchange_flush_mask(x);

	if (x->to_client_kind != BODY_LENGTH)
		body_end(&x->to_client, x->to_client_kind);
	call_report_cut(&x->call);
	x->over = true;
	return r;
}

static ssize_t step_body(struct exchange *x, const char *data, size_t n, struct refusal *why)
{
	const char *piece;
	size_t piece_n;
	ssize_t used = body_feed(&x->server_body, data, n, &piece, &piece_n);

	if (used < 0)
		return call_bad_response(why, "broken chunks");
	if (pass(x, piece, piece_n) < 0)
		return -ENOMEM;
	if (call_is_cut(&x->call))
		return end_cut(x) < 0 ? -ENOMEM : (ssize_t)n;
	if (!x->server_body.done)
		return used;
	if (exchange_flush_mask(x) < 0)
		return -ENOMEM;
	body_end(&x->to_client, x->to_client_kind);
	exchange_complete(x);
	return used;
}

ssize_t exchange_server_step(struct exchange *x, const char *data, size_t n)
{
	struct refusal why = { 0 };
	ssize_t r = 0;

	switch (x->server) {
	case SERVER_IDLE:
		/* Never taken for the response to a later request. */
		r = call_bad_response(&why, "bytes that no request asked for");
		break;
	case SERVER_HEAD:
		r = step_head(x, data, n, &why);
		break;
	case SERVER_BODY:
		r = step_body(x, data, n, &why);
		break;
	case SERVER_RAW:
		r = pass(x, data, n) < 0 ? -ENOMEM : (ssize_t)n;
		break;
	}
	if (r != -EBADMSG)
		return r < 0 ? -ENOMEM : r;
	exchange_refuse(x, &why);
	return (ssize_t)n;
}
