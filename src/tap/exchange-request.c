/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/exchange-inner.h"

static void begin(struct exchange *x)
{
	call_begin(&x->call);
	x->close = x->old = x->websocket = false;
}

/* ---- the head ---- */

/* `body`: the complete body, or NULL. */
static int send_head(struct exchange *x, struct request *q, const struct injection *inj,
		     const struct buf *body, struct refusal *why)
{
	int r = call_credit(&x->call, q, inj, body, x->client_body.done, why);

	if (r < 0)
		return r;
	request_write(&x->to_server, q);
	x->close = q->close;
	x->old = q->old;
	x->websocket = q->websocket;
	x->server = SERVER_HEAD;
	return 0;
}

static void start_body(struct exchange *x, const struct request *q)
{
	static const enum body_kind kinds[] = {
		[FRAMING_NONE] = BODY_NONE,
		[FRAMING_LENGTH] = BODY_LENGTH,
		[FRAMING_CHUNKED] = BODY_CHUNKED,
	};

	x->to_server_kind = kinds[q->framing];
	body_start(&x->client_body, x->to_server_kind, q->length, false);
}

/* The body is needed to sign the request: the client shall send it. */
static void collect(struct exchange *x, struct request *q)
{
	x->client = CLIENT_COLLECT;
	start_body(x, q);
	if (q->expect)
		(void)buf_puts(&x->to_client, "HTTP/1.1 100 Continue\r\n\r\n");
}

static int read_head(struct exchange *x, struct refusal *why)
{
	const struct place place = call_place(&x->call);
	struct injection inj;
	_cleanup_request_ struct request q;
	int r = request_parse(&x->client_head, &place, &q, why);

	call_name(&x->call, &q);
	r = r < 0 ? r : call_admit(&x->call, &q, &inj, why);
	if (r < 0)
		return r;
	if (inj.need_body) {
		collect(x, &q);
		return 0;
	}
	start_body(x, &q);
	x->client = x->client_body.done ? CLIENT_WAIT : CLIENT_BODY;
	r = send_head(x, &q, &inj, NULL, why);
	head_input_reset(&x->client_head);
	return r;
}

/* Parses the head again, which was checked before, and sends it with the body. */
static int send_collected(struct exchange *x, struct refusal *why)
{
	const struct place place = call_place(&x->call);
	struct buf *body = &x->call.collected;
	struct injection inj;
	_cleanup_request_ struct request q;
	int r = request_parse(&x->client_head, &place, &q, why);

	q.expect = false;
	r = r < 0 ? r : call_choose(&x->call, &q, &inj, why);
	r = r < 0 ? r : send_head(x, &q, &inj, body, why);
	if (r < 0)
		return r;
	(void)buf_put(&x->to_server, body->data, body->len);
	buf_done(body);
	head_input_reset(&x->client_head);
	x->client = CLIENT_WAIT;
	return 0;
}

/* Sends the request, if the gateway does not have to ask first. */
static int review(struct exchange *x, struct refusal *why)
{
	int r = call_review(&x->call, why);

	if (r > 0) {
		x->client = CLIENT_ASK;
		return 0;
	}
	return r < 0 ? r : send_collected(x, why);
}

int exchange_resume_request(struct exchange *x)
{
	struct refusal why = { 0 };
	int r = review(x, &why);

	if (r == -EBADMSG)
		exchange_refuse(x, &why);
	return r == -EBADMSG ? 0 : r;
}

/* ---- bytes ---- */

static ssize_t step_head(struct exchange *x, const char *data, size_t n, struct refusal *why)
{
	const char *reason = NULL;
	size_t used;
	int r;

	if (x->client_head.text.len == 0)
		begin(x);
	r = head_feed(&x->client_head, data, n, &used, &reason);
	if (r == -EBADMSG)
		return refuse(why, TAP_BAD_REQUEST, 400, "the request has %s", reason);
	if (r == -E2BIG)
		return refuse(why, TAP_TOO_LARGE, 431,
			      "the head of the request has more than %d bytes or %d fields",
			      EXCHANGE_HEAD_MAX, EXCHANGE_FIELDS_MAX);
	if (r > 0)
		r = read_head(x, why);
	return r < 0 ? r : (ssize_t)used;
}

static ssize_t step_body(struct exchange *x, const char *data, size_t n, struct refusal *why)
{
	const char *piece;
	size_t piece_n;
	ssize_t used = body_feed(&x->client_body, data, n, &piece, &piece_n);
	int r;

	if (used < 0)
		return refuse(why, TAP_BAD_REQUEST, 400, "the request has broken chunks");
	r = call_body(&x->call, piece, piece_n, x->client_body.done, &piece, &piece_n, why);
	if (r < 0)
		return r;
	body_write(&x->to_server, x->to_server_kind, piece, piece_n);
	if (x->client_body.done) {
		body_end(&x->to_server, x->to_server_kind);
		x->client = CLIENT_WAIT;
	}
	return used;
}

static ssize_t step_collect(struct exchange *x, const char *data, size_t n, struct refusal *why)
{
	const char *piece;
	size_t piece_n;
	ssize_t used = body_feed(&x->client_body, data, n, &piece, &piece_n);
	int r;

	if (used < 0)
		return refuse(why, TAP_BAD_REQUEST, 400, "the request has broken chunks");
	r = call_collect(&x->call, piece, piece_n, why);
	if (r == 0 && x->client_body.done)
		r = review(x, why);
	return r < 0 ? r : used;
}

ssize_t exchange_client_step(struct exchange *x, const char *data, size_t n)
{
	struct refusal why = { 0 };
	ssize_t r = 0;

	switch (x->client) {
	case CLIENT_HEAD:
		r = step_head(x, data, n, &why);
		break;
	case CLIENT_COLLECT:
		r = step_collect(x, data, n, &why);
		break;
	case CLIENT_BODY:
		r = step_body(x, data, n, &why);
		break;
	case CLIENT_ASK:
	case CLIENT_WAIT:
		break;
	case CLIENT_RAW:
		x->call.record.bytes_out += n;
		r = buf_put(&x->to_server, data, n) < 0 ? -ENOMEM : (ssize_t)n;
		break;
	}
	if (r != -EBADMSG)
		return r < 0 ? -ENOMEM : r;
	exchange_refuse(x, &why);
	return (ssize_t)n;
}
