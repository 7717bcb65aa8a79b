/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ports of a sandbox. hutchd writes each request anew for the program, and parses the answer and
 * writes it anew for the client (port-answer.h). The connection to the program serves one request;
 * the client's connection can be reused, because hutchd knows where the answer ends.
 *
 * If an upgrade request (WebSocket) is answered with 101, both connections become one pair of
 * streams, until either ends.
 */
#include "envd/ports.h"

#include <sodium.h>
#include <string.h>
#include <strings.h>

#include "api/box.h"
#include "api/route.h"
#include "envd/port-answer.h"
#include "http-lex/http-chunk.h"

enum {
	HEAD_MAX = 64 * 1024,
	AHEAD_MAX = 256 * 1024, /* request bytes not taken by the program, before reading stops */
	INTERIM_MAX = 16,	/* 1xx answers before the final one */
};

enum stage {
	STAGE_HEAD, /* reading the answer's head */
	STAGE_BODY,
	STAGE_STREAM, /* after 101 */
};

struct port {
	struct request *request;
	struct call *call;
	unsigned int number;
	enum stage stage;
	bool accepted;	 /* the program has accepted the connection */
	bool upgrade;	 /* requested by the client */
	bool chunked;	 /* the request's body */
	bool body_ended; /* the whole request is in `out` */
	bool eof_sent;
	struct buf out;	       /* to the program */
	struct buf head;       /* the answer's, so far */
	struct http_scan scan; /* for `head` */
	struct port_answer answer;
	struct http_chunk chunk;
	uint64_t left;	      /* rest of an answer with a length */
	unsigned int interim; /* 1xx answers so far */
	size_t held;	      /* bytes without credit for the program yet */
};

/* ---- to the program ---- */

/* Fields about the connection, and credentials of ours, which programs must not see. */
static const char *const not_passed_on[] = {
	"connection", "keep-alive",	   "proxy-connection", "te",
	"trailer",    "transfer-encoding", "content-length",   "upgrade",
	"expect",     "x-access-token",	   "x-api-key",	       "proxy-authorization",
};

/* Authorization is for the program, unless it is one of our keys. */
static bool is_our_key(const char *name, const char *value)
{
	return strcasecmp(name, "authorization") == 0 && strncasecmp(value, "bearer ", 7) == 0 &&
	       key_text_valid(value + 7, strlen(value + 7));
}

static bool is_passed_on(const char *name, const char *value)
{
	if (strncasecmp(name, "e2b-", 4) == 0 || is_our_key(name, value))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(not_passed_on); i++)
		if (strcasecmp(name, not_passed_on[i]) == 0)
			return false;
	return true;
}

static int put_head(struct port *p)
{
	const struct exchange *x = p->request->x;
	const char *name, *value;
	struct buf *b = &p->out;

	(void)buf_printf(b, "%s %s%s%s HTTP/1.1\r\n", x->method, x->target, x->query[0] ? "?" : "",
			 x->query);
	for (size_t i = 0; http_field_at(x, i, &name, &value); i++)
		if (is_passed_on(name, value))
			(void)buf_printf(b, "%s: %s\r\n", name, value);
	if (p->upgrade)
		(void)buf_printf(b, "Connection: Upgrade\r\nUpgrade: %s\r\n",
				 http_field(x, "upgrade"));
	else
		(void)buf_puts(b, "Connection: close\r\n");
	if (x->length > 0)
		(void)buf_printf(b, "Content-Length: %lld\r\n", (long long)x->length);
	else if (p->chunked)
		(void)buf_puts(b, "Transfer-Encoding: chunked\r\n");
	return buf_puts(b, "\r\n");
}

static void push(struct port *p)
{
	struct exchange *x = p->request->x;
	ssize_t n;

	if (!p->accepted)
		return;
	n = p->out.len > 0 ? peer_send(p->call, 0, p->out.data, p->out.len) : 0;
	if (n > 0)
		buf_consume(&p->out, (size_t)n);
	if (p->out.len == 0 && p->body_ended && !p->eof_sent) {
		p->eof_sent = true;
		if (p->stage == STAGE_STREAM)
			peer_eof(p->call, 0);
	}
	if (!p->body_ended)
		http_body_pause(x, p->out.len >= AHEAD_MAX);
}

static void on_request_data(struct exchange *x, const char *data, size_t n)
{
	struct request *r = x->cookie;
	struct port *p = r->data;

	if (p->chunked)
		(void)buf_printf(&p->out, "%zx\r\n", n);
	(void)buf_put(&p->out, data, n);
	if (p->chunked)
		(void)buf_puts(&p->out, "\r\n");
	if (p->out.err < 0)
		request_fail(r, 503, "out of memory");
	else
		push(p);
}

static void on_request_end(struct exchange *x)
{
	struct request *r = x->cookie;
	struct port *p = r->data;

	if (p->chunked)
		(void)buf_puts(&p->out, "0\r\n\r\n");
	p->body_ended = true;
	push(p);
}

static const struct http_body body_ops = { .data = on_request_data, .end = on_request_end };

/* ---- from the program ---- */

static void give_credit(struct port *p)
{
	size_t n = p->held;

	p->held = 0;
	if (n > 0 && p->call)
		peer_consumed(p->call, 0, n);
}

static void on_room(struct request *r)
{
	give_credit(r->data);
}

static void bad_answer(struct port *p, const char *why)
{
	request_fail(p->request, 502, "port %u: the answer of the program is not HTTP: %s",
		     p->number, why);
}

static void stream_data(struct exchange *x, const char *data, size_t n)
{
	struct request *r = x->cookie;
	struct port *p = r->data;

	if (buf_put(&p->out, data, n) < 0)
		request_cut(r);
	else
		push(p);
}

static void stream_eof(struct exchange *x)
{
	struct request *r = x->cookie;
	struct port *p = r->data;

	p->body_ended = true;
	push(p);
}

static void stream_room(struct exchange *x)
{
	on_room(x->cookie);
}

static const struct http_tunnel tunnel_ops = { .data = stream_data,
					       .eof = stream_eof,
					       .room = stream_room };

/* Writes the head of the 101 answer; all later bytes are passed unchanged. */
static bool switch_over(struct port *p, const char *rest, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(HEAD_MAX);
	struct exchange *x = p->request->x;
	char upgrade[128];

	(void)snprintf(upgrade, sizeof(upgrade), "%s", http_field(x, "upgrade"));
	(void)buf_printf(&b,
			 "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
			 "Upgrade: %s\r\n",
			 upgrade);
	for (size_t i = 0; i < p->answer.n_fields; i++)
		(void)buf_printf(&b, "%s: %s\r\n", p->answer.fields[i].name,
				 p->answer.fields[i].value);
	(void)buf_puts(&b, "\r\n");
	if (buf_put(&b, rest, n) < 0) {
		request_cut(p->request);
		return false;
	}
	p->stage = STAGE_STREAM;
	p->request->begun = true;
	p->body_ended = p->eof_sent = false;
	http_tunnel(x, &tunnel_ops);
	http_write(x, b.data, b.len);
	return true;
}

/* False: the request has ended. */
static bool chunk_data(struct port *p, const char *data, size_t n)
{
	struct request *r = p->request;

	while (n > 0 && p->chunk.state < HTTP_CHUNK_DONE) {
		const char *piece = NULL;
		size_t len = 0, took = http_chunk_feed(&p->chunk, data, n, &piece, &len);

		if (len > 0)
			request_write(r, piece, len);
		data += took;
		n -= took;
	}
	if (p->chunk.state == HTTP_CHUNK_BAD)
		request_cut(r);
	else if (p->chunk.state == HTTP_CHUNK_DONE)
		request_end(r);
	else
		return true;
	return false;
}

static bool body_data(struct port *p, const char *data, size_t n)
{
	struct request *r = p->request;

	if (p->answer.length == -1)
		return chunk_data(p, data, n);
	if (p->answer.length > 0)
		n = (size_t)MIN(p->left, (uint64_t)n);
	request_write(r, data, n);
	p->left -= p->answer.length > 0 ? n : 0;
	if (p->answer.length > 0 && p->left == 0) {
		request_end(r);
		return false;
	}
	return true;
}

/* The first `len` bytes are the head. False: the request has ended. */
static bool begin_body(struct port *p, size_t len)
{
	const struct port_answer *a = &p->answer;
	struct request *r = p->request;
	bool none = a->bodiless || str_eq(r->x->method, "HEAD");

	for (size_t i = 0; i < a->n_fields; i++)
		http_add_field(r->x, a->fields[i].name, a->fields[i].value);
	p->stage = STAGE_BODY;
	r->room = on_room;
	if (none || a->length == 0) {
		request_text(r, a->status, NULL, "", 0);
		return false;
	}
	p->left = a->length > 0 ? (uint64_t)a->length : 0;
	request_begin(r, a->status, NULL, a->length > 0 ? a->length : -1);
	return p->head.len == len || body_data(p, p->head.data + len, p->head.len - len);
}

/* False: the request has ended. */
static bool head_data(struct port *p, const char *data, size_t n)
{
	const char *why = NULL;
	int len;

	if (buf_put(&p->head, data, n) < 0)
		return bad_answer(p, "its head is too long"), false;
	do {
		len = port_answer_parse(&p->scan, p->head.data, p->head.len, &p->answer, &why);
		if (len < 0)
			return bad_answer(p, why), false;
		if (len == 0)
			return true;
		if (p->answer.status == 101 && p->upgrade)
			return switch_over(p, p->head.data + len, p->head.len - (size_t)len);
		if (p->answer.status >= 200)
			break;
		if (p->answer.status == 101 || ++p->interim > INTERIM_MAX)
			return bad_answer(p, "an unexpected status of 1xx"), false;
		buf_consume(&p->head, (size_t)len); /* 100 Continue etc. */
	} while (p->head.len > 0);
	return p->answer.status < 200 || begin_body(p, (size_t)len);
}

static void on_data(struct call *c, unsigned int stream, const char *data, size_t n, void *arg)
{
	struct port *p = arg;
	struct request *r = p->request;

	if (stream != 0) {
		peer_consumed(c, stream, n);
		return;
	}
	p->held += n;
	switch (p->stage) {
	case STAGE_HEAD:
		if (!head_data(p, data, n))
			return;
		break;
	case STAGE_BODY:
		if (!body_data(p, data, n))
			return;
		break;
	case STAGE_STREAM:
		http_write(r->x, data, n);
	}
	if (p->stage == STAGE_HEAD || !http_full(r->x))
		give_credit(p);
}

/* The program has closed its side. */
static void finish(struct port *p)
{
	struct request *r = p->request;

	if (p->stage == STAGE_STREAM)
		http_tunnel_eof(r->x);
	else if (p->stage == STAGE_BODY && p->answer.length == -2)
		request_end(r);
	else if (p->stage == STAGE_BODY)
		request_cut(r);
	else
		bad_answer(p, "there was none");
}

static void on_eof(struct call *c, unsigned int stream, void *arg)
{
	if (stream == 0)
		finish(arg);
}

static void on_accepted(struct call *c, const struct fields *f, void *arg)
{
	struct port *p = arg;

	p->accepted = true;
	push(p);
}

static void on_credit(struct call *c, unsigned int stream, void *arg)
{
	push(arg);
}

static void on_closed(struct call *c, enum wire_code code, const char *text, void *arg)
{
	struct port *p = arg;
	struct request *r = p->request;

	p->call = NULL;
	if (p->accepted) {
		if (p->stage == STAGE_STREAM)
			request_end(r); /* after the bytes that the client has not read yet */
		else
			finish(p);
	} else if (code == WIRE_NOT_FOUND) {
		request_answer(
			r, 502,
			JSON_OBJECT({ "sandboxId", json_string(r->args[0]) },
				    { "message",
				      json_string("The sandbox is running but port is not open") },
				    { "port", json_integer(p->number) },
				    { "code", json_integer(502) }));
	} else {
		request_fail(r, code == WIRE_TOO_MANY ? 429 : 502, "port %u: %s", p->number,
			     text[0] ? text : wire_code_name(code));
	}
}

static const struct call_ops call_ops = { .accepted = on_accepted,
					  .data = on_data,
					  .eof = on_eof,
					  .credit = on_credit,
					  .closed = on_closed };

static void drop(struct request *r)
{
	struct port *p = r->data;

	if (p->call)
		peer_close(p->call);
	buf_done(&p->out);
	buf_done(&p->head);
	free(p);
}

/* ---- start ---- */

/* Whether the client presents a token of the sandbox, or a key that owns it. */
static bool is_owner(const struct request *r)
{
	struct request asks = *r; /* request_role() sets its owner */
	const char *token = http_field(r->x, "x-access-token");

	if (r->box->traffic[0]) /* route.c has checked the token */
		return true;
	if (token && strlen(token) == BOX_TOKEN &&
	    sodium_memcmp(token, r->box->token, BOX_TOKEN) == 0)
		return true;
	asks.role = request_role(&asks);
	return (asks.role & (ROLE_USER | ROLE_ADMIN)) && box_is_for(asks.box, &asks);
}

static int open_port(struct port *p, struct err *e)
{
	_cleanup_buf_ struct buf fields = BUF_INIT(64);
	struct peer *peer = NULL;
	int r = box_peer(p->request->box, &peer, e);

	if (r < 0)
		return r;
	fields_put_number(&fields, TAG_PORT, p->number);
	if (is_owner(p->request))
		fields_put_flag(&fields, TAG_OWNERS);
	return peer_call(peer, WIRE_OP_PORT, &fields, &call_ops, p, &p->call, e);
}

void ports_handle(struct request *r)
{
	struct port *p;
	struct err e = ERR_INIT;

	p = calloc(1, sizeof(*p));
	if (!p) {
		request_fail(r, 503, "out of memory");
		return;
	}
	*p = (struct port){ .request = r, .number = (unsigned int)r->port };
	p->out = (struct buf)BUF_INIT(HEAD_MAX + AHEAD_MAX + HTTP_SERVER_AHEAD);
	p->head = (struct buf)BUF_INIT(HEAD_MAX);
	p->chunked = r->x->length < 0;
	p->upgrade = http_field(r->x, "upgrade") && r->x->length == 0;
	r->data = p;
	r->drop = drop;
	if (put_head(p) < 0) {
		request_fail(r, 431, "the head of the request is too long");
		return;
	}
	if (open_port(p, &e) < 0) {
		request_fail_err(r, &e);
		return;
	}
	if (r->x->length != 0)
		http_body(r->x, &body_ops);
	else
		p->body_ended = true;
}
