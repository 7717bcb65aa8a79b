/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exchange, internal to exchange*.c: the connections and the framing of HTTP/1.1. call.h has
 * what belongs to one request.
 *
 *  exchange.c           its life, bytes and ends of both connections
 *  exchange-request.c   bytes of the client
 *  exchange-response.c  bytes of the server
 *  exchange-end.c       the end of a request, and responses by hutch-tap itself
 */
#pragma once

#include "tap/call.h"
#include "tap/h2.h"

enum client_phase {
	CLIENT_HEAD,
	CLIENT_COLLECT, /* the body is needed before the request can be sent */
	CLIENT_ASK,	/* and the warden has to grant a part of the budget */
	CLIENT_BODY,
	CLIENT_WAIT, /* the request is complete, its response is not */
	CLIENT_RAW,  /* a WebSocket */
};

enum server_phase {
	SERVER_IDLE, /* may not send */
	SERVER_HEAD,
	SERVER_BODY,
	SERVER_RAW,
};

struct exchange {
	struct exchange_conf conf;
	struct h2 *h2; /* NULL: HTTP/1.1, for which all the rest is */
	struct buf to_server, to_client;
	enum client_phase client;
	enum server_phase server;
	bool over, server_done, client_eof;
	size_t served; /* complete responses */

	/* The request in progress. */
	struct call call;
	bool close;	/* the connections end after it */
	bool old;	/* the client does not know chunks and 1xx */
	bool websocket; /* was requested */

	struct head_input client_head, server_head;
	struct body client_body, server_body;
	enum body_kind to_server_kind, to_client_kind;
};

/* Answers the request in progress, if its response has not begun, reports it and closes. */
void exchange_refuse(struct exchange *x, const struct refusal *why);

/* The response is complete. */
void exchange_complete(struct exchange *x);

/* Each takes one step and returns the number of bytes it used, or -ENOMEM. */
ssize_t exchange_client_step(struct exchange *x, const char *data, size_t n);

/* After the warden's answer. 0 or -ENOMEM. */
int exchange_resume_request(struct exchange *x);
ssize_t exchange_server_step(struct exchange *x, const char *data, size_t n);

/* Passes on the bytes of a stream that the mask holds back. 0 or -ENOMEM. */
int exchange_flush_mask(struct exchange *x);
