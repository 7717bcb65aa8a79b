/* SPDX-License-Identifier: Apache-2.0 */
/* Responses of token endpoints: HTTP/1.1, strict. */
#include <string.h>

#include "base/str.h"
#include "http-lex/http-chunk.h"
#include "token/credential.h"

struct framing {
	bool has_length, chunked;
	uint64_t length;
};

static int bad(const char *why, struct err *e)
{
	return err_set(e, -EBADMSG, "the token endpoint's response is not valid: %s", why);
}

static int take_field(const struct http_header *h, struct framing *f, struct err *e)
{
	if (http_text_is(h->name, "content-length")) {
		if (f->has_length ||
		    str_to_u64(h->value.s, h->value.n, TOKEN_RESPONSE_MAX, &f->length) < 0)
			return bad("its length", e);
		f->has_length = true;
	} else if (http_text_is(h->name, "transfer-encoding")) {
		if (f->chunked || !http_text_is(h->value, "chunked"))
			return bad("its transfer coding", e);
		f->chunked = true;
	} else if (http_text_is(h->name, "content-encoding") &&
		   !http_text_is(h->value, "identity")) {
		return bad("it is compressed", e);
	}
	return 0;
}

static int read_head(const char *text, size_t n, struct framing *ret, struct err *e)
{
	struct http_scan scan = { 0 };
	struct http_text line;
	struct http_header h;

	(void)http_scan_line(&scan, text, n, &line);
	while (http_scan_line(&scan, text, n, &line) == HTTP_SCAN_LINE) {
		if (http_header_parse(line, &h) < 0)
			return bad("a field of its head", e);
		if (take_field(&h, ret, e) < 0)
			return e->num;
	}
	return ret->chunked && ret->has_length ? bad("two lengths", e) : 0;
}

/* Moves the data of all chunks together. As response_body(). */
static int join_chunks(char *body, size_t n, size_t *ret_n, struct err *e)
{
	struct http_chunk c = { .trailers = true };
	size_t used = 0, len = 0;

	while (used < n && c.state != HTTP_CHUNK_DONE && c.state != HTTP_CHUNK_BAD) {
		const char *data = NULL;
		size_t k = 0;

		used += http_chunk_feed(&c, body + used, n - used, &data, &k);
		if (k > 0)
			memmove(body + len, data, k);
		len += k;
	}
	if (c.state == HTTP_CHUNK_BAD)
		return bad("a chunk of its body", e);
	*ret_n = len;
	return c.state == HTTP_CHUNK_DONE;
}

/* Only complete text is decoded in place. */
static int find_chunks(char *body, size_t n, size_t *ret_n, struct err *e)
{
	struct http_chunk c = { .trailers = true };
	size_t used = 0;

	while (used < n && c.state != HTTP_CHUNK_DONE && c.state != HTTP_CHUNK_BAD) {
		const char *data = NULL;
		size_t k = 0;

		used += http_chunk_feed(&c, body + used, n - used, &data, &k);
	}
	if (c.state == HTTP_CHUNK_BAD)
		return bad("a chunk of its body", e);
	return c.state == HTTP_CHUNK_DONE ? join_chunks(body, n, ret_n, e) : 0;
}

static int incomplete(bool end, struct err *e)
{
	return end ? bad("it ends early", e) : 0;
}

int response_body(char *text, size_t n, bool end, unsigned int *ret_status, char **ret_body,
		  size_t *ret_n, struct err *e)
{
	struct http_scan scan = { 0 };
	struct framing f = { 0 };
	enum http_scanned scanned = http_scan_head(&scan, text, n);
	int status, r;

	if (scanned == HTTP_SCAN_BAD_END || scanned == HTTP_SCAN_CONTROL)
		return bad("its head", e);
	if (scanned != HTTP_SCAN_HEAD)
		return incomplete(end, e);
	status = http_status_parse(text, n);
	if (status < 200)
		return bad("its status", e);
	if (read_head(text, scan.pos, &f, e) < 0)
		return e->num;
	*ret_status = (unsigned int)status;
	*ret_body = text + scan.pos;
	*ret_n = n - scan.pos;
	if (f.chunked) {
		r = find_chunks(*ret_body, *ret_n, ret_n, e);
		return r == 0 ? incomplete(end, e) : r;
	}
	if (!f.has_length)
		return end;
	if (*ret_n < f.length)
		return incomplete(end, e);
	*ret_n = (size_t)f.length;
	return 1;
}
