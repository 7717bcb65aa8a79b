/* SPDX-License-Identifier: Apache-2.0 */
/*
 * StreamInput: a stream of client messages. The first names the command, each other has input for
 * it. One message is sent at a time, and the body is not read while it waits. So a command that
 * does not read blocks its client, and the order is kept.
 */
#include <string.h>

#include "envd/process.h"

enum {
	MESSAGE_MAX_BYTES = HTTP_SERVER_JSON_MAX,
	BODY_MAX = MESSAGE_MAX_BYTES + 1024 * 1024, /* plus bytes received with it */
};

struct feed {
	struct errand errand;
	struct buf in;
	json_t *first; /* holds the selector's text */
	struct selector selector;
	bool busy;    /* the errand is being sent */
	bool parsing; /* parse() is running */
	bool ended;
	bool dropped; /* dropped during parse(), which frees it */
};

static void parse(struct feed *f);

static void feed_free(struct feed *f)
{
	errand_cancel(&f->errand);
	free(f->errand.data);
	json_decref(f->first);
	buf_done(&f->in);
	free(f);
}

static void on_drop(struct request *r)
{
	struct feed *f = r->data;

	f->dropped = true;
	if (!f->parsing)
		feed_free(f);
}

static void on_sent(struct errand *e)
{
	struct feed *f = (struct feed *)e;

	free(e->data);
	e->data = NULL;
	f->busy = false;
	if (f->parsing)
		return;
	http_body_pause(e->r->x, false);
	parse(f);
}

/* ---- one message ---- */

static int take_start(struct feed *f, json_t *message, struct err *e)
{
	const json_t *start = NULL;

	if (member_object(message, "start", &start, e) < 0)
		return e->num;
	if (!start)
		return err_set(e, -EINVAL, "the first message has to have 'start'");
	f->first = json_incref(message);
	return selector_read(start, &f->selector, e);
}

/* 1: there is something to send. */
static int take_data(struct feed *f, const json_t *message, struct err *e)
{
	const json_t *data = NULL;
	struct errand *errand = &f->errand;

	if (member_object(message, "data", &data, e) < 0)
		return e->num;
	if (!data && member(message, "keepalive"))
		return 0;
	if (!data)
		return err_set(e, -EINVAL, "a message has neither 'data' nor 'keepalive'");
	*errand = (struct errand){ .r = errand->r, .done = on_sent };
	return input_read(data, errand, e) < 0 ? e->num : 1;
}

static int take_message(struct feed *f, const char *text, size_t n, struct err *e)
{
	_cleanup_json_ json_t *message = NULL;

	if (json_read(text, n, &message, e) < 0)
		return e->num;
	return f->first ? take_data(f, message, e) : take_start(f, message, e);
}

/* Reads the next envelope: 1 if it has something to send, 0 if not; -EAGAIN: incomplete. */
static int next(struct feed *f, struct err *e)
{
	struct reader in = reader_of(f->in.data, f->in.len);
	uint64_t flags = reader_be(&in, 1), length = reader_be(&in, RPC_HEADER - 1);
	int r;

	if (in.err)
		return -EAGAIN;
	if (flags != 0 || length > MESSAGE_MAX_BYTES)
		return err_set(e, -EINVAL, "an envelope has flags, or is longer than %d bytes",
			       MESSAGE_MAX_BYTES);
	if (length > reader_left(&in))
		return -EAGAIN;
	r = take_message(f, f->in.data + RPC_HEADER, (size_t)length, e);
	buf_consume(&f->in, RPC_HEADER + (size_t)length);
	return r;
}

/* ---- the body ---- */

static void finish(struct feed *f)
{
	struct request *r = f->errand.r;

	if (f->in.len > 0)
		rpc_fail(r, RPC_INVALID_ARGUMENT, "the body ends inside an envelope");
	else
		rpc_answer(r, json_object());
}

/* May end the request. */
static void parse(struct feed *f)
{
	struct request *r = f->errand.r;
	struct err e = ERR_INIT;
	int k = 0;

	f->parsing = true;
	while (!f->dropped && !f->busy && (k = next(f, &e)) >= 0)
		if (k > 0) {
			f->busy = true;
			errand_send(&f->errand, &f->selector);
		}
	f->parsing = false;
	if (f->dropped)
		feed_free(f);
	else if (k < 0 && k != -EAGAIN)
		rpc_fail(r, RPC_INVALID_ARGUMENT, "%s", e.msg);
	else if (f->busy)
		http_body_pause(r->x, true);
	else if (f->ended)
		finish(f);
}

static void on_data(struct exchange *x, const char *data, size_t n)
{
	struct request *r = x->cookie;
	struct feed *f = r->data;

	if (buf_put(&f->in, data, n) < 0)
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "the input comes faster than it can be sent");
	else if (!f->busy)
		parse(f);
}

static void on_end(struct exchange *x)
{
	struct feed *f = ((struct request *)x->cookie)->data;

	f->ended = true;
	if (!f->busy)
		parse(f);
}

void process_stream_input(struct request *r)
{
	static const struct http_body body = { .data = on_data, .end = on_end };
	struct feed *f;

	if (!rpc_begin_stream(r))
		return;
	f = calloc(1, sizeof(*f));
	if (!f) {
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	*f = (struct feed){ .errand = { .r = r, .done = on_sent }, .in = BUF_INIT(BODY_MAX) };
	r->data = f;
	r->drop = on_drop;
	http_body(r->x, &body);
}
