/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP on one stream, between the sandbox (client) and the server. No input or output: the
 * caller (stream.c) moves bytes between the buffers here and two connections.
 *
 *	client bytes -> exchange_from_client() -> to_server
 *	server bytes -> exchange_from_server() -> to_client
 *
 * Each head is parsed strictly and written anew, so that the server reads exactly the request that
 * the rules were checked on. By HTTP/1.1, requests of a connection are served one after the other:
 * bytes of the next one are not consumed before the response is complete. h2.h has HTTP/2.
 */
#pragma once

#include "base/buf.h"
#include "tap/config.h"

enum {
	EXCHANGE_HEAD_MAX = 64 * 1024,
	EXCHANGE_FIELDS_MAX = 128,
	EXCHANGE_BUFFER = 128 * 1024, /* do not feed more while the output buffer holds as much */
};

struct gateway;

struct exchange_conf {
	const struct tap_config *config; /* may be replaced between calls: `config` is read anew */
	const struct name *host;	 /* NULL: the target is an address */
	uint16_t port;
	bool tls; /* the stream is TLS on both sides; without it no secret is sent */
	/* Called once for each request, when it is complete or refused. `r` is filled in but for
	 * `stream`. */
	void (*report)(void *arg, const struct tap_request *r);
	/* Counts one request against rule `i` now; false: over its rate. */
	bool (*may_pass)(void *arg, size_t i);
	/*
	 * Asks the warden for a reservation, and settles it: gateway.h. The answer comes by
	 * gateway_answer(), and exchange_resume() continues the request. NULL: no budgets.
	 */
	int (*reserve)(void *arg, struct gateway *g, struct tap_reserve *r);
	void (*settle)(void *arg, struct gateway *g, struct tap_settle *s);
	void (*wake)(void *arg); /* after gateway_answer(): call exchange_resume() soon */
	void *arg;
	unsigned int *probes; /* shared by the streams of the sandbox: mask.h */
	/* Counts the requests by HTTP/2 of the sandbox. NULL: there is no limit. */
	size_t *n_requests, max_requests;
};

struct exchange;

int exchange_new(const struct exchange_conf *c, struct exchange **ret); /* 0 or -ENOMEM */
struct exchange *exchange_free(struct exchange *x);

/* Both sides have agreed on HTTP/2, before any byte. 0 or -ENOMEM. */
int exchange_use_http2(struct exchange *x);

/*
 * Consume up to `n` bytes, *ret_used of them, and append to the output buffers. Less than `n` are
 * consumed if a buffer is full or a response is outstanding (the caller keeps the rest and calls
 * again when something changed). 0 or -ENOMEM. Errors of the
 * protocol are not errors here: the exchange reports them, appends its own response where there may
 * be one, and is closed: exchange_over().
 */
int exchange_from_client(struct exchange *x, const char *data, size_t n, size_t *ret_used);
int exchange_from_server(struct exchange *x, const char *data, size_t n, size_t *ret_used);

/* Continues requests for which gateway_answer() was called. 0 or -ENOMEM. */
int exchange_resume(struct exchange *x);

/* One side has closed its direction, in order. For the client: all of its bytes are consumed. */
void exchange_client_eof(struct exchange *x);
void exchange_server_eof(struct exchange *x);

/* Reports the request in progress, if any, as ended by `result`, and closes the exchange. */
void exchange_abort(struct exchange *x, enum tap_result result, const char *text);

/* Output; the caller removes what it has sent. By HTTP/2, each call may append. */
struct buf *exchange_to_server(struct exchange *x);
struct buf *exchange_to_client(struct exchange *x);

/* Close both connections once the buffers are sent; further bytes are consumed and dropped. */
bool exchange_over(const struct exchange *x);
/* The server's connection must end its direction (shutdown) once to_server is sent. */
bool exchange_server_done(const struct exchange *x);
/* Bytes for the client are held back because they may be the beginning of a secret. The caller
 * releases them if none follow for a while: a program may wait for them. 0 or -ENOMEM. */
bool exchange_is_held(const struct exchange *x);
int exchange_release(struct exchange *x);
/* True between requests: nothing is outstanding. */
bool exchange_idle(const struct exchange *x);
/* True from the end of a request's head until its report. */
bool exchange_in_request(const struct exchange *x);
/* The server has, or may have, a part of a request that will not become whole if the stream ends
 * now: it must not see an orderly end. */
bool exchange_cuts_request(const struct exchange *x);
