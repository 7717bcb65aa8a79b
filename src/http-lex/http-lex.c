/* SPDX-License-Identifier: Apache-2.0 */
#include "http-lex/http-lex.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "base/util.h"

#define DIGITS "0123456789"

enum {
	LINE_BREAK = 2,
};

bool http_text_same(struct http_text a, struct http_text b)
{
	return a.n == b.n && strncasecmp(a.s, b.s, a.n) == 0;
}

bool http_text_is(struct http_text t, const char *word)
{
	return http_text_same(t, (struct http_text){ word, strlen(word) });
}

size_t http_token_len(const char *s, size_t n)
{
	size_t i = 0;

	while (i < n && (ascii_is_digit(s[i]) || ascii_is_lower(ascii_lower(s[i])) ||
			 (s[i] != '\0' && strchr("!#$%&'*+-.^_`|~", s[i]))))
		i++;
	return i;
}

bool http_value_valid(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (http_is_control(s[i]) && s[i] != '\t')
			return false;
	return true;
}

bool http_target_valid(struct http_text target)
{
	for (size_t i = 0; i < target.n; i++)
		if (target.s[i] <= ' ' || target.s[i] >= 0x7f)
			return false;
	return true;
}

enum http_scanned http_scan_byte(struct http_scan *s, char c)
{
	bool empty;

	if (s->cr != (c == '\n'))
		return HTTP_SCAN_BAD_END;
	if (http_is_control(c) && c != '\r' && c != '\n' && c != '\t')
		return HTTP_SCAN_CONTROL;
	s->pos++;
	s->cr = c == '\r';
	if (c != '\n')
		return HTTP_SCAN_MORE;
	empty = s->pos - s->line == LINE_BREAK;
	s->line = s->pos;
	s->lines += !empty;
	return empty ? HTTP_SCAN_HEAD : HTTP_SCAN_LINE;
}

enum http_scanned http_scan_line(struct http_scan *s, const char *data, size_t n,
				 struct http_text *ret)
{
	enum http_scanned r = HTTP_SCAN_MORE;
	size_t start = s->line;

	while (s->pos < n && r == HTTP_SCAN_MORE)
		r = http_scan_byte(s, data[s->pos]);
	if (r == HTTP_SCAN_LINE || r == HTTP_SCAN_HEAD)
		*ret = (struct http_text){ data + start, s->pos - start - LINE_BREAK };
	return r;
}

enum http_scanned http_scan_head(struct http_scan *s, const char *data, size_t n)
{
	enum http_scanned r;
	struct http_text line;

	do
		r = http_scan_line(s, data, n, &line);
	while (r == HTTP_SCAN_LINE);
	return r;
}

int http_request_line_parse(struct http_text line, struct http_request_line *ret)
{
	size_t method = http_token_len(line.s, line.n), at = method + 1;
	const char *space, *version;

	if (method == 0 || method > HTTP_METHOD_MAX_LEN || at > line.n || line.s[method] != ' ')
		return -EBADMSG;
	space = memchr(line.s + at, ' ', line.n - at);
	if (!space || (size_t)(line.s + line.n - space) != STRLEN(" HTTP/1.1"))
		return -EBADMSG;
	version = space + 1;
	if (memcmp(version, "HTTP/", 5) != 0 || !ascii_is_digit(version[5]) || version[6] != '.' ||
	    !ascii_is_digit(version[7]))
		return -EBADMSG;
	*ret = (struct http_request_line){
		.method = { line.s, method },
		.target = { line.s + at, (size_t)(space - line.s) - at },
		.major = version[5],
		.minor = version[7],
	};
	return 0;
}

int http_status_parse(const char *head, size_t n)
{
	/* The bytes allowed at each position. */
	static const char *const forms[] = {
		"H", "T", "T", "P", "/", "1", ".", "01", " ", "12345", DIGITS, DIGITS, " \r",
	};
	const char *status = head + STRLEN("HTTP/1.1 ");

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		if (i == n)
			return 0;
		if (head[i] == '\0' || !strchr(forms[i], head[i]))
			return -EBADMSG;
	}
	return (status[0] - '0') * 100 + (status[1] - '0') * 10 + status[2] - '0';
}

int http_header_parse(struct http_text line, struct http_header *ret)
{
	size_t name = http_token_len(line.s, line.n);
	struct http_text value;

	if (name == 0 || name == line.n || line.s[name] != ':')
		return -EBADMSG;
	value = (struct http_text){ line.s + name + 1, line.n - name - 1 };
	for (; value.n > 0 && http_is_blank(value.s[0]); value.s++)
		value.n--;
	while (value.n > 0 && http_is_blank(value.s[value.n - 1]))
		value.n--;
	*ret = (struct http_header){ { line.s, name }, value };
	return 0;
}
