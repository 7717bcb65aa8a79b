/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/h2-inner.h"

#include <string.h>

enum {
	PIPE_MAX = 40 * 1024 * 1024, /* far above a window and a body that was collected */
	PIPE_MOVE = 64 * 1024,
};

/* ---- pipes ---- */

static size_t waiting(const struct h2_pipe *p)
{
	return p->data.len - p->at;
}

static int pipe_put(struct h2_pipe *p, const char *data, size_t n)
{
	if (p->at >= PIPE_MOVE) {
		buf_consume(&p->data, p->at);
		p->at = 0;
	}
	return buf_put(&p->data, data, n) < 0 ? -ENOMEM : 0;
}

static ssize_t pipe_take(struct h2_pipe *p, uint8_t *data, size_t n, uint32_t *flags)
{
	n = MIN(n, waiting(p));
	if (n == 0 && !p->ended)
		return NGHTTP2_ERR_DEFERRED;
	if (n > 0)
		memcpy(data, p->data.data + p->at, n);
	p->at += n;
	if (waiting(p) == 0) {
		buf_done(&p->data);
		p->at = 0;
		if (p->ended)
			*flags |= NGHTTP2_DATA_FLAG_EOF;
	}
	return (ssize_t)n;
}

static void pipe_drop(struct h2_pipe *p)
{
	buf_done(&p->data);
	p->at = 0;
}

/* Bytes that do not wait any more: their sender may send as many again. */
static void give_back(struct h2_pipe *p, nghttp2_session *sender, int32_t id)
{
	const size_t n = p->owed > waiting(p) ? p->owed - waiting(p) : 0;

	if (n == 0)
		return;
	p->owed -= n;
	(void)nghttp2_session_consume(sender, id, n);
}

void h2_stream_return_window(struct h2_stream *s)
{
	give_back(&s->to_server, s->h2->in, s->client_id);
	give_back(&s->to_client, s->h2->out, s->server_id);
}

/* ---- life ---- */

struct h2_stream *h2_stream_new(struct h2 *h, int32_t client_id)
{
	struct h2_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->h2 = h;
	s->client_id = client_id;
	call_init(&s->call, h->conf);
	h2_head_init(&s->request);
	h2_head_init(&s->response);
	s->head = s->trailers = (struct head_input)HEAD_INPUT_INIT;
	s->to_server.data = s->to_client.data = (struct buf)BUF_INIT(PIPE_MAX);
	s->next = h->streams;
	if (s->next)
		s->next->prev = s;
	h->streams = s;
	h->n_streams++;
	if (h->conf->n_requests)
		++*h->conf->n_requests;
	call_begin(&s->call);
	s->call.mask = mask_branch(h->mask);
	if (s->call.mask)
		return s;
	h2_stream_free(s);
	return NULL;
}

void h2_stream_free(struct h2_stream *s)
{
	struct h2 *h = s->h2;

	pipe_drop(&s->to_server);
	pipe_drop(&s->to_client);
	h2_stream_return_window(s);
	*(s->prev ? &s->prev->next : &h->streams) = s->next;
	if (s->next)
		s->next->prev = s->prev;
	h->n_streams--;
	h->n_requests -= s->has_head;
	if (h->conf->n_requests)
		--*h->conf->n_requests;
	call_done(&s->call);
	h2_head_done(&s->request);
	h2_head_done(&s->response);
	head_input_reset(&s->head);
	head_input_reset(&s->trailers);
	free(s);
}

void h2_stream_settle(struct h2_stream *s)
{
	if (s->client_closed && (s->server_id == 0 || s->server_closed))
		h2_stream_free(s);
}

/* ---- to the server ---- */

static ssize_t read_request(nghttp2_session *session, int32_t id, uint8_t *data, size_t n,
			    uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct h2_stream *s = source->ptr;
	ssize_t k = pipe_take(&s->to_server, data, n, flags);

	h2_stream_return_window(s);
	return k;
}

int h2_stream_submit(struct h2_stream *s, const struct h2_fields *f, bool has_body)
{
	const nghttp2_data_provider body = { { .ptr = s }, read_request };
	int32_t id =
		nghttp2_submit_request(s->h2->out, NULL, f->nv, f->n, has_body ? &body : NULL, s);

	if (id == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE) {
		h2_close(s->h2);
		h2_stream_reset(s, NGHTTP2_REFUSED_STREAM, TAP_SERVER_CLOSED,
				"the connection to the server is used up");
		return 0;
	}
	if (id < 0)
		return -ENOMEM;
	s->server_id = id;
	return 0;
}

int h2_stream_to_server(struct h2_stream *s, const char *data, size_t n)
{
	if (n == 0)
		return 0;
	if (pipe_put(&s->to_server, data, n) < 0)
		return -ENOMEM;
	(void)nghttp2_session_resume_data(s->h2->out, s->server_id);
	return 0;
}

void h2_stream_end_request(struct h2_stream *s)
{
	s->to_server.ended = true;
	(void)nghttp2_session_resume_data(s->h2->out, s->server_id);
}

void h2_stream_cut(struct h2_stream *s)
{
	pipe_drop(&s->to_server);
	/* Only once: if the request is still queued, libnghttp2 cancels it the first time, and
	 * would send the second RST_STREAM, for a stream that the server does not know. */
	if (s->server_id != 0 && !s->server_closed && !s->is_cut)
		(void)nghttp2_submit_rst_stream(s->h2->out, NGHTTP2_FLAG_NONE, s->server_id,
						NGHTTP2_CANCEL);
	s->is_cut = true;
	h2_stream_return_window(s);
}

/* ---- to the client ---- */

static int send_trailers(struct h2_stream *s)
{
	_cleanup_h2_fields_ struct h2_fields f = { 0 };
	int r = h2_write_trailers(&s->trailers, s->call.mask, &f);

	head_input_reset(&s->trailers);
	if (r < 0)
		return r;
	return nghttp2_submit_trailer(s->h2->in, s->client_id, f.nv, f.n) == 0 ? 0 : -ENOMEM;
}

static ssize_t read_response(nghttp2_session *session, int32_t id, uint8_t *data, size_t n,
			     uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct h2_stream *s = source->ptr;
	ssize_t k = pipe_take(&s->to_client, data, n, flags);

	h2_stream_return_window(s);
	if (k >= 0 && (*flags & NGHTTP2_DATA_FLAG_EOF) && s->trailers.text.len > 0) {
		*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
		if (send_trailers(s) < 0)
			return NGHTTP2_ERR_CALLBACK_FAILURE;
	}
	return k;
}

int h2_stream_respond(struct h2_stream *s, const struct h2_fields *f, bool has_body)
{
	const nghttp2_data_provider body = { { .ptr = s }, read_response };

	if (s->client_closed)
		return 0;
	return nghttp2_submit_response(s->h2->in, s->client_id, f->nv, f->n,
				       has_body ? &body : NULL) == 0
		       ? 0
		       : -ENOMEM;
}

int h2_stream_to_client(struct h2_stream *s, const char *data, size_t n)
{
	if (n == 0)
		return 0;
	if (pipe_put(&s->to_client, data, n) < 0)
		return -ENOMEM;
	(void)nghttp2_session_resume_data(s->h2->in, s->client_id);
	return 0;
}

void h2_stream_end_response(struct h2_stream *s)
{
	s->to_client.ended = true;
	(void)nghttp2_session_resume_data(s->h2->in, s->client_id);
}

static int answer(struct h2_stream *s, const struct answer *a)
{
	_cleanup_h2_fields_ struct h2_fields f = { 0 };
	int r = h2_write_answer(a, &f);

	r = r < 0 ? r : h2_stream_respond(s, &f, a->has_body);
	if (r < 0 || !a->has_body)
		return r;
	r = h2_stream_to_client(s, a->body, a->length);
	h2_stream_end_response(s);
	return r;
}

static void reset_client(struct h2_stream *s, uint32_t code)
{
	pipe_drop(&s->to_client);
	h2_stream_return_window(s);
	if (!s->client_closed)
		(void)nghttp2_submit_rst_stream(s->h2->in, NGHTTP2_FLAG_NONE, s->client_id, code);
}

int h2_stream_refuse(struct h2_stream *s, const struct refusal *why)
{
	struct answer a;

	if (s->refused)
		return 0;
	s->refused = true;
	h2_stream_cut(s);
	if (call_refuse(&s->call, why, &a))
		return answer(s, &a);
	reset_client(s, NGHTTP2_INTERNAL_ERROR);
	return 0;
}

void h2_stream_reset(struct h2_stream *s, uint32_t code, enum tap_result result, const char *text)
{
	s->refused = true;
	h2_stream_cut(s);
	call_report(&s->call, result, text);
	reset_client(s, code);
}
