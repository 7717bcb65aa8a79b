/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "tap/exchange-inner.h"

enum {
	SHOWN_PATH = 80, /* bytes in a message */
	SHOWN_RULE = 64,
};

static struct place place_of(const struct exchange *x)
{
	return (struct place){ x->conf.host, x->conf.port, x->conf.tls };
}

static void begin(struct exchange *x)
{
	x->record = (struct tap_request){ .rule = -1, .secret = -1 };
	x->active = true;
	x->responded = x->close = x->old = x->websocket = x->opaque = false;
	x->interims = 0;
	x->max_body = 0;
	x->started = clock_mono();
	(void)mask_take_hit(x->mask);
}

/* ---- rules ---- */

static int deny(struct exchange *x, const struct request *q, const struct l7_verdict *v,
		struct refusal *why)
{
	const struct tap_config *c = x->conf.config;
	char rule[SHOWN_RULE], what[SHOWN_PATH + 32];

	(void)snprintf(what, sizeof(what), "%s %.*s%s", q->method, SHOWN_PATH, q->path,
		       strlen(q->path) > SHOWN_PATH ? "..." : "");
	if (v->rule >= 0)
		return refuse(why, TAP_DENIED, 403, "%s is denied by rule %s", what,
			      c->http[v->rule].at);
	if (v->near < 0)
		return refuse(why, TAP_DENIED, 403, "%s is denied: no rule allows it", what);
	return refuse(why, TAP_DENIED, 403, "%s is denied: rule %s allows %s", what,
		      c->http[v->near].at, l7_rule_format(&c->http[v->near], rule, sizeof(rule)));
}

static int too_large(const struct exchange *x, struct refusal *why)
{
	const struct tap_config *c = x->conf.config;
	const int i = x->record.rule;

	return refuse(why, TAP_TOO_LARGE, 413,
		      "the body of the request has more than %llu bytes, the max_body of rule %s",
		      (unsigned long long)x->max_body,
		      i >= 0 && (size_t)i < c->n_http ? c->http[i].at : "");
}

static int check_rules(struct exchange *x, const struct request *q, struct refusal *why)
{
	const struct tap_config *c = x->conf.config;
	const struct l7_request r = { x->conf.host, q->method, request_rule_path(q) };
	const struct l7_rule *rule;
	struct l7_verdict v;

	if (!x->conf.host)
		return 0;
	if ((l7_names(c->http, c->n_http, r.host) || inject_names_paths(c, r.host)) &&
	    request_check_overrides(q, why) < 0)
		return -EBADMSG;
	v = l7_check(c->http, c->n_http, &r);
	x->record.rule = v.rule;
	if (!v.allowed)
		return deny(x, q, &v, why);
	if (v.rule < 0)
		return 0;
	rule = &c->http[v.rule];
	x->max_body = rule->max_body;
	if (x->max_body > 0 && q->length > x->max_body)
		return too_large(x, why);
	if (rule->rate > 0 && !x->conf.may_pass(x->conf.arg, (size_t)v.rule))
		return refuse(why, TAP_RATE, 429, "over the rate of rule %s: %u requests a minute",
			      rule->at, rule->rate);
	return 0;
}

/* ---- sending the head ---- */

/* The server may return the secret, so it is masked from now on. */
static int remember(struct exchange *x, const struct tap_secret *s, struct refusal *why)
{
	int r;

	if (!x->mask)
		x->mask = mask_new(x->conf.probes);
	if (!x->mask)
		return -ENOMEM;
	r = inject_mask(s, x->mask);
	if (r == -ENOSPC)
		return refuse(why, TAP_NO_SECRET, 403,
			      "too many secrets on one connection: open another one");
	return r;
}

/* `body`: the complete body, or NULL. */
static int send_head(struct exchange *x, struct request *q, const struct injection *inj,
		     const struct buf *body, struct refusal *why)
{
	const struct tap_config *c = x->conf.config;
	int r = 0;

	if (body)
		request_finish(q, FRAMING_LENGTH, body->len);
	else
		request_finish(q, q->framing, q->length);
	if (inj->secret >= 0 || x->mask)
		request_forbid_compression(q);
	if (x->conf.tls && x->conf.host)
		r = inject_apply(c, x->conf.host, inj, body, q, why);
	if (r == 0 && inj->secret >= 0) {
		x->record.secret = inj->secret;
		r = remember(x, &c->secrets[inj->secret], why);
	}
	if (r < 0)
		return r;
	if (inj->chunks && !x->client_body.done) {
		x->chunks = aws_chunks_new(&q->chain, inj->trailers);
		if (!x->chunks)
			return -ENOMEM;
	}
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

static void keep_names(struct exchange *x, const struct request *q)
{
	(void)snprintf(x->record.method, sizeof(x->record.method), "%s", q->method);
	(void)snprintf(x->record.path, sizeof(x->record.path), "%.*s", TAP_PATH_MAX, q->path);
}

/* The body is needed to sign the request: the client shall send it. */
static int collect(struct exchange *x, struct request *q, struct refusal *why)
{
	if (q->length > COLLECT_MAX)
		return refuse(why, TAP_TOO_LARGE, 413,
			      "the body of a request to sign has more than %d bytes", COLLECT_MAX);
	x->client = CLIENT_COLLECT;
	start_body(x, q);
	if (q->expect)
		(void)buf_puts(&x->to_client, "HTTP/1.1 100 Continue\r\n\r\n");
	return 0;
}

static int read_head(struct exchange *x, struct refusal *why)
{
	const struct place place = place_of(x);
	struct injection inj = { .secret = -1 };
	_cleanup_request_ struct request q;
	int r = request_parse(&x->client_head, &place, &q, why);

	keep_names(x, &q);
	r = r < 0 ? r : check_rules(x, &q, why);
	if (r == 0 && place.tls && place.host)
		r = inject_choose(x->conf.config, place.host, &q, &inj, why);
	if (r < 0)
		return r;
	if (inj.need_body)
		return collect(x, &q, why);
	start_body(x, &q);
	x->client = x->client_body.done ? CLIENT_WAIT : CLIENT_BODY;
	r = send_head(x, &q, &inj, NULL, why);
	head_input_reset(&x->client_head);
	return r;
}

/* Parses the head again, which was checked before, and sends it with the body. */
static int send_collected(struct exchange *x, struct refusal *why)
{
	const struct place place = place_of(x);
	struct injection inj;
	_cleanup_request_ struct request q;
	int r = request_parse(&x->client_head, &place, &q, why);

	q.expect = false;
	r = r < 0 ? r : inject_choose(x->conf.config, place.host, &q, &inj, why);
	r = r < 0 ? r : send_head(x, &q, &inj, &x->collected, why);
	if (r < 0)
		return r;
	x->record.bytes_out = x->collected.len;
	(void)buf_put(&x->to_server, x->collected.data, x->collected.len);
	buf_done(&x->collected);
	head_input_reset(&x->client_head);
	x->client = CLIENT_WAIT;
	return 0;
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

/* Passes on a piece of a body with signed chunks. */
static int sign_again(struct exchange *x, const char *data, size_t n, struct refusal *why)
{
	_cleanup_buf_ struct buf out = BUF_INIT(4 * AWS_CHUNK_MAX);
	int r = aws_chunks_feed(x->chunks, data, n, &out);

	if (r == -E2BIG)
		return refuse(why, TAP_TOO_LARGE, 413,
			      "the request has a chunk to sign of more than %d bytes",
			      AWS_CHUNK_MAX);
	if (r == -EBADMSG || (r == 0 && x->client_body.done && !aws_chunks_done(x->chunks)))
		return refuse(why, TAP_BAD_REQUEST, 400, "the request has broken signed chunks");
	if (r < 0)
		return r;
	body_write(&x->to_server, x->to_server_kind, buf_text(&out), out.len);
	if (x->client_body.done)
		x->chunks = aws_chunks_free(x->chunks);
	return 0;
}

static ssize_t step_body(struct exchange *x, const char *data, size_t n, struct refusal *why)
{
	const char *piece;
	size_t piece_n;
	ssize_t used = body_feed(&x->client_body, data, n, &piece, &piece_n);
	int r;

	if (used < 0)
		return refuse(why, TAP_BAD_REQUEST, 400, "the request has broken chunks");
	x->record.bytes_out += piece_n;
	if (x->max_body > 0 && x->record.bytes_out > x->max_body)
		return too_large(x, why);
	if (x->chunks) {
		r = sign_again(x, piece, piece_n, why);
		if (r < 0)
			return r;
	} else {
		body_write(&x->to_server, x->to_server_kind, piece, piece_n);
	}
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
	r = buf_put(&x->collected, piece, piece_n);
	if (x->max_body > 0 && x->collected.len > x->max_body)
		return too_large(x, why);
	if (r == -ENOBUFS)
		return refuse(why, TAP_TOO_LARGE, 413,
			      "the body of a request to sign has more than %d bytes", COLLECT_MAX);
	if (r == 0 && x->client_body.done)
		r = send_collected(x, why);
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
	case CLIENT_WAIT:
		break;
	case CLIENT_RAW:
		x->record.bytes_out += n;
		r = buf_put(&x->to_server, data, n) < 0 ? -ENOMEM : (ssize_t)n;
		break;
	}
	if (r != -EBADMSG)
		return r < 0 ? -ENOMEM : r;
	exchange_refuse(x, &why);
	return (ssize_t)n;
}
