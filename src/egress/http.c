/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 9112. */
#include "egress/http.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "http-lex/http-lex.h"

static int wrong(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EBADMSG;
}

/* METHOD SP TARGET SP HTTP/1.x, where the target is a path or "*". */
static int check_request(struct http_text line, const char **why)
{
	struct http_request_line l;

	if (http_request_line_parse(line, &l) < 0 || l.major != '1' || l.minor > '1' ||
	    !http_target_valid(l.target))
		return wrong(why, "not a request of HTTP/1");
	if (l.target.n > 0 && l.target.s[0] == '/')
		return 0;
	if (http_text_is(l.target, "*"))
		return 0;
	return wrong(why, "a request for a proxy"); /* a URL, or CONNECT */
}

static int check_field(struct http_text line, const char *data, struct http_reading *rd,
		       const char **why)
{
	struct http_header field;

	if (http_header_parse(line, &field) < 0)
		return wrong(why,
			     http_is_blank(line.s[0]) ? "a folded line" : "a broken header field");
	if (!http_text_is(field.name, "host"))
		return 0;
	if (rd->has_host)
		return wrong(why, "two Host fields");
	rd->has_host = true;
	rd->host = (size_t)(field.value.s - data);
	rd->host_len = field.value.n;
	return 0;
}

/* The next line, within the limits of a line and of the head: 1, 0: more is needed, or an error. */
static int next_line(struct http_scan *s, const char *data, size_t n, struct http_text *ret,
		     const char **why)
{
	size_t line_max = s->line + HTTP_LINE_MAX + 1, max = MIN(line_max, (size_t)HTTP_HEAD_MAX);

	switch (http_scan_line(s, data, MIN(n, max), ret)) {
	case HTTP_SCAN_MORE:
		if (s->pos == n)
			return 0;
		return wrong(why, max == line_max ? "a line that is too long"
						  : "a head that is too long");
	case HTTP_SCAN_LINE:
	case HTTP_SCAN_HEAD:
		return 1;
	case HTTP_SCAN_BAD_END:
		return wrong(why, "a line that does not end in CR LF");
	case HTTP_SCAN_CONTROL:
		break;
	}
	return wrong(why, "a control character in the head of a request");
}

int http_parse(struct http_reading *rd, const char *data, size_t n, struct http_head *ret,
	       const char **ret_why)
{
	struct http_text line = { 0 };
	int r;

	while ((r = next_line(&rd->scan, data, n, &line, ret_why)) > 0) {
		const bool first = line.s == data;

		if (!first && line.n == 0)
			break;
		r = first ? check_request(line, ret_why) : check_field(line, data, rd, ret_why);
		if (r < 0)
			return r;
	}
	if (r <= 0)
		return r;
	if (!rd->has_host)
		return wrong(ret_why, "no Host field");
	*ret = (struct http_head){ data + rd->host, rd->host_len };
	return 1;
}

/*
 * Deliberately tolerant: a server may skip empty lines and accept any word as a method. A first
 * line is a request if it contains a version of HTTP.
 */
int http_looks_like(const char *data, size_t n)
{
	const char *lf;
	size_t at = 0, word;

	while (at < n && (data[at] == '\r' || data[at] == '\n' || data[at] == ' '))
		at++;
	word = http_token_len(data + at, n - at);
	if (at + word == n)
		return word > HTTP_METHOD_MAX_LEN ? -1 : 0;
	if (word == 0 || word > HTTP_METHOD_MAX_LEN ||
	    (data[at + word] != ' ' && data[at + word] != '\t'))
		return -1;
	lf = memchr(data + at, '\n', n - at);
	if (!lf || lf - data - (ptrdiff_t)at > HTTP_LINE_MAX) /* http_parse() rejects long lines */
		return n - at > HTTP_LINE_MAX ? 1 : 0;
	return memmem(data + at, (size_t)(lf - data) - at, "HTTP/", 5) ? 1 : -1;
}
