/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 through an exchange: a client and a server of libnghttp2, each with a session of its own.
 * Each records what it receives, by stream.
 */
#pragma once

#include <nghttp2/nghttp2.h>

#include "tap-world.h"
#include "tap/h2.h"

enum {
	H2_SEEN = 700,
	H2_BODY_MAX = 16 * 1024 * 1024,
};

/* One stream as a peer sees it. */
struct h2_seen {
	int32_t id;
	struct buf head; /* "name: value\n" of each field; trailers follow an empty line */
	struct buf body;
	size_t n_heads;
	bool ended, closed;
	uint32_t code;	 /* with which it was closed */
	struct buf sent; /* the body to send */
	size_t at;
	bool more;	      /* the body is not complete */
	const char *trailers; /* value of the field x-sum, or NULL */
};

struct h2_peer {
	nghttp2_session *session;
	struct h2_seen *seen;
	size_t n;
	bool goaway;
	uint32_t goaway_code;
	bool failed; /* libnghttp2 has rejected bytes of hutch-tap: never right */
};

struct h2_world {
	struct world base;
	struct h2_peer client, server;
	bool stopped; /* the client's bytes are no longer taken by hutch-tap */
};

static inline struct h2_seen *seen_of(struct h2_peer *p, int32_t id)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->seen[i].id == id)
			return &p->seen[i];
	assert(p->n < H2_SEEN);
	p->seen[p->n] = (struct h2_seen){ .id = id,
					  .head = BUF_INIT(1024 * 1024),
					  .body = BUF_INIT(H2_BODY_MAX),
					  .sent = BUF_INIT(H2_BODY_MAX) };
	return &p->seen[p->n++];
}

static inline int peer_header(nghttp2_session *session, const nghttp2_frame *frame,
			      const uint8_t *name, size_t name_n, const uint8_t *value,
			      size_t value_n, uint8_t flags, void *arg)
{
	struct h2_seen *s = seen_of(arg, frame->hd.stream_id);

	(void)buf_put(&s->head, name, name_n);
	(void)buf_puts(&s->head, ": ");
	(void)buf_put(&s->head, value, value_n);
	(void)buf_puts(&s->head, "\n");
	return 0;
}

static inline int peer_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2_peer *p = arg;

	if (frame->hd.type == NGHTTP2_GOAWAY) {
		p->goaway = true;
		p->goaway_code = frame->goaway.error_code;
	}
	if (frame->hd.type == NGHTTP2_HEADERS) {
		seen_of(p, frame->hd.stream_id)->n_heads++;
		(void)buf_puts(&seen_of(p, frame->hd.stream_id)->head, "\n");
	}
	if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
	    (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		seen_of(p, frame->hd.stream_id)->ended = true;
	return 0;
}

static inline int peer_invalid(nghttp2_session *session, const nghttp2_frame *frame, int error,
			       void *arg)
{
	struct h2_peer *p = arg;

	p->failed = true;
	return 0;
}

static inline int peer_data(nghttp2_session *session, uint8_t flags, int32_t id,
			    const uint8_t *data, size_t n, void *arg)
{
	assert(buf_put(&seen_of(arg, id)->body, data, n) == 0);
	return 0;
}

static inline int peer_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct h2_seen *s = seen_of(arg, id);

	s->closed = true;
	s->code = code;
	return 0;
}

static inline ssize_t peer_read(nghttp2_session *session, int32_t id, uint8_t *data, size_t n,
				uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct h2_seen *s = seen_of(arg, id);

	n = MIN(n, s->sent.len - s->at);
	if (n == 0 && s->more)
		return NGHTTP2_ERR_DEFERRED;
	if (n > 0)
		memcpy(data, s->sent.data + s->at, n);
	s->at += n;
	if (s->at == s->sent.len && !s->more) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (s->trailers) {
			nghttp2_nv nv = { (uint8_t *)"x-sum", (uint8_t *)s->trailers, 5,
					  strlen(s->trailers), NGHTTP2_NV_FLAG_NONE };

			*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
			assert(nghttp2_submit_trailer(session, id, &nv, 1) == 0);
		}
	}
	return (ssize_t)n;
}

static inline void peer_init(struct h2_peer *p, bool is_server)
{
	nghttp2_session_callbacks *c;
	nghttp2_option *o;

	*p = (struct h2_peer){ .seen = calloc(H2_SEEN, sizeof(*p->seen)) };
	assert(p->seen && nghttp2_session_callbacks_new(&c) == 0 && nghttp2_option_new(&o) == 0);
	/* A test sends wrong messages, too. */
	nghttp2_option_set_no_http_messaging(o, !is_server);
	nghttp2_option_set_max_send_header_block_length(o, 1024 * 1024);
	nghttp2_session_callbacks_set_on_header_callback(c, peer_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(c, peer_frame);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(c, peer_invalid);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, peer_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(c, peer_close);
	if (is_server)
		assert(nghttp2_session_server_new2(&p->session, c, p, o) == 0);
	else
		assert(nghttp2_session_client_new2(&p->session, c, p, o) == 0);
	assert(nghttp2_submit_settings(p->session, NGHTTP2_FLAG_NONE, NULL, 0) == 0);
	nghttp2_session_callbacks_del(c);
	nghttp2_option_del(o);
}

static inline void peer_done(struct h2_peer *p)
{
	nghttp2_session_del(p->session);
	for (size_t i = 0; i < p->n; i++) {
		buf_done(&p->seen[i].head);
		buf_done(&p->seen[i].body);
		buf_done(&p->seen[i].sent);
	}
	free(p->seen);
	*p = (struct h2_peer){ 0 };
}

static inline void h2_world_begin(struct h2_world *w)
{
	peer_done(&w->client);
	peer_done(&w->server);
	peer_init(&w->client, false);
	peer_init(&w->server, true);
	w->stopped = false;
	world_begin(&w->base);
	assert(exchange_use_http2(w->base.x) == 0);
}

static inline void h2_world_done(struct h2_world *w)
{
	peer_done(&w->client);
	peer_done(&w->server);
	world_done(&w->base);
}

/* Frames of a peer to hutch-tap, in pieces. */
static inline bool peer_to_tap(struct h2_world *w, struct h2_peer *p, struct buf *kept)
{
	const bool is_client = p == &w->client;
	const uint8_t *data;
	ssize_t n;
	size_t at = 0;

	while (kept->len < 256 * 1024 && (n = nghttp2_session_mem_send(p->session, &data)) > 0)
		assert(buf_put(kept, data, (size_t)n) == 0);
	while (at < kept->len) {
		size_t piece = world_piece(&w->base, kept->len - at), used;

		assert((is_client ? exchange_from_client : exchange_from_server)(
			       w->base.x, kept->data + at, piece, &used) == 0);
		at += used;
		if (used == 0)
			break;
	}
	buf_consume(kept, at);
	return at > 0;
}

static inline bool tap_to_peer(struct h2_world *w, struct h2_peer *p)
{
	struct buf *b =
		p == &w->client ? exchange_to_client(w->base.x) : exchange_to_server(w->base.x);
	struct buf *all = p == &w->client ? &w->base.to_client : &w->base.to_server;

	if (b->len == 0)
		return false;
	(void)buf_put(all, b->data, b->len);
	if (nghttp2_session_mem_recv(p->session, (const uint8_t *)b->data, b->len) !=
	    (ssize_t)b->len)
		p->failed = true;
	buf_consume(b, b->len);
	return true;
}

/* Moves frames until none is left. */
static inline void h2_talk(struct h2_world *w)
{
	_cleanup_buf_ struct buf from_client = BUF_INIT(64 * 1024 * 1024);
	_cleanup_buf_ struct buf from_server = BUF_INIT(64 * 1024 * 1024);
	bool moved = true;

	while (moved) {
		moved = peer_to_tap(w, &w->client, &from_client);
		moved |= tap_to_peer(w, &w->server);
		moved |= peer_to_tap(w, &w->server, &from_server);
		moved |= tap_to_peer(w, &w->client);
	}
}

static inline size_t fields_of(const char *const *text, nghttp2_nv *nv, size_t max)
{
	size_t n = 0;

	for (; text[2 * n]; n++) {
		assert(n < max);
		nv[n] = (nghttp2_nv){ (uint8_t *)text[2 * n], (uint8_t *)text[2 * n + 1],
				      strlen(text[2 * n]), strlen(text[2 * n + 1]),
				      /* A copy would be in lower case. */
				      NGHTTP2_NV_FLAG_NO_COPY_NAME };
	}
	return n;
}

/* Fields are pairs of texts that outlive the session, ended by NULL. `body` NULL: none. Returns the
 * stream. */
static inline int32_t h2_ask(struct h2_world *w, const char *const *fields, const char *body,
			     size_t n_body, bool more)
{
	const nghttp2_data_provider p = { { .ptr = NULL }, peer_read };
	nghttp2_nv nv[200];
	size_t n = fields_of(fields, nv, ARRAY_SIZE(nv));
	int32_t id = nghttp2_submit_request(w->client.session, NULL, nv, n,
					    body || more ? &p : NULL, NULL);
	struct h2_seen *s;

	assert(id > 0);
	s = seen_of(&w->client, id);
	s->more = more;
	if (body)
		assert(buf_put(&s->sent, body, n_body) == 0);
	return id;
}

static inline void h2_reply(struct h2_world *w, int32_t id, const char *const *fields,
			    const char *body, size_t n_body, bool more)
{
	const nghttp2_data_provider p = { { .ptr = NULL }, peer_read };
	struct h2_seen *s = seen_of(&w->server, id);
	nghttp2_nv nv[200];
	size_t n = fields_of(fields, nv, ARRAY_SIZE(nv));

	s->more = more;
	if (body)
		assert(buf_put(&s->sent, body, n_body) == 0);
	assert(nghttp2_submit_response(w->server.session, id, nv, n, body || more ? &p : NULL) ==
	       0);
}

/* Sends more of a body; `more`: and it continues. */
static inline void h2_send(struct h2_peer *p, int32_t id, const char *data, size_t n, bool more)
{
	struct h2_seen *s = seen_of(p, id);

	assert(n == 0 || buf_put(&s->sent, data, n) == 0);
	s->more = more;
	(void)nghttp2_session_resume_data(p->session, id);
}
