/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the server: responses. */
#include "tap/h2-inner.h"

static struct h2_stream *stream_of(nghttp2_session *session, int32_t id)
{
	return id > 0 ? nghttp2_session_get_stream_user_data(session, id) : NULL;
}

/* ---- responses ---- */

static int interim(struct h2_stream *s, struct response *r, struct refusal *why)
{
	_cleanup_h2_fields_ struct h2_fields f = { 0 };

	if (call_interim(&s->call, why) < 0)
		return -EBADMSG;
	if (h2_write_response(r, s->call.mask, &f) < 0)
		return -ENOMEM;
	if (s->client_closed)
		return 0;
	return nghttp2_submit_headers(s->h2->in, NGHTTP2_FLAG_NONE, s->client_id, NULL, f.nv, f.n,
				      NULL) < 0
		       ? -ENOMEM
		       : 0;
}

static int final(struct h2_stream *s, struct response *r, bool has_body)
{
	_cleanup_h2_fields_ struct h2_fields f = { 0 };

	if (call_response(&s->call, r) < 0)
		return -ENOMEM;
	if (h2_write_response(r, s->call.mask, &f) < 0)
		return -ENOMEM;
	return h2_stream_respond(s, &f, has_body);
}

static int read_head(struct h2_stream *s, bool has_body, struct refusal *why)
{
	struct head_input text = HEAD_INPUT_INIT;
	const char *reason = NULL;
	struct response response;
	int r = h2_head_response(&s->response, &text, &reason);

	r = r < 0 ? r : response_parse(&text, s->call.record.method, &response, &reason);
	if (r == -EBADMSG)
		r = call_bad_response(why, reason);
	else if (r == 0 && response.status < STATUS_FINAL)
		r = interim(s, &response, why);
	else if (r == 0)
		r = final(s, &response, has_body);
	head_input_reset(&text);
	return r;
}

static int read_trailers(struct h2_stream *s, struct refusal *why)
{
	const char *reason = NULL;
	int r = h2_head_response(&s->response, &s->trailers, &reason);

	return r == -EBADMSG ? call_bad_response(why, reason) : r;
}

static int settle(struct h2_stream *s, int r, const struct refusal *why)
{
	if (r == -EBADMSG)
		r = h2_stream_refuse(s, why);
	return r < 0 ? -ENOMEM : 0;
}

static int take_head(struct h2_stream *s, bool has_body)
{
	struct refusal why = { 0 };
	int r = s->call.responded ? read_trailers(s, &why) : read_head(s, has_body, &why);

	h2_head_done(&s->response);
	return settle(s, r, &why);
}

/* The gateway has ended the response, and the server would continue it. */
static int end_cut(struct h2_stream *s)
{
	const char *data;
	size_t n;

	s->refused = true;
	h2_stream_cut(s);
	if (mask_end(s->call.mask, &data, &n) < 0 || h2_stream_to_client(s, data, n) < 0)
		return -ENOMEM;
	call_report_cut(&s->call);
	h2_stream_end_response(s);
	return 0;
}

static int pass(struct h2_stream *s, const char *data, size_t n)
{
	s->to_client.owed += n;
	if (!s->refused && !s->client_closed)
		if (call_pass(&s->call, data, n, &data, &n) < 0 ||
		    h2_stream_to_client(s, data, n) < 0)
			return -ENOMEM;
	h2_stream_return_window(s);
	return call_is_cut(&s->call) && !s->refused ? end_cut(s) : 0;
}

static int take_end(struct h2_stream *s)
{
	const char *data;
	size_t n;

	if (s->refused || s->client_closed || !s->call.responded)
		return 0;
	if (mask_end(s->call.mask, &data, &n) < 0 || h2_stream_to_client(s, data, n) < 0)
		return -ENOMEM;
	/* For the report. They are masked again when they are sent, perhaps for more secrets. */
	if (s->trailers.text.len > 0)
		mask_text(s->call.mask, s->trailers.text.data, s->trailers.text.len);
	call_complete(&s->call);
	h2_stream_end_response(s);
	return 0;
}

/* ---- callbacks ---- */

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags, void *arg)
{
	struct h2_stream *s = stream_of(session, frame->hd.stream_id);

	if (!s || s->refused)
		return 0;
	return h2_callback(h2_head_add(&s->response,
				       (struct http_text){ (const char *)name, name_n },
				       (struct http_text){ (const char *)value, value_n }));
}

static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
			     const uint8_t *name, size_t name_n, const uint8_t *value,
			     size_t value_n, uint8_t flags, void *arg)
{
	struct h2_stream *s = stream_of(session, frame->hd.stream_id);

	if (s)
		s->response.bad = "a field whose name or value is not valid";
	return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2_stream *s = stream_of(session, frame->hd.stream_id);
	const bool is_end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
	struct h2 *h = arg;
	int r = 0;

	if (frame->hd.type == NGHTTP2_GOAWAY)
		h2_close(h);
	if (!s || s->refused || s->client_closed)
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS)
		r = take_head(s, !is_end);
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
		return h2_callback(pass(s, (const char *)data, n));
	(void)nghttp2_session_consume(session, id, n);
	return 0;
}

static int on_frame_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int error,
			     void *arg)
{
	struct h2_stream *s = stream_of(session, frame->hd.stream_id);

	if (s && frame->hd.type == NGHTTP2_HEADERS) {
		s->why = nghttp2_strerror(error);
		s->is_repeatable = error == NGHTTP2_ERR_START_STREAM_NOT_ALLOWED;
	}
	return 0;
}

/* The response is not complete. The client learns the reason, or the server's code. */
static int lose(struct h2_stream *s, uint32_t code)
{
	struct refusal why;

	if (s->is_repeatable)
		code = NGHTTP2_REFUSED_STREAM;
	if (s->why && !s->is_repeatable) {
		(void)refuse(&why, TAP_BAD_RESPONSE, 502, "the response breaks HTTP/2: %s", s->why);
		return h2_stream_refuse(s, &why);
	}
	(void)refuse(&why, TAP_SERVER_CLOSED, 502, "the server reset the stream: %s",
		     nghttp2_http2_strerror(code));
	h2_stream_reset(s, code == NGHTTP2_NO_ERROR ? NGHTTP2_INTERNAL_ERROR : code, why.result,
			why.text);
	return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct h2_stream *s = stream_of(session, id);
	int r = 0;

	if (!s)
		return 0;
	s->server_closed = true;
	if (s->call.active && !s->refused)
		r = lose(s, code);
	h2_stream_cut(s);
	h2_stream_settle(s);
	return h2_callback(r);
}

/* ---- the session ---- */

static nghttp2_session_callbacks *callbacks_new(void)
{
	nghttp2_session_callbacks *c;

	if (nghttp2_session_callbacks_new(&c) < 0)
		return NULL;
	nghttp2_session_callbacks_set_on_header_callback(c, on_header);
	nghttp2_session_callbacks_set_on_invalid_header_callback(c, on_invalid_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame_recv);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(c, on_invalid_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, on_data);
	nghttp2_session_callbacks_set_on_frame_not_send_callback(c, on_frame_not_sent);
	nghttp2_session_callbacks_set_on_stream_close_callback(c, on_stream_close);
	return c;
}

int h2_server_session(struct h2 *h)
{
	static const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 0 },
		{ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_WINDOW },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, EXCHANGE_HEAD_MAX },
	};
	nghttp2_session_callbacks *c = callbacks_new();
	nghttp2_option *o = h2_options();
	int r = c && o ? nghttp2_session_client_new3(&h->out, c, h, o, h2_memory()) : -ENOMEM;

	nghttp2_session_callbacks_del(c);
	nghttp2_option_del(o);
	if (r < 0)
		return -ENOMEM;
	return h2_greet(h->out, settings, ARRAY_SIZE(settings));
}
