/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a request: request line and fields, RFC 9112. Pure, no input or output. Strict: what
 * two servers could read in two ways is refused, with the status that the client is told.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http-lex/http-lex.h"

/* Why a request is refused. The text stands in a JSON string as it is: no quotes in it. */
struct http_refusal {
	int status;
	const char *why;
};

/*
 * Looks at what came since the last time: 1 when the head is complete and s->pos bytes long, 0 when
 * more is needed, or -EBADMSG with *ret_why: over a limit, a control character, a line that does
 * not end in CR LF.
 */
int http_head_scan(struct http_scan *s, const char *data, size_t n, struct http_refusal *ret_why);

struct http_field {
	const char *name; /* as it came */
	const char *value;
};

struct http_head {
	char *text; /* what the others point into */
	const char *method, *target, *path, *query;
	const char *host; /* "" for HTTP/1.0 without one */
	struct http_field *fields;
	size_t n_fields;
	int64_t length; /* -1: chunked */
	int minor;	/* HTTP/1.minor */
	bool keep;	/* the connection may go on */
	bool expect;	/* the client waits for 100 */
};

/* Reads a head that http_head_scan() found complete. 0, -ENOMEM, or -EBADMSG with *ret_why. */
int http_head_parse(const char *data, size_t n, struct http_head *ret,
		    struct http_refusal *ret_why);
void http_head_done(struct http_head *h);

const char *http_head_field(const struct http_head *h, const char *name);
