/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads of HTTP/2. A received head becomes the text of an HTTP/1.1 head, so that the same parser
 * checks it; a head to send becomes a list of fields for libnghttp2.
 */
#pragma once

#include <nghttp2/nghttp2.h>

#include "tap/request.h"
#include "tap/response.h"

enum h2_pseudo {
	H2_METHOD,
	H2_SCHEME,
	H2_AUTHORITY,
	H2_PATH,
	H2_STATUS,
	H2_PSEUDOS,
};

/* A head that is arriving. */
struct h2_head {
	struct buf pseudo[H2_PSEUDOS], host, fields;
	size_t n, size;
	const char *bad; /* its fault, for a message, or NULL */
	bool is_long;
	bool te;	 /* the client reads trailers */
	bool has_length; /* Content-Length */
};

void h2_head_init(struct h2_head *h);
void h2_head_done(struct h2_head *h);

/* Adds a field. Never fails for its contents: they are reported when the head is complete. 0 or
 * -ENOMEM. */
int h2_head_add(struct h2_head *h, struct http_text name, struct http_text value);

/*
 * Writes the text of the complete head. `has_body`: the stream does not end with it. 0, -ENOMEM, or
 * -EBADMSG with *why.
 */
int h2_head_request(const struct h2_head *h, const struct place *p, bool has_body,
		    struct head_input *ret, struct refusal *why);
int h2_head_response(const struct h2_head *h, struct head_input *ret, const char **ret_why);

/* Fields to send. */
struct answer;

struct h2_fields {
	struct buf text;
	size_t n;
	nghttp2_nv nv[EXCHANGE_FIELDS_MAX + HEAD_ADDED_MAX + H2_PSEUDOS];
};
void h2_fields_done(struct h2_fields *f); /* wipes the text */
#define _cleanup_h2_fields_ _cleanup_(h2_fields_done)

/*
 * Each returns 0 or -ENOMEM; the caller calls h2_fields_done(). `received`: the number of fields
 * that came from the client; the ones after them, such as credentials, are never kept in the tables
 * of the compression. `te`: the client reads trailers.
 */
int h2_write_request(const struct request *q, const struct place *p, size_t received, bool te,
		     struct h2_fields *ret);
int h2_write_response(struct response *r, struct mask *mask, struct h2_fields *ret);
int h2_write_trailers(const struct head_input *in, struct mask *mask, struct h2_fields *ret);
int h2_write_answer(const struct answer *a, struct h2_fields *ret);
int h2_write_continue(struct h2_fields *ret);
