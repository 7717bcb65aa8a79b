/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 for hutchd, on our own loop. Strict: what two servers could read in two ways is refused
 * and the connection ends. Heads are parsed and bodies unframed here and nowhere else.
 *
 * An exchange is one request and its answer, and belongs to its connection. It is the handler's
 * from handle() until it has been answered to the end (http_answer(), http_end(), http_cut()) or
 * gone() was called; then it is not touched any more. Nothing here is called from inside a call
 * of the handler's but where it says so: callbacks come from the loop.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/loop.h"

enum {
	HTTP_SERVER_HEAD_MAX = 32 * 1024, /* request line and fields */
	HTTP_SERVER_FIELDS_MAX = 100,
	HTTP_SERVER_TARGET_MAX = 16 * 1024,
	HTTP_SERVER_JSON_MAX = 4 * 1024 * 1024, /* what http_collect() is asked for, at most */
	HTTP_SERVER_AHEAD = 64 * 1024,	/* of an answer: waits to be sent before we say "full" */
	HTTP_SERVER_DRAIN = 256 * 1024, /* of a body nobody wants; with more of it left the
					connection ends with the answer */
};

struct http_server;
struct http_tls;

struct exchange {
	const char *method; /* "GET"; token, at most 24 letters */
	const char *target; /* as it came, without the query: begins with '/' */
	const char *path;   /* decoded once: no NUL or control characters, no "." or ".."
			       component, UTF-8, leading slashes made one */
	const char *query;  /* as it came, "" without one */
	const char *host;   /* of the field Host, with its port; grammar checked. HTTP/1.0
			       may come without one: "" */
	int64_t length;	    /* of the body; -1: chunked, 0: none */
	bool local;	    /* by a Unix socket, from the user `uid` */
	bool tls;
	uid_t uid;
	unsigned int listener; /* which of those that were added */
	void *cookie;	       /* the handler's */
};

struct http_config {
	struct loop *loop;
	void (*handle)(struct exchange *x, void *arg); /* the head is there */
	/* The client has gone, or broke the rules, or a time limit was met, before the answer was
	 * complete. Always the last call for an exchange that was not answered to the end.
	 * A client that closes only its half of the connection counts as gone too, but for a
	 * tunnel: it cannot be told from one that cancels. */
	void (*gone)(struct exchange *x, void *arg);
	void *arg;
	size_t connections; /* at most; over that, the one that is idle longest is closed, and
			       if none is, the new one gets 503 */
	uint64_t head_ms;   /* from the first byte of a head to its end */
	uint64_t idle_ms;   /* between requests */
	uint64_t body_ms;   /* of a request's body or an answer: without any progress of the
			       client's, while we wait for it. What is collected also has to
			       come at 1000 bytes a second */
};

int http_server_new(const struct http_config *config, struct http_server **ret, struct err *e);

/* gone() comes for what goes on. Not from inside a callback of the server's; before the loop. */
struct http_server *http_server_free(struct http_server *s);

/* A listening socket, which becomes the server's, also on failure. `tls` may be NULL and outlives
 * the server. */
int http_server_add(struct http_server *s, int fd, struct http_tls *tls, struct err *e);
size_t http_server_connections(const struct http_server *s);

/* No new connections; those that are idle are closed. What goes on, goes on, up to its answer. */
void http_server_stop(struct http_server *s);

/* Certificate chain and key, both PEM; TLS 1.2 or later, HTTP/1.1 only. Read again by calling it
 * again. */
int http_tls_new(const char *cert, const char *key, struct http_tls **ret, struct err *e);
struct http_tls *http_tls_free(struct http_tls *t);

/* ---- the request ---- */

/* The value of a field, by its lower-case name; NULL: not there. A field that came twice is joined
 * with ", " where its grammar is a list, and else the request was refused already. */
const char *http_field(const struct exchange *x, const char *name);

/* All fields in order, names as they came, those that came twice joined; `i` from 0; false when
 * there is no more. */
bool http_field_at(const struct exchange *x, size_t i, const char **ret_name,
		   const char **ret_value);

/* The first value of a name in the query, decoded ('+' is a space); the caller frees it. 0,
 * -ENOENT, -EINVAL (bad escape, NUL, not UTF-8), -ENOMEM. */
int http_query(const struct exchange *x, const char *name, char **ret);

/* Decodes percent escapes of `n` bytes ('+' too if `form`). -EINVAL, -ENOMEM. */
int http_decode(const char *text, size_t n, bool form, char **ret);

/*
 * The body. Until one of these is called nothing of it is read. collected() gets all of it (`data`
 * has a NUL behind it, valid during the call); if it is longer than `max`, 413 is answered here,
 * and gone() called. With http_body() data() comes as the bytes do, and end() once behind them.
 * A client that waits for 100 Continue gets it now.
 */
void http_collect(struct exchange *x, size_t max,
		  void (*collected)(struct exchange *x, const char *data, size_t n));
struct http_body {
	void (*data)(struct exchange *x, const char *data, size_t n);
	void (*end)(struct exchange *x);
};
void http_body(struct exchange *x, const struct http_body *ops);

/* data() is not called meanwhile. Also for a tunnel. */
void http_body_pause(struct exchange *x, bool pause);

/* ---- the answer ---- */

/* Adds a field to the answer, before it begins. A name or value with control characters, or one of
 * those that frame the answer (Content-Length, Transfer-Encoding, Connection), is our bug and
 * becomes 500; where the answer was to come in pieces, gone() is called then. */
void http_add_field(struct exchange *x, const char *name, const char *value);

/* The whole answer. `type` may be NULL where n is 0. What is left of the request's body is read and
 * dropped. 204 and 304 have no body and no Content-Length. */
void http_answer(struct exchange *x, int status, const char *type, const void *data, size_t n);

/* An answer in pieces: `length` bytes exactly, or -1: chunked. The head is sent at once. full() is
 * what a writer asks before it takes more from its source; room() (may be NULL) is called when it
 * is false again. http_write() takes everything it is given, and drops it where the client is lost
 * and gone() on its way. */
void http_begin(struct exchange *x, int status, const char *type, int64_t length,
		void (*room)(struct exchange *x));
bool http_full(const struct exchange *x);
void http_write(struct exchange *x, const void *data, size_t n);
void http_end(struct exchange *x); /* if bytes of `length` are missing: cuts */
/* Both in one: a client that waits for the end is woken up once. */
void http_finish(struct exchange *x, const void *data, size_t n);
void http_cut(struct exchange *x); /* ends the connection, as if by accident; also no answer */

/*
 * Makes the connection a plain pair of byte streams, after the head of the request and before any
 * answer: nothing of the head is passed on, and data() gets what followed it. Bytes that are
 * written go out as they are. eof(): the client will send no more; http_tunnel_eof(): nor will we
 * (TLS: close_notify). The exchange lasts until http_end(), which still sends what waits, or
 * http_cut(), which does not, or gone(), which also comes when both have ended and all is sent.
 */
struct http_tunnel {
	void (*data)(struct exchange *x, const char *data, size_t n);
	void (*eof)(struct exchange *x);
	void (*room)(struct exchange *x);
};
void http_tunnel(struct exchange *x, const struct http_tunnel *ops);
void http_tunnel_eof(struct exchange *x);
