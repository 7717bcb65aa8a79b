/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/percent.h"

#include <string.h>

#include "base/str.h"

static bool is_plain(char c)
{
	return ascii_is_digit(c) || ascii_is_lower(ascii_lower(c)) || c == '-' || c == '.' ||
	       c == '_' || c == '~';
}

static void put(struct buf *out, const char *s, size_t n, const char *digits, bool keep_slash)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (is_plain(s[i]) || (keep_slash && c == '/'))
			(void)buf_putc(out, s[i]);
		else
			(void)buf_put(out, (char[]){ '%', digits[c >> 4], digits[c & 15] }, 3);
	}
}

void percent_put(struct buf *out, const char *s, size_t n, bool keep_slash)
{
	put(out, s, n, "0123456789ABCDEF", keep_slash);
}

void percent_put_lower(struct buf *out, const char *s, size_t n, bool keep_slash)
{
	put(out, s, n, "0123456789abcdef", keep_slash);
}

static int hex_value(char c)
{
	if (ascii_is_digit(c))
		return c - '0';
	c = ascii_lower(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void percent_decode(struct buf *out, const char *s, size_t n, bool form)
{
	for (size_t i = 0; i < n; i++) {
		int high = s[i] == '%' && n - i > 2 ? hex_value(s[i + 1]) : -1;
		int low = high >= 0 ? hex_value(s[i + 2]) : -1;

		if (low >= 0) {
			(void)buf_putc(out, (char)(high << 4 | low));
			i += 2;
		} else {
			(void)buf_putc(out, s[i] == '+' && form ? ' ' : s[i]);
		}
	}
}
