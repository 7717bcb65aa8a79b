/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 for hutchd, on our own loop. Strict: a request that two servers could read differently
 * is rejected and the connection ends. Only this directory parses heads and unframes bodies.
 *
 * An exchange is one request and its response, and belongs to its connection. The handler holds it
 * from handle() until the response is complete (http_answer(), http_end(), http_cut()) or gone()
 * was called, and must not use it afterwards. Unless stated, no function here calls the handler:
 * callbacks come from the loop.
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
	HTTP_SERVER_JSON_MAX = 4 * 1024 * 1024, /* maximum for http_collect() */
	HTTP_SERVER_AHEAD = 64 * 1024,	/* unsent bytes of a response before it counts as full */
	HTTP_SERVER_DRAIN = 256 * 1024, /* bytes of an unwanted body; beyond, the connection ends */
};

struct http_server;
struct http_tls;

struct exchange {
	const char *method; /* "GET"; token, at most 24 letters */
	const char *target; /* raw, without the query: begins with '/' */
	const char *path;   /* decoded once: no NUL or control characters, no "." or ".." component,
			       UTF-8, leading slashes made one */
	const char *query;  /* raw, "" without one */
	const char *host;   /* Host header with its port, checked; "" if HTTP/1.0 sent none */
	int64_t length;	    /* length of the body; -1: chunked, 0: none */
	bool local;	    /* over a Unix socket, from the user `uid` */
	bool tls;
	uid_t uid;
	unsigned int listener; /* index, in the order they were added */
	void *cookie;	       /* the handler's */
};

struct http_config {
	struct loop *loop;
	void (*handle)(struct exchange *x, void *arg); /* the head is complete */
	/* The client has gone, broke the rules or exceeded a time limit before the response was
	 * complete. Always the last call for an unanswered exchange. A client that closes only its
	 * half of the connection counts as gone too, except in a tunnel: it looks like one that
	 * cancels. */
	void (*gone)(struct exchange *x, void *arg);
	void *arg;
	size_t connections; /* maximum; beyond, the longest idle one is closed, and if none is idle,
			       the new one gets 503 */
	uint64_t head_ms;   /* from the first byte of a head to its end */
	uint64_t idle_ms;   /* between requests */
	uint64_t body_ms;   /* without progress by the client in a request's body or a response. A
			       collected body must also arrive at 1000 bytes per second */
};

int http_server_new(const struct http_config *config, struct http_server **ret, struct err *e);

/* Calls gone() for exchanges in progress. Not from a callback of the server; before freeing the
 * loop. */
struct http_server *http_server_free(struct http_server *s);

/* Adds a listening socket, which the server owns from now on, also on failure. `tls` may be NULL
 * and must outlive the server. */
int http_server_add(struct http_server *s, int fd, struct http_tls *tls, struct err *e);
size_t http_server_connections(const struct http_server *s);

/* Accepts no new connections and closes idle ones. Exchanges in progress continue to their
 * response. */
void http_server_stop(struct http_server *s);

/* Loads certificate chain and key, both PEM; TLS 1.2 or later, HTTP/1.1 only. Call again to reload
 * them. */
int http_tls_new(const char *cert, const char *key, struct http_tls **ret, struct err *e);
struct http_tls *http_tls_free(struct http_tls *t);

/* ---- the request ---- */

/* Returns the value of a field by its lower-case name; NULL if missing. A repeated field is joined
 * with ", " if its grammar is a list; otherwise the request was rejected before. */
const char *http_field(const struct exchange *x, const char *name);

/* Iterates over all fields in order, names spelled as received, repeated ones joined; `i` from 0;
 * false past the last. */
bool http_field_at(const struct exchange *x, size_t i, const char **ret_name,
		   const char **ret_value);

/* Returns the first value of a name in the query, decoded ('+' is a space); the caller frees it. 0,
 * -ENOENT, -EINVAL (bad escape, NUL, not UTF-8), -ENOMEM. */
int http_query(const struct exchange *x, const char *name, char **ret);

/* Decodes percent escapes of `n` bytes ('+' too if `form`). -EINVAL, -ENOMEM. */
int http_decode(const char *text, size_t n, bool form, char **ret);

/*
 * The body is not read before one of these is called. collected() gets all of it (`data` is
 * NUL-terminated and valid during the call); if it is longer than `max`, the server answers 413 and
 * calls gone(). With http_body(), data() gets the bytes as they arrive, and end() follows once. A
 * client that waits for 100 Continue gets it now.
 */
void http_collect(struct exchange *x, size_t max,
		  void (*collected)(struct exchange *x, const char *data, size_t n));
struct http_body {
	void (*data)(struct exchange *x, const char *data, size_t n);
	void (*end)(struct exchange *x);
};
void http_body(struct exchange *x, const struct http_body *ops);

/* Pauses or resumes data(). Also for a tunnel. */
void http_body_pause(struct exchange *x, bool pause);

/* ---- the response ---- */

/* Adds a field to the response, before it begins. Control characters in name or value, or a field
 * that frames the response (Content-Length, Transfer-Encoding, Connection), are a bug of ours and
 * give 500; if the response was to come in pieces, gone() is called then. */
void http_add_field(struct exchange *x, const char *name, const char *value);

/* Sends the whole response. `type` may be NULL if n is 0. The rest of the request's body is read
 * and dropped. 204 and 304 have no body and no Content-Length. */
void http_answer(struct exchange *x, int status, const char *type, const void *data, size_t n);

/* Begins a response in pieces: `length` bytes exactly, or -1: chunked. The head is sent at once. A
 * writer checks http_full() before it takes more from its source; room() (may be NULL) is called
 * when it becomes false. http_write() always takes all bytes, and drops them if the client is lost
 * and gone() is pending. */
void http_begin(struct exchange *x, int status, const char *type, int64_t length,
		void (*room)(struct exchange *x));
bool http_full(const struct exchange *x);
void http_write(struct exchange *x, const void *data, size_t n);
void http_end(struct exchange *x); /* cuts if bytes of `length` are missing */
/* http_write() and http_end() in one: a client that waits for the end wakes up once. */
void http_finish(struct exchange *x, const void *data, size_t n);
void http_cut(struct exchange *x); /* drops the connection, also before a response */

/*
 * Turns the connection into a plain pair of byte streams, after the head of the request and before
 * any response: the head is not passed on, and data() gets the bytes after it. Written bytes are
 * sent unchanged. eof(): the client has finished sending; http_tunnel_eof(): we have (TLS:
 * close_notify). The exchange lasts until http_end(), which still sends waiting bytes, http_cut(),
 * which drops them, or gone(), which is also called when both sides have ended and all bytes are
 * sent.
 */
struct http_tunnel {
	void (*data)(struct exchange *x, const char *data, size_t n);
	void (*eof)(struct exchange *x);
	void (*room)(struct exchange *x);
};
void http_tunnel(struct exchange *x, const struct http_tunnel *ops);
void http_tunnel_eof(struct exchange *x);
