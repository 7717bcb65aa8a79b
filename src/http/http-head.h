/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a request: request line and fields, RFC 9112. Pure functions, no input or output.
 * Strict: a head that two servers could read differently is rejected, with the status for the
 * client.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http-lex/http-lex.h"

/* Why a request is rejected. The text goes into a JSON string unescaped: no quotes in it. */
struct http_refusal {
	int status;
	const char *why;
};

/*
 * Scans the bytes that came since the last call. Returns 1 if the head is complete and s->pos bytes
 * long, 0 if more bytes are needed, or -EBADMSG with *ret_why: over a limit, a control character, a
 * line that does not end in CR LF.
 */
int http_head_scan(struct http_scan *s, const char *data, size_t n, struct http_refusal *ret_why);

struct http_field {
	const char *name; /* spelled as received */
	const char *value;
};

struct http_head {
	char *text; /* memory of the other texts */
	const char *method, *target, *path, *query;
	const char *host; /* "" for HTTP/1.0 without one */
	struct http_field *fields;
	size_t n_fields;
	int64_t length; /* -1: chunked */
	int minor;	/* HTTP/1.minor */
	bool keep;	/* the connection may be kept */
	bool expect;	/* the client waits for 100 */
};

/* Parses a head that http_head_scan() found complete. 0, -ENOMEM, or -EBADMSG with *ret_why. */
int http_head_parse(const char *data, size_t n, struct http_head *ret,
		    struct http_refusal *ret_why);
void http_head_done(struct http_head *h);

const char *http_head_field(const struct http_head *h, const char *name);
