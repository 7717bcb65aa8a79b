/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection, as the files of this directory see it.
 *
 *	http-server.c	listeners, the limit of connections
 *	http-conn.c	the life of a connection: its phases, timers, what is watched
 *	http-body.c	the body of a request: unframed, collected, passed on, dropped
 *	http-answer.c	the answer, and a tunnel's bytes
 *	http-io.c	bytes from and to the socket, plain or TLS
 */
#pragma once

#include <sys/uio.h>

#include "base/buf.h"
#include "http/http-chunk.h"
#include "http/http-head.h"
#include "http/http-server.h"

enum {
	HTTP_READ_HEAD = 4 * 1024, /* read at once while nothing but a head is expected */
	HTTP_READ_BODY = 64 * 1024,
	HTTP_READS = 8,			 /* before others have their turn */
	HTTP_OUT_MAX = 64 * 1024 * 1024, /* of an answer that waits; over that it is cut */
	HTTP_FIELDS_OUT_MAX = 32 * 1024, /* that a handler adds */
	/* A client that still sends its request when the answer comes sees a reset instead of the
	 * answer if the connection is closed too early: what comes is read that long, and dropped.
	 */
	HTTP_LINGER_MS = 5000,
	HTTP_LINGER_MAX = 64 * 1024 * 1024,
};

enum conn_phase {
	CONN_HANDSHAKE, /* of TLS */
	CONN_HEAD,	/* between requests, or in a head */
	CONN_EXCHANGE,	/* a request is answered */
	CONN_TUNNEL,
	CONN_LINGER, /* nothing more is sent; what comes is dropped */
	CONN_DEAD,   /* the descriptor is closed; freed as soon as nobody is in a call */
};

enum body_use {
	BODY_HELD, /* nobody asked for it yet */
	BODY_COLLECT,
	BODY_PASS,
	BODY_DROP,
};

enum answer_state {
	ANSWER_NONE,
	ANSWER_BEGUN,
	ANSWER_DONE,
};

struct conn {
	struct exchange x; /* first: what a handler has is the connection */
	struct http_server *server;
	struct conn *prev, *next;   /* all of the server */
	struct conn *older, *newer; /* those that are idle: no request of theirs is complete */
	struct loop_fd src;
	/* Always armed, so that setting it cannot fail: for the deadline, or for "at once". */
	struct loop_timer timer;
	struct ssl_st *ssl; /* OpenSSL's SSL; NULL: plain */

	enum conn_phase phase;
	bool idle;     /* in the list of those */
	bool surplus;  /* over the limit: gets 503 */
	bool held;     /* by the handler: it was called, and has not answered to the end */
	bool broken;   /* cannot be read or written any more */
	bool eof;      /* the client sends no more */
	bool hup;      /* epoll says that nobody is there */
	bool rdhup;    /* epoll says that the client sends no more */
	bool readable; /* as far as we know */
	bool tls_wants_out;
	struct http_refusal fault; /* of a request that the handler has; status 0: none */
	uint64_t began;		   /* the phase, or the first byte of a head */
	uint64_t read_at, sent_at; /* the last progress each way */
	uint64_t asked_at;	   /* for the body */

	struct buf in;
	struct http_scan scan;
	struct http_head head;

	/* the body */
	enum body_use use;
	bool paused;
	bool body_done; /* all of it came */
	struct http_chunk chunk;
	uint64_t left; /* without chunks */
	uint64_t dropped;
	struct buf body; /* collected */
	void (*collected)(struct exchange *x, const char *data, size_t n);
	struct http_body body_ops;

	/* the answer */
	enum answer_state answer;
	bool keep; /* the connection goes on behind it */
	bool chunked;
	bool bodiless; /* HEAD, 204, 304 */
	bool full;
	bool bad_fields;     /* one that cannot be sent */
	int64_t answer_left; /* -1: not told before */
	struct buf fields;
	struct buf out;
	size_t sent; /* of `out` */
	void (*room)(struct exchange *x);

	struct http_tunnel tunnel;
	bool tunnel_eof; /* after what waits to be sent */
	bool eof_told;
	bool fin_sent;
};

struct http_listener {
	struct http_server *server;
	struct http_listener *next;
	struct loop_fd src;
	struct http_tls *tls;
	unsigned int number;
	bool local;
};

struct http_server {
	struct http_config config;
	struct http_listener *listeners;
	struct loop_timer again; /* when accept(2) is tried again after there was no descriptor */
	struct conn *conns;
	struct conn *idle_first, *idle_last; /* the longest idle first */
	size_t n_conns;
	bool stopping;
};

static inline struct conn *http_conn_of(const struct exchange *x)
{
	return (struct conn *)x;
}

/* http-conn.c. A new connection owns `fd` also when it fails. */
int http_conn_new(struct http_listener *l, int fd, bool surplus);
void http_conn_end(struct conn *c);   /* gone(), and it is freed; not from inside a handler */
void http_conn_kick(struct conn *c);  /* goes on from the loop, soon */
void http_conn_close(struct conn *c); /* the descriptor; the rest when the loop comes round */

/* http-body.c: true if something was done. */
bool http_body_step(struct conn *c);
bool http_body_wanted(const struct conn *c);
void http_body_begin(struct conn *c);
void http_body_reset(struct conn *c);

/* http-answer.c */
void http_answer_reset(struct conn *c);
void http_answer_refusal(struct conn *c, const struct http_refusal *why);

/* http-io.c */
int http_io_open_tls(struct conn *c, struct http_tls *tls);
void http_io_close(struct conn *c);
int http_io_handshake(struct conn *c);		   /* 1: done, 0: later, -errno */
bool http_io_fill(struct conn *c, size_t at_most); /* true if bytes came, or the end of them */
void http_io_send(struct conn *c, struct iovec *iov, size_t n);
void http_io_send_text(struct conn *c, const char *s, size_t n);
void http_io_flush(struct conn *c);
void http_io_fin(struct conn *c);
static inline size_t http_io_waiting(const struct conn *c)
{
	return c->out.len - c->sent;
}
bool http_io_pending(const struct conn *c); /* bytes that epoll does not know of */

/* http-tls.c: like recv(2) and send(2), with -errno; -EAGAIN with *ret_wants_out. */
struct ssl_st;
int http_tls_open(struct http_tls *t, int *fd, struct ssl_st **ret); /* *fd outlives it */
void http_tls_close(struct ssl_st *s);
int http_tls_handshake(struct ssl_st *s, bool *ret_wants_out);
ssize_t http_tls_read(struct ssl_st *s, void *data, size_t n, bool *ret_wants_out);
ssize_t http_tls_write(struct ssl_st *s, const void *data, size_t n, bool *ret_wants_out);
void http_tls_fin(struct ssl_st *s);
bool http_tls_pending(const struct ssl_st *s);
