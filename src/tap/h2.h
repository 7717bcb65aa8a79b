/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 on one connection of the sandbox (client) and one to the server. The functions have the
 * same contracts as those of exchange.h, which calls them.
 */
#pragma once

#include "tap/exchange.h"

enum {
	H2_STREAMS_MAX = 128,		    /* on one connection, at the same time */
	H2_WINDOW = 256 * 1024,		    /* bytes of a stream that may wait, in each direction */
	H2_CONNECTION_WINDOW = 1024 * 1024, /* and of all streams of a connection */
	H2_ACKS_MAX = 256,		    /* waiting answers to PING and SETTINGS */
	H2_SETTINGS_MAX = 32,
	H2_CONTINUATIONS_MAX = 8,
	H2_LATE_MAX = 64 * 1024, /* bytes of a request after its response */
	H2_CUTS_MAX = 500,	 /* requests that a client may abandon at once ... */
	H2_CUTS_RATE = 50,	 /* ... and in each second */
};

struct h2;

int h2_new(const struct exchange_conf *c, struct h2 **ret); /* `c` must outlive it. 0 or -ENOMEM */
struct h2 *h2_free(struct h2 *h);

int h2_from_client(struct h2 *h, const char *data, size_t n, size_t *ret_used);
int h2_resume(struct h2 *h);
int h2_from_server(struct h2 *h, const char *data, size_t n, size_t *ret_used);
void h2_client_eof(struct h2 *h);
void h2_server_eof(struct h2 *h);
void h2_abort(struct h2 *h, enum tap_result result, const char *text);

/* Each call appends frames that are due. */
struct buf *h2_to_server(struct h2 *h);
struct buf *h2_to_client(struct h2 *h);

bool h2_over(const struct h2 *h);
bool h2_is_held(const struct h2 *h);
int h2_release(struct h2 *h);
bool h2_idle(const struct h2 *h);
bool h2_in_request(const struct h2 *h);
