/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http-query.h"

#include <string.h>

#include "base/str.h"
#include "http/http-server.h"

static int hex_digit(char c)
{
	if (ascii_is_digit(c))
		return c - '0';
	c = ascii_lower(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

ssize_t http_unescape(const char *text, size_t n, bool form, char *out)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		char c = text[i];

		if (c == '%') {
			int high = n - i > 2 ? hex_digit(text[i + 1]) : -1;
			int low = n - i > 2 ? hex_digit(text[i + 2]) : -1;

			if (high < 0 || low < 0)
				return -EINVAL;
			c = (char)(high << 4 | low);
			i += 2;
		} else if (c == '+' && form) {
			c = ' ';
		}
		if (c == '\0')
			return -EINVAL;
		out[len++] = c;
	}
	out[len] = '\0';
	return (ssize_t)len;
}

int http_decode(const char *text, size_t n, bool form, char **ret)
{
	_cleanup_free_ char *out = malloc(n + 1);

	if (!out)
		return -ENOMEM;
	if (http_unescape(text, n, form, out) < 0)
		return -EINVAL;
	*ret = TAKE_PTR(out);
	return 0;
}

/* Returns 1 if the encoded `text` decodes to `name`, 0 if not, or an error. */
static int means(const char *text, size_t n, const char *name)
{
	_cleanup_free_ char *decoded = NULL;
	int r = http_decode(text, n, true, &decoded);

	return r < 0 ? r : str_eq(decoded, name);
}

int http_query(const struct exchange *x, const char *name, char **ret)
{
	_cleanup_free_ char *value = NULL;

	for (const char *p = x->query; *p != '\0'; p += *p == '&') {
		size_t n = strcspn(p, "&"), key = strcspn(p, "=&");
		int r = means(p, key, name);

		if (r == 1) {
			r = http_decode(p + key + (key < n), n - key - (key < n), true, &value);
			if (r < 0)
				return r;
			if (!utf8_valid(value, strlen(value)))
				return -EINVAL;
			*ret = TAKE_PTR(value);
			return 0;
		}
		if (r < 0)
			return r;
		p += n;
	}
	return -ENOENT;
}
