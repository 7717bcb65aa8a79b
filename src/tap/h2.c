/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/h2-inner.h"

#include <sodium.h>

enum {
	OUT_MAX = 8 * 1024 * 1024, /* far above what one call appends */
	LAST_WORDS_MAX = 1024 * 1024,
};

int h2_new(const struct exchange_conf *c, struct h2 **ret)
{
	struct h2 *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->conf = c;
	h->to_server = h->to_client = (struct buf)BUF_INIT(OUT_MAX);
	h->mask = mask_new(c->probes);
	if (h->mask && h2_client_session(h) == 0 && h2_server_session(h) == 0) {
		*ret = h;
		return 0;
	}
	(void)h2_free(h);
	return -ENOMEM;
}

struct h2 *h2_free(struct h2 *h)
{
	if (!h)
		return NULL;
	while (h->streams)
		h2_stream_free(h->streams);
	nghttp2_session_del(h->in);
	nghttp2_session_del(h->out);
	if (h->to_server.data)
		sodium_memzero(h->to_server.data, h->to_server.cap);
	buf_done(&h->to_server);
	buf_done(&h->to_client);
	h->mask = mask_free(h->mask);
	free(h);
	return NULL;
}

/* ---- ends ---- */

/* Reports all requests, and answers those that can be answered. */
static void end_all(struct h2 *h, enum tap_result result, const char *text)
{
	struct refusal why;
	struct h2_stream *next;

	for (struct h2_stream *s = h->streams; s; s = next) {
		next = s->next;
		if (!s->call.active)
			continue;
		if (call_refusal(result, text, &why) && s->has_head)
			(void)h2_stream_refuse(s, &why);
		else
			h2_stream_reset(s, NGHTTP2_CANCEL, result, text);
	}
}

/* The server's connection has ended. Complete responses are still sent. */
static void lose_server(struct h2 *h, enum tap_result result, const char *text)
{
	struct h2_stream *next;

	if (h->is_lost)
		return;
	h->is_lost = true;
	buf_reset(&h->to_server);
	for (struct h2_stream *s = h->streams; s; s = s->next)
		s->server_closed = true;
	end_all(h, result, text);
	h2_close(h);
	for (struct h2_stream *s = h->streams; s; s = next) {
		next = s->next;
		h2_stream_settle(s);
	}
}

static bool has_ended(nghttp2_session *s)
{
	return !nghttp2_session_want_read(s) && !nghttp2_session_want_write(s);
}

static void check_ends(struct h2 *h)
{
	if (h->over)
		return;
	if (!h->is_lost && has_ended(h->out))
		lose_server(h, TAP_SERVER_CLOSED, "the server ended the connection");
	if (has_ended(h->in)) {
		end_all(h, TAP_BAD_REQUEST, "the program broke HTTP/2");
		h->over = true;
	} else if (h->is_closing && !h->streams && !nghttp2_session_want_write(h->in)) {
		h->over = true;
	}
}

int h2_resume(struct h2 *h)
{
	struct h2_stream *next;
	int r = 0;

	for (struct h2_stream *s = h->streams; s && r == 0; s = next) {
		next = s->next;
		if (s->asks && !s->refused)
			r = h2_client_resume(s);
	}
	return r;
}

/* ---- bytes ---- */

static void fail(struct h2 *h)
{
	end_all(h, TAP_FAULT, "out of memory");
	h->over = true;
}

static bool pump(struct h2 *h, nghttp2_session *s, struct buf *out, size_t max)
{
	bool moved = false;
	const uint8_t *data;

	while (!h->over && out->len < max) {
		ssize_t n = nghttp2_session_mem_send(s, &data);

		if (n == 0)
			break;
		if (n < 0 || buf_put(out, data, (size_t)n) < 0)
			fail(h);
		moved = true;
	}
	return moved;
}

/* Sending in one session opens windows in the other. */
static void pump_both(struct h2 *h)
{
	bool moved = !h->over, was_lost;

	while (moved && !h->over) {
		was_lost = h->is_lost;
		moved = pump(h, h->in, &h->to_client, EXCHANGE_BUFFER);
		if (!h->is_lost)
			moved |= pump(h, h->out, &h->to_server, EXCHANGE_BUFFER);
		check_ends(h);
		moved |= h->is_lost != was_lost;
	}
}

struct buf *h2_to_server(struct h2 *h)
{
	pump_both(h);
	return &h->to_server;
}

struct buf *h2_to_client(struct h2 *h)
{
	pump_both(h);
	return &h->to_client;
}

static void protocol_error(struct h2 *h, nghttp2_session *s, ssize_t r)
{
	char text[TAP_TEXT_MAX + 1];

	(void)snprintf(text, sizeof(text), "the %s broke HTTP/2: %s",
		       s == h->in ? "program" : "server", nghttp2_strerror((int)r));
	if (s == h->out)
		lose_server(h, TAP_BAD_RESPONSE, text);
	else
		h2_abort(h, TAP_BAD_REQUEST, text);
}

static int run(struct h2 *h, nghttp2_session *s, struct buf *out, const char *data, size_t n,
	       size_t *ret_used)
{
	ssize_t r;

	*ret_used = 0;
	if (h->over || (s == h->out && h->is_lost)) {
		*ret_used = n;
		return 0;
	}
	pump_both(h);
	if (out->len >= EXCHANGE_BUFFER)
		return 0;
	n = MIN(n, (size_t)EXCHANGE_BUFFER);
	r = nghttp2_session_mem_recv(s, (const uint8_t *)data, n);
	if (r == NGHTTP2_ERR_CALLBACK_FAILURE || r == NGHTTP2_ERR_NOMEM) {
		fail(h);
		return -ENOMEM;
	}
	if (r < 0)
		protocol_error(h, s, r);
	*ret_used = r < 0 ? n : (size_t)r;
	pump_both(h);
	return 0;
}

int h2_from_client(struct h2 *h, const char *data, size_t n, size_t *ret_used)
{
	return run(h, h->in, &h->to_server, data, n, ret_used);
}

int h2_from_server(struct h2 *h, const char *data, size_t n, size_t *ret_used)
{
	return run(h, h->out, &h->to_client, data, n, ret_used);
}

/* ---- ends of connections ---- */

void h2_abort(struct h2 *h, enum tap_result result, const char *text)
{
	if (h->over)
		return;
	end_all(h, result, text);
	h2_close(h);
	(void)pump(h, h->in, &h->to_client, LAST_WORDS_MAX);
	h->over = true;
}

void h2_client_eof(struct h2 *h)
{
	h2_abort(h, TAP_CLIENT_CLOSED, "the client closed before its response's end");
}

void h2_server_eof(struct h2 *h)
{
	lose_server(h, TAP_SERVER_CLOSED, "the server closed before its response's end");
	pump_both(h);
}

bool h2_over(const struct h2 *h)
{
	return h->over;
}

/* ---- for the caller's timers ---- */

bool h2_is_held(const struct h2 *h)
{
	for (const struct h2_stream *s = h->streams; s; s = s->next)
		if (!h->over && !s->client_closed && mask_holds(s->call.mask))
			return true;
	return false;
}

int h2_release(struct h2 *h)
{
	const char *data;
	size_t n;

	for (struct h2_stream *s = h->streams; s; s = s->next) {
		if (s->client_closed || s->refused || s->to_client.ended)
			continue;
		if (mask_release(s->call.mask, &data, &n) < 0 ||
		    h2_stream_to_client(s, data, n) < 0)
			return -ENOMEM;
	}
	pump_both(h);
	return 0;
}

bool h2_idle(const struct h2 *h)
{
	return !h->over && h->is_greeted && h->n_streams == 0;
}

bool h2_in_request(const struct h2 *h)
{
	return h->n_requests > 0;
}
