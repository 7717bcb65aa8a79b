/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the head of an HTTP/1 request to find its host. Strict: rejects a head that two servers
 * could interpret differently. The caller calls again with more bytes until there is a result; no
 * byte is scanned twice.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "http-lex/http-lex.h"

enum {
	HTTP_HEAD_MAX = 16 * 1024,
	HTTP_LINE_MAX = 8 * 1024,
};

/* How far a head has been read; starts zeroed. */
struct http_reading {
	struct http_scan scan;
	bool has_host;
	size_t host, host_len; /* offsets: the caller's bytes may move between calls */
};

struct http_head {
	const char *host; /* points into the caller's bytes, trimmed */
	size_t host_len;
};

/*
 * 1 with *ret once the head is complete, 0 before, or -EBADMSG with the reason in *ret_why: no or
 * two Host fields, a URL as target, a folded line, a control character, a line without CR, HTTP/2.
 */
int http_parse(struct http_reading *rd, const char *data, size_t n, struct http_head *ret,
	       const char **ret_why);

/* Can these first bytes begin a request? 1: yes, -1: no, 0: too few bytes. */
int http_looks_like(const char *data, size_t n);
