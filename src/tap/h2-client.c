/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the client: requests. */
#include "tap/h2-inner.h"

#include <string.h>

static struct h2_stream *stream_of(nghttp2_session *session, int32_t id)
{
	return id > 0 ? nghttp2_session_get_stream_user_data(session, id) : NULL;
}

/* ---- requests ---- */

/* Sends the head, and `body` if it was collected. */
static int send_head(struct h2_stream *s, struct request *q, const struct injection *inj,
		     const struct buf *body, bool has_body, struct refusal *why)
{
	const struct place place = call_place(&s->call);
	const size_t received = q->head.n;
	_cleanup_h2_fields_ struct h2_fields f = { 0 };
	int r = call_credit(&s->call, q, inj, body, !has_body, why);

	r = r < 0 ? r : h2_write_request(q, &place, received, s->request.te, &f);
	return r < 0 ? r : h2_stream_submit(s, &f, has_body);
}

static int go_on(struct h2_stream *s)
{
	_cleanup_h2_fields_ struct h2_fields f = { 0 };

	if (h2_write_continue(&f) < 0)
		return -ENOMEM;
	return nghttp2_submit_headers(s->h2->in, NGHTTP2_FLAG_NONE, s->client_id, NULL, f.nv, f.n,
				      NULL) < 0
		       ? -ENOMEM
		       : 0;
}

static int read_head(struct h2_stream *s, bool has_body, struct refusal *why)
{
	const struct place place = call_place(&s->call);
	struct injection inj;
	_cleanup_request_ struct request q = { 0 };
	int r = h2_head_request(&s->request, &place, has_body, &s->head, why);

	if (r < 0)
		return r;
	r = request_parse(&s->head, &place, &q, why);
	q.http2 = true;
	call_name(&s->call, &q);
	r = r < 0 ? r : call_admit(&s->call, &q, &inj, why);
	if (r < 0)
		return r;
	if (inj.need_body) {
		s->collects = true;
		return q.expect ? go_on(s) : 0;
	}
	return send_head(s, &q, &inj, NULL, has_body, why);
}

/* Parses the head again, which was checked before, and sends it with the body. */
static int send_collected(struct h2_stream *s, struct refusal *why)
{
	const struct place place = call_place(&s->call);
	struct buf *body = &s->call.collected;
	struct injection inj;
	_cleanup_request_ struct request q;
	int r = request_parse(&s->head, &place, &q, why);

	q.expect = false;
	q.http2 = true;
	r = r < 0 ? r : call_choose(&s->call, &q, &inj, why);
	r = r < 0 ? r : send_head(s, &q, &inj, body, body->len > 0, why);
	r = r < 0 ? r : h2_stream_to_server(s, buf_text(body), body->len);
	buf_done(body);
	return r;
}

/* The result of a step: a refusal answers the request. 0 or -ENOMEM. */
static int settle(struct h2_stream *s, int r, const struct refusal *why)
{
	if (r == -EBADMSG)
		r = h2_stream_refuse(s, why);
	return r < 0 ? -ENOMEM : 0;
}

static int take_head(struct h2_stream *s, bool has_body)
{
	struct refusal why = { 0 };
	int r;

	s->has_head = true;
	s->h2->n_requests++;
	(void)snprintf(s->call.record.method, sizeof(s->call.record.method), "%s",
		       buf_text(&s->request.pseudo[H2_METHOD]));
	r = read_head(s, has_body, &why);
	if (!s->collects)
		head_input_reset(&s->head);
	r = settle(s, r, &why);
	h2_head_done(&s->request);
	return r;
}

static int take_trailers(struct h2_stream *s)
{
	struct refusal why = { 0 };

	if (s->refused || s->server_closed)
		return 0;
	(void)refuse(&why, TAP_BAD_REQUEST, 400,
		     "the request has trailers, which hutch-tap does not check");
	return h2_stream_refuse(s, &why);
}

/*
 * The rest of a request that is answered, perhaps refused, is dropped. A client must stop a long
 * one, but is not reset at once: curl 7.88 then fails and does not show the response.
 */
static void drop_late(struct h2_stream *s, size_t n)
{
	const bool was_long = s->late > H2_LATE_MAX;

	s->late += n;
	if (!was_long && s->late > H2_LATE_MAX)
		(void)nghttp2_submit_rst_stream(s->h2->in, NGHTTP2_FLAG_NONE, s->client_id,
						NGHTTP2_NO_ERROR);
}

static int take_data(struct h2_stream *s, const char *data, size_t n)
{
	struct refusal why = { 0 };
	int r;

	s->to_server.owed += n;
	if (s->is_answered)
		drop_late(s, n);
	if (s->refused || s->server_closed) {
		r = 0;
	} else if (s->collects) {
		r = call_collect(&s->call, data, n, &why);
	} else {
		r = call_body(&s->call, data, n, false, &data, &n, &why);
		r = r < 0 ? r : h2_stream_to_server(s, data, n);
	}
	r = settle(s, r, &why);
	h2_stream_return_window(s);
	return r;
}

/* Sends the collected request, if the gateway does not have to ask first. */
static int review(struct h2_stream *s)
{
	struct refusal why = { 0 };
	int r = call_review(&s->call, &why);

	s->asks = r > 0;
	if (s->asks)
		return 0;
	r = r < 0 ? r : send_collected(s, &why);
	head_input_reset(&s->head);
	if (r == 0)
		h2_stream_end_request(s);
	return settle(s, r, &why);
}

int h2_client_resume(struct h2_stream *s)
{
	return s->server_closed ? 0 : review(s);
}

static int take_end(struct h2_stream *s)
{
	struct refusal why = { 0 };
	const char *data = "";
	size_t n = 0;
	int r = 0;

	if (s->refused || s->server_closed)
		return 0;
	if (s->collects) {
		s->collects = false;
		return review(s);
	} else if (s->server_id != 0) {
		r = call_body(&s->call, "", 0, true, &data, &n, &why);
		r = r < 0 ? r : h2_stream_to_server(s, data, n);
	}
	if (r == 0)
		h2_stream_end_request(s);
	return settle(s, r, &why);
}

/* ---- callbacks ---- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2 *h = arg;
	struct h2_stream *s;

	if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	if (!h2_has_room(h))
		return h2_callback(nghttp2_submit_rst_stream(
			session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM));
	s = h2_stream_new(h, frame->hd.stream_id);
	if (!s)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	(void)nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, s);
	return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags, void *arg)
{
	struct h2_stream *s = stream_of(session, frame->hd.stream_id);

	if (!s || s->has_head)
		return 0;
	return h2_callback(h2_head_add(&s->request,
				       (struct http_text){ (const char *)name, name_n },
				       (struct http_text){ (const char *)value, value_n }));
}

static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
			     const uint8_t *name, size_t name_n, const uint8_t *value,
			     size_t value_n, uint8_t flags, void *arg)
{
	struct h2_stream *s = stream_of(session, frame->hd.stream_id);

	if (s && !s->has_head)
		s->request.bad = "a field whose name or value is not valid";
	return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2_stream *s = stream_of(session, frame->hd.stream_id);
	const bool is_end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
	struct h2 *h = arg;
	int r = 0;

	if (frame->hd.type == NGHTTP2_SETTINGS)
		h->is_greeted = true;
	if (!s || s->client_closed)
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS)
		r = s->has_head ? take_trailers(s) : take_head(s, !is_end);
	if (r == 0 && is_end &&
	    (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA))
		r = take_end(s);
	return h2_callback(r);
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int error,
			    void *arg)
{
	struct h2_stream *s = stream_of(session, frame->hd.stream_id);

	if (s)
		s->why = nghttp2_strerror(error);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
		   size_t n, void *arg)
{
	struct h2_stream *s = stream_of(session, id);

	if (s)
		return h2_callback(take_data(s, (const char *)data, n));
	(void)nghttp2_session_consume(session, id, n);
	return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	const int32_t id = frame->hd.stream_id;
	struct h2_stream *s = stream_of(session, id);

	/* libnghttp2 resets the stream of a request that breaks HTTP/2. */
	if (frame->hd.type == NGHTTP2_RST_STREAM && s && s->call.active && !s->why)
		s->why = nghttp2_http2_strerror(frame->rst_stream.error_code);
	if (s && (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
	    (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		s->is_answered = true;
	return 0;
}

static int on_frame_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int error,
			     void *arg)
{
	struct h2_stream *s = stream_of(session, frame->hd.stream_id);

	if (s && frame->hd.type == NGHTTP2_HEADERS && error == NGHTTP2_ERR_FRAME_SIZE_ERROR)
		h2_stream_reset(s, NGHTTP2_INTERNAL_ERROR, TAP_BAD_RESPONSE,
				"the response of the server has a head that is too long");
	return 0;
}

/* The client gave the request up, or libnghttp2 did for a broken one. */
static void leave(struct h2_stream *s, uint32_t code)
{
	const bool is_broken = s->why || s->request.bad;
	char text[TAP_TEXT_MAX + 1];

	if (is_broken)
		(void)snprintf(text, sizeof(text), "the request breaks HTTP/2: %s",
			       s->why ? s->why : s->request.bad);
	else
		(void)snprintf(text, sizeof(text), "the program reset the stream: %s",
			       nghttp2_http2_strerror(code));
	call_report(&s->call, is_broken ? TAP_BAD_REQUEST : TAP_CLIENT_CLOSED, text);
	if (!h2_note_cut(s->h2))
		(void)nghttp2_session_terminate_session(s->h2->in, NGHTTP2_ENHANCE_YOUR_CALM);
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct h2_stream *s = stream_of(session, id);

	if (!s)
		return 0;
	s->client_closed = true;
	if (s->call.active)
		leave(s, code);
	h2_stream_cut(s);
	h2_stream_settle(s);
	return 0;
}

/* ---- the session ---- */

static nghttp2_session_callbacks *callbacks_new(void)
{
	nghttp2_session_callbacks *c;

	if (nghttp2_session_callbacks_new(&c) < 0)
		return NULL;
	nghttp2_session_callbacks_set_on_begin_headers_callback(c, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(c, on_header);
	nghttp2_session_callbacks_set_on_invalid_header_callback(c, on_invalid_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame_recv);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(c, on_invalid_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, on_data);
	nghttp2_session_callbacks_set_on_frame_send_callback(c, on_frame_send);
	nghttp2_session_callbacks_set_on_frame_not_send_callback(c, on_frame_not_sent);
	nghttp2_session_callbacks_set_on_stream_close_callback(c, on_stream_close);
	return c;
}

int h2_client_session(struct h2 *h)
{
	static const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, H2_STREAMS_MAX },
		{ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_WINDOW },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, EXCHANGE_HEAD_MAX },
		{ NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1 },
	};
	nghttp2_session_callbacks *c = callbacks_new();
	nghttp2_option *o = h2_options();
	int r = c && o ? nghttp2_session_server_new3(&h->in, c, h, o, h2_memory()) : -ENOMEM;

	nghttp2_session_callbacks_del(c);
	nghttp2_option_del(o);
	if (r < 0)
		return -ENOMEM;
	return h2_greet(h->in, settings, ARRAY_SIZE(settings));
}
