/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 9112. */
#include "http.h"

#include <strings.h>

#include "str.h"

static int wrong(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EBADMSG;
}

/* The line at `s` without its CR LF: 1, 0 if its end is not there yet, or an error. */
static int next_line(const char *s, size_t n, size_t *ret_len, const char **why)
{
	const char *lf = memchr(s, '\n', n);
	size_t len = lf ? (size_t)(lf - s) : n;

	if (memchr(s, '\0', len))
		return wrong(why, "a NUL in the head of a request");
	if (len > HTTP_LINE_MAX)
		return wrong(why, "a line that is too long");
	if (!lf)
		return 0;
	if (len == 0 || s[len - 1] != '\r' || memchr(s, '\r', len - 1))
		return wrong(why, "a line that does not end in CR LF");
	*ret_len = len - 1;
	return 1;
}

/* METHOD SP TARGET SP HTTP/1.x, where the target is a path or "*". */
static int check_request(const char *s, size_t n, const char **why)
{
	size_t method = str_token_len(s, n), end;

	if (method == 0 || method > HTTP_METHOD_MAX || method == n || s[method] != ' ')
		return wrong(why, "not a request of HTTP/1");
	for (end = method + 1; end < n && s[end] > ' ' && s[end] < 0x7f;)
		end++;
	if (n - end != STRLEN(" HTTP/1.1") || memcmp(s + end, " HTTP/1.", 8) != 0 ||
	    (s[n - 1] != '0' && s[n - 1] != '1'))
		return wrong(why, "not a request of HTTP/1");
	if (s[method + 1] == '/')
		return 0;
	if (s[method + 1] == '*' && end == method + 2)
		return 0;
	return wrong(why, "a request for a proxy"); /* a URL, or CONNECT */
}

static int check_field(const char *s, size_t n, struct http_head *ret, const char **why)
{
	size_t name = str_token_len(s, n);
	const char *value = s + name + 1;
	size_t len;

	if (s[0] == ' ' || s[0] == '\t')
		return wrong(why, "a folded line");
	if (name == 0 || name == n || s[name] != ':')
		return wrong(why, "a broken header field");
	if (name != 4 || strncasecmp(s, "host", 4) != 0)
		return 0;
	if (ret->host)
		return wrong(why, "two Host fields");
	len = n - name - 1;
	for (; len > 0 && (value[0] == ' ' || value[0] == '\t'); value++)
		len--;
	while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
		len--;
	ret->host = value;
	ret->host_len = len;
	return 0;
}

int http_parse(const char *data, size_t n, struct http_head *ret, const char **ret_why)
{
	struct http_head h = { 0 };
	bool first = true;
	size_t at = 0, len;
	int r;

	for (;;) {
		r = next_line(data + at, n - at, &len, ret_why);
		if (r < 0)
			return r;
		if (r == 0)
			return n > HTTP_HEAD_MAX ? wrong(ret_why, "a head that is too long") : 0;
		if (at + len > HTTP_HEAD_MAX)
			return wrong(ret_why, "a head that is too long");
		if (len == 0 && !first)
			break;
		r = first ? check_request(data + at, len, ret_why)
			  : check_field(data + at, len, &h, ret_why);
		if (r < 0)
			return r;
		first = false;
		at += len + 2;
	}
	if (!h.host)
		return wrong(ret_why, "no Host field");
	*ret = h;
	return 1;
}

/*
 * Wide on purpose: a server may skip empty lines and take any word for a method. A first line that
 * ends in a version of HTTP is a request, and one that cannot is not.
 */
int http_looks_like(const char *data, size_t n)
{
	const char *lf;
	size_t at = 0, word;

	while (at < n && (data[at] == '\r' || data[at] == '\n' || data[at] == ' '))
		at++;
	word = str_token_len(data + at, n - at);
	if (at + word == n)
		return word > HTTP_METHOD_MAX ? -1 : 0;
	if (word == 0 || word > HTTP_METHOD_MAX ||
	    (data[at + word] != ' ' && data[at + word] != '\t'))
		return -1;
	lf = memchr(data + at, '\n', n - at);
	if (!lf || lf - data - (ptrdiff_t)at > HTTP_LINE_MAX) /* the strict reader says the rest */
		return n - at > HTTP_LINE_MAX ? 1 : 0;
	return memmem(data + at, (size_t)(lf - data) - at, "HTTP/", 5) ? 1 : -1;
}
