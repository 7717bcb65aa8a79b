/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2, internal to h2*.c.
 *
 *  h2.c           both connections: their bytes and ends
 *  h2-session.c   limits of the sessions
 *  h2-client.c    frames of the client: requests
 *  h2-server.c    frames of the server: responses
 *  h2-stream.c    one request: its two streams and the bytes between them
 *  h2-head.c      heads
 *
 * libnghttp2 speaks the protocol with each side: `in` is the server of the sandbox's connection,
 * `out` the client of the real server's. A request has a stream in each session. Its bytes wait in
 * a pipe for each direction; their flow control window is given back to the sender once they are
 * sent on, so that a pipe never holds much more than a window.
 */
#pragma once

#include "tap/call.h"
#include "tap/h2-head.h"
#include "tap/h2.h"

struct h2_pipe {
	struct buf data;
	size_t at;   /* bytes of `data` that are sent */
	size_t owed; /* bytes received whose window is not given back */
	bool ended;  /* no more bytes follow */
};

struct h2_stream {
	struct h2 *h2;
	struct h2_stream *prev, *next;
	struct call call;
	int32_t client_id, server_id;	   /* server_id 0: the request is not sent */
	bool client_closed, server_closed; /* the stream in the session */
	bool has_head;			   /* the request's is complete */
	bool collects;			   /* the body is needed before the request can be sent */
	bool asks;			   /* it is collected, and the warden has to grant it */
	bool is_cut;			   /* the server's stream is reset */
	bool refused;			   /* the rest of both messages is dropped */
	bool is_repeatable;		   /* the server has not seen the request */
	bool is_answered;		   /* the client has the whole response */
	size_t late;			   /* bytes of the request after that */
	const char *why;		   /* the fault of a side, for a message, or NULL */
	struct h2_head request, response;  /* arriving */
	struct head_input head, trailers;  /* complete; kept while they are needed */
	struct h2_pipe to_server, to_client;
};

struct h2 {
	const struct exchange_conf *conf;
	nghttp2_session *in, *out;
	struct mask *mask; /* its patterns are the secrets sent on this connection */
	struct buf to_server, to_client;
	struct h2_stream *streams;
	size_t n_streams, n_requests; /* those with a complete head */
	bool is_greeted;	      /* the client has sent its preface */
	bool is_closing;	      /* takes no more requests */
	bool is_lost;		      /* the server's connection has ended */
	bool over;
	uint64_t cuts; /* when all abandoned requests so far fit their rate */
};

/* h2-session.c */
nghttp2_option *h2_options(void); /* NULL without memory */
nghttp2_mem *h2_memory(void);
int h2_greet(nghttp2_session *s, const nghttp2_settings_entry *settings, size_t n);
void h2_close(struct h2 *h);	      /* tells the client to open another connection */
bool h2_note_cut(struct h2 *h);	      /* a request was abandoned; false: too many */
bool h2_has_room(const struct h2 *h); /* for another request */

/* h2-client.c, h2-server.c: 0 or -ENOMEM. */
int h2_client_resume(struct h2_stream *s);
int h2_client_session(struct h2 *h);
int h2_server_session(struct h2 *h);

/* h2-stream.c. Those that return int: 0 or -ENOMEM. */
struct h2_stream *h2_stream_new(struct h2 *h, int32_t client_id);
void h2_stream_free(struct h2_stream *s);
void h2_stream_settle(struct h2_stream *s); /* frees it if both of its streams are closed */
int h2_stream_submit(struct h2_stream *s, const struct h2_fields *f, bool has_body);
int h2_stream_respond(struct h2_stream *s, const struct h2_fields *f, bool has_body);
int h2_stream_to_server(struct h2_stream *s, const char *data, size_t n);
int h2_stream_to_client(struct h2_stream *s, const char *data, size_t n);
void h2_stream_end_request(struct h2_stream *s);
void h2_stream_end_response(struct h2_stream *s);
void h2_stream_return_window(struct h2_stream *s);

/* Answers the request, or resets its stream if the response has begun; ends it at the server. */
int h2_stream_refuse(struct h2_stream *s, const struct refusal *why);
/* Reports the request and resets both streams. */
void h2_stream_reset(struct h2_stream *s, uint32_t code, enum tap_result result, const char *text);
/* Ends the request at the server. */
void h2_stream_cut(struct h2_stream *s);

/* The result of a callback, for libnghttp2. */
static inline int h2_callback(int r)
{
	return r < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}
