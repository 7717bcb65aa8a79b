/* SPDX-License-Identifier: Apache-2.0 */
#include "names/name.h"

#include <stdbool.h>
#include <string.h>

#include "base/str.h"

static bool ldh(char c)
{
	return ascii_is_lower(c) || ascii_is_digit(c) || c == '-';
}

/* Reports byte `at` of the input as invalid in a name. */
static int bad_byte(unsigned char c, size_t at, struct err *e)
{
	if (c == '_')
		return err_set(e, -EINVAL, "'_' at byte %zu: host names have no underscore",
			       at + 1);
	if (c >= 0x80)
		return err_set(
			e, -EINVAL,
			"byte 0x%02x at %zu is not ASCII: write the name in punycode (xn--...)", c,
			at + 1);
	if (c > 0x20 && c < 0x7f)
		return err_set(e, -EINVAL,
			       "'%c' at byte %zu: a name has letters, digits, hyphens and dots", c,
			       at + 1);
	return err_set(e, -EINVAL,
		       "byte 0x%02x at %zu: a name has letters, digits, hyphens and dots", c,
		       at + 1);
}

static int check_label(const char *label, size_t n, struct err *e)
{
	if (n == 0)
		return err_set(e, -EINVAL, "a part between the dots is empty");
	if (n > NAME_LABEL_MAX)
		return err_set(e, -EINVAL, "a part between the dots has %zu bytes, at most %d", n,
			       NAME_LABEL_MAX);
	if (label[0] == '-' || label[n - 1] == '-')
		return err_set(e, -EINVAL, "'%.*s' begins or ends with a hyphen", (int)n, label);
	return 0;
}

/* "Ends in a number" as in the URL standard: decimal, or 0x with any number of hex digits. */
static bool is_number(const char *label, size_t n)
{
	bool hex = n >= 2 && label[0] == '0' && label[1] == 'x';

	for (size_t i = hex ? 2 : 0; i < n; i++)
		if (!ascii_is_digit(label[i]) && !(hex && label[i] >= 'a' && label[i] <= 'f'))
			return false;
	return true;
}

int name_parse_at(const char *s, size_t n, size_t skip, struct name *ret, struct err *e)
{
	size_t labels = 0, start = 0;
	struct name name;
	int r;

	s += skip;
	n -= skip;
	if (n == 0)
		return err_set(e, -EINVAL, "the name is empty");
	if (n > NAME_TEXT_MAX)
		return err_set(e, -EINVAL, "the name has %zu bytes, at most %d", n, NAME_TEXT_MAX);
	for (size_t i = 0; i < n; i++) {
		char c = ascii_lower(s[i]);

		if (c != '.' && !ldh(c))
			return bad_byte((unsigned char)s[i], skip + i, e);
		name.text[i] = c;
	}
	name.text[n] = '\0';
	name.len = (uint8_t)n;
	for (size_t i = 0; i <= n; i++) {
		if (i < n && name.text[i] != '.')
			continue;
		if (i == n && start == n)
			return err_set(e, -EINVAL, "the name ends in a dot: leave it out");
		r = check_label(name.text + start, i - start, e);
		if (r < 0)
			return r;
		labels++;
		if (i == n && is_number(name.text + start, i - start))
			return err_set(e, -EINVAL,
				       "the name ends in a number, as only addresses do: an IPv4 "
				       "address is written as 192.0.2.1");
		start = i + 1;
	}
	if (labels < 2)
		return err_set(e, -EINVAL,
			       "the name has no dot: a full name such as github.com is needed");
	*ret = name;
	return 0;
}

int name_parse(const char *s, size_t n, struct name *ret, struct err *e)
{
	return name_parse_at(s, n, 0, ret, e);
}
