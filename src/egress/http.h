/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of an HTTP/1 request, as far as it says whom it is for. Strict: what two servers could
 * read in two ways is refused. The caller calls again with more bytes until there is an answer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
	HTTP_HEAD_MAX = 16 * 1024,
	HTTP_LINE_MAX = 8 * 1024,
};

struct http_head {
	const char *host; /* into the caller's bytes, without spaces around it */
	size_t host_len;
};

/*
 * 1 with *ret once the whole head is there, 0 while it is not, or -EBADMSG with the reason in
 * *ret_why: no Host or two of them, a target that is a URL, a folded line, a control character, a
 * line that ends without CR, HTTP/2.
 */
int http_parse(const char *data, size_t n, struct http_head *ret, const char **ret_why);

/* Can these first bytes still become a request: 1 they are one's, -1 they are not, 0 too few. */
int http_looks_like(const char *data, size_t n);
