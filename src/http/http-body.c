/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request bodies. The loop alone unframes the body, in place in the connection's buffer, piece by
 * piece; http_collect() and http_body() only set how it is used.
 */
#include "base/clock.h"
#include "http/http-inner.h"

void http_body_begin(struct conn *c)
{
	c->use = BODY_HELD;
	c->left = c->head.length > 0 ? (uint64_t)c->head.length : 0;
	c->body_done = c->head.length == 0;
}

void http_body_reset(struct conn *c)
{
	buf_done(&c->body);
	c->use = BODY_HELD;
	c->paused = c->body_done = false;
	c->chunk = (struct http_chunk){ 0 };
	c->left = c->dropped = 0;
	c->collected = NULL;
	c->body_ops = (struct http_body){ 0 };
}

/* Returns whether more of the body should be read from the socket. */
bool http_body_wanted(const struct conn *c)
{
	if (c->body_done || c->fault.status > 0)
		return false;
	return c->use == BODY_COLLECT || c->use == BODY_DROP || (c->use == BODY_PASS && !c->paused);
}

static void fault(struct conn *c, int status, const char *why)
{
	if (c->fault.status == 0)
		c->fault = (struct http_refusal){ status, why };
}

static void take(struct conn *c, const char *data, size_t n)
{
	if (c->use == BODY_PASS) {
		c->body_ops.data(&c->x, data, n);
	} else if (c->use == BODY_DROP) {
		c->dropped += n;
	} else if (buf_put(&c->body, data, n) < 0) {
		if (c->body.err == -ENOBUFS)
			fault(c, 413, "the body of the request is too long");
		else
			fault(c, 503, "no memory for the body of the request");
	}
}

/* Unframes one piece of input. The handler's data() may call anything that does not move `in`. */
static void unframe(struct conn *c)
{
	const char *piece = c->in.data;
	size_t n = (size_t)MIN((uint64_t)c->in.len, c->left), used = n;

	if (c->head.length < 0) {
		used = http_chunk_feed(&c->chunk, c->in.data, c->in.len, &piece, &n);
		c->dropped += c->use == BODY_DROP ? used - n : 0;
		c->body_done = c->chunk.state == HTTP_CHUNK_DONE;
		if (c->chunk.state == HTTP_CHUNK_BAD)
			fault(c, 400, "the chunks of the body are broken");
	} else {
		c->left -= n;
		c->body_done = c->left == 0;
	}
	if (n > 0)
		take(c, piece, n);
	buf_consume(&c->in, used);
	if (c->in.len == 0)
		buf_done(&c->in);
}

static void finish(struct conn *c)
{
	_cleanup_buf_ struct buf body = c->body;
	enum body_use use = c->use;

	c->body = (struct buf)BUF_INIT(0);
	c->use = BODY_DROP;
	if (use == BODY_COLLECT)
		c->collected(&c->x, buf_text(&body), body.len);
	else
		c->body_ops.end(&c->x);
}

bool http_body_step(struct conn *c)
{
	if (c->fault.status > 0)
		return false;
	if (http_body_wanted(c) && c->in.len > 0) {
		unframe(c);
		return true;
	}
	if (!c->held || !c->body_done || c->paused ||
	    (c->use != BODY_COLLECT && c->use != BODY_PASS))
		return false;
	finish(c);
	return true;
}

/* Sends 100 Continue if the client waits for it. */
static void ask(struct conn *c, enum body_use use)
{
	static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";

	assert(c->held && c->phase == CONN_EXCHANGE && c->use == BODY_HELD);
	c->use = use;
	c->asked_at = c->read_at = clock_mono();
	if (c->head.expect && c->in.len == 0 && c->answer == ANSWER_NONE && c->fault.status == 0)
		http_io_send_text(c, interim, sizeof(interim) - 1);
	c->head.expect = false;
	http_conn_kick(c);
}

void http_collect(struct exchange *x, size_t max,
		  void (*collected)(struct exchange *x, const char *data, size_t n))
{
	struct conn *c = http_conn_of(x);

	c->collected = collected;
	c->body = (struct buf)BUF_INIT(max);
	if (c->head.length > 0 && (uint64_t)c->head.length > max)
		fault(c, 413, "the body of the request is too long");
	ask(c, BODY_COLLECT);
}

void http_body(struct exchange *x, const struct http_body *ops)
{
	struct conn *c = http_conn_of(x);

	c->body_ops = *ops;
	ask(c, BODY_PASS);
}

void http_body_pause(struct exchange *x, bool pause)
{
	struct conn *c = http_conn_of(x);

	if (c->paused == pause)
		return;
	c->paused = pause;
	c->read_at = clock_mono();
	if (!pause)
		http_conn_kick(c);
}

/* ---- the head ---- */

const char *http_field(const struct exchange *x, const char *name)
{
	return http_head_field(&http_conn_of(x)->head, name);
}

bool http_field_at(const struct exchange *x, size_t i, const char **ret_name,
		   const char **ret_value)
{
	const struct http_head *h = &http_conn_of(x)->head;

	if (i >= h->n_fields)
		return false;
	*ret_name = h->fields[i].name;
	*ret_value = h->fields[i].value;
	return true;
}
