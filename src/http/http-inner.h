/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection, internal to this directory.
 *
 *  http-server.c  listeners, the limit of connections
 *  http-conn.c    the life of a connection: its phases, timers, watched events
 *  http-body.c    the body of a request: unframed, collected, passed on, dropped
 *  http-answer.c  the response, and a tunnel's bytes
 *  http-io.c      bytes from and to the socket, plain or TLS
 */
#pragma once

#include <sys/uio.h>

#include "base/buf.h"
#include "http-lex/http-chunk.h"
#include "http/http-head.h"
#include "http/http-server.h"

enum {
	HTTP_READ_HEAD = 4 * 1024, /* bytes per read while only a head is expected */
	HTTP_READ_BODY = 64 * 1024,
	HTTP_READS = 8,			 /* per turn, before other connections run */
	HTTP_OUT_MAX = 64 * 1024 * 1024, /* unsent bytes of a response; cut beyond */
	HTTP_FIELDS_OUT_MAX = 32 * 1024, /* bytes of fields added by a handler */
	/* Closing too early would reset a client that is still sending, before it reads the
	 * response. Its bytes are read and dropped up to these limits. */
	HTTP_LINGER_MS = 5000,
	HTTP_LINGER_MAX = 64 * 1024 * 1024,
};

enum conn_phase {
	CONN_HANDSHAKE, /* of TLS */
	CONN_HEAD,	/* between requests, or in a head */
	CONN_EXCHANGE,	/* a request is being answered */
	CONN_TUNNEL,
	CONN_LINGER, /* sends no more bytes, drops input */
	CONN_DEAD,   /* the descriptor is closed; freed after the current call */
};

enum body_use {
	BODY_HELD, /* not requested yet */
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
	struct exchange x; /* first: a handler's pointer is also the connection */
	struct http_server *server;
	struct conn *prev, *next;   /* all connections of the server */
	struct conn *older, *newer; /* idle connections: without a complete request */
	struct loop_fd src;
	/* Always armed, so that setting it cannot fail: for the deadline, or for "now". */
	struct loop_timer timer;
	struct ssl_st *ssl; /* OpenSSL's SSL; NULL: plain */

	enum conn_phase phase;
	bool idle;     /* in the list of idle connections */
	bool surplus;  /* over the limit: gets 503 */
	bool held;     /* by the handler: called, and response not complete */
	bool broken;   /* cannot be read or written */
	bool eof;      /* the client has finished sending */
	bool hup;      /* epoll reported EPOLLHUP */
	bool rdhup;    /* epoll reported EPOLLRDHUP */
	bool readable; /* as far as known */
	bool tls_wants_out;
	struct http_refusal fault; /* in a request the handler holds; status 0: none */
	uint64_t began;		   /* start of the phase, or first byte of a head */
	uint64_t read_at, sent_at; /* last progress in each direction */
	uint64_t asked_at;	   /* when the body was requested */

	struct buf in;
	struct http_scan scan;
	struct http_head head;

	/* body */
	enum body_use use;
	bool paused;
	bool body_done; /* received completely */
	struct http_chunk chunk;
	uint64_t left; /* bytes left, unless chunked */
	uint64_t dropped;
	struct buf body; /* collected body */
	void (*collected)(struct exchange *x, const char *data, size_t n);
	struct http_body body_ops;

	/* response */
	enum answer_state answer;
	bool keep; /* keep the connection afterwards */
	bool chunked;
	bool bodiless; /* HEAD, 204, 304 */
	bool full;
	bool bad_fields;     /* a field cannot be sent */
	int64_t answer_left; /* -1: length unknown */
	struct buf fields;
	struct buf out;
	size_t sent; /* bytes of `out` already sent */
	void (*room)(struct exchange *x);

	struct http_tunnel tunnel;
	bool tunnel_eof; /* after the waiting bytes are sent */
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
	struct loop_timer again; /* retries accept(2) after running out of descriptors */
	struct conn *conns;
	struct conn *idle_first, *idle_last; /* longest idle first */
	size_t n_conns;
	bool stopping;
};

static inline struct conn *http_conn_of(const struct exchange *x)
{
	return (struct conn *)x;
}

/* http-conn.c. A new connection owns `fd`, also on failure. */
int http_conn_new(struct http_listener *l, int fd, bool surplus);
void http_conn_end(struct conn *c);   /* calls gone() and frees it; not from inside a handler */
void http_conn_kick(struct conn *c);  /* makes the loop continue with it soon */
void http_conn_close(struct conn *c); /* closes the descriptor; the loop frees the rest */

/* http-body.c: returns true if there was progress. */
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
int http_io_handshake(struct conn *c);		   /* 1: done, 0: retry later, -errno */
bool http_io_fill(struct conn *c, size_t at_most); /* true on bytes or end of file */
void http_io_send(struct conn *c, struct iovec *iov, size_t n);
void http_io_send_text(struct conn *c, const char *s, size_t n);
void http_io_flush(struct conn *c);
void http_io_fin(struct conn *c);
static inline size_t http_io_waiting(const struct conn *c)
{
	return c->out.len - c->sent;
}
bool http_io_pending(const struct conn *c); /* buffered bytes that epoll does not report */

/* http-tls.c: like recv(2) and send(2), with -errno; -EAGAIN sets *ret_wants_out. */
struct ssl_st;
int http_tls_open(struct http_tls *t, int *fd, struct ssl_st **ret); /* *fd must outlive it */
void http_tls_close(struct ssl_st *s);
int http_tls_handshake(struct ssl_st *s, bool *ret_wants_out);
ssize_t http_tls_read(struct ssl_st *s, void *data, size_t n, bool *ret_wants_out);
ssize_t http_tls_write(struct ssl_st *s, const void *data, size_t n, bool *ret_wants_out);
void http_tls_fin(struct ssl_st *s);
bool http_tls_pending(const struct ssl_st *s);
