/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

bool str_has_suffix(const char *s, const char *suffix)
{
	size_t n = strlen(s), k = strlen(suffix);

	return n >= k && memcmp(s + n - k, suffix, k) == 0;
}

bool str_has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; *(p += strspn(p, " ,\t\n"));) {
		size_t len = strcspn(p, " ,\t\n");

		if (len == n && memcmp(p, word, n) == 0)
			return true;
		p += len;
	}
	return false;
}

int str_to_u64(const char *s, size_t n, uint64_t max, uint64_t *ret)
{
	uint64_t value = 0;

	if (n == 0 || (n > 1 && s[0] == '0'))
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		if (!ascii_is_digit(s[i]))
			return -EINVAL;
	for (size_t i = 0; i < n; i++)
		if (__builtin_mul_overflow(value, 10U, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(s[i] - '0'), &value))
			return -ERANGE;
	if (value > max)
		return -ERANGE;
	*ret = value;
	return 0;
}

size_t utf8_decode(const char *s, size_t n, uint32_t *ret)
{
	const unsigned char *u = (const unsigned char *)s;
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint32_t cp;
	size_t len;

	if (n == 0)
		return 0;
	if (u[0] < 0x80) {
		*ret = u[0];
		return 1;
	}
	len = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
	if (u[0] < 0xc2 || u[0] > 0xf4 || n < len)
		return 0;
	cp = u[0] & (0x7fU >> len);
	for (size_t i = 1; i < len; i++) {
		if ((u[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | (u[i] & 0x3f);
	}
	if (cp < least[len] || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
		return 0;
	*ret = cp;
	return len;
}

bool utf8_valid(const char *s, size_t n)
{
	for (size_t i = 0; i < n;) {
		uint32_t cp;
		size_t len = utf8_decode(s + i, n - i, &cp);

		if (len == 0)
			return false;
		i += len;
	}
	return true;
}

void str_make_utf8(char *s)
{
	for (size_t n = strlen(s); n > 0;) {
		uint32_t cp;
		size_t len = utf8_decode(s, n, &cp);

		if (len == 0) {
			*s = '?';
			len = 1;
		}
		s += len;
		n -= len;
	}
}

/*
 * Code points that change how the surrounding text is displayed, or that are invisible: controls,
 * Unicode's Default_Ignorable_Code_Point (bidirectional and zero-width marks, fillers, variation
 * selectors, tags), line separators and interlinear marks. Sorted.
 */
static bool invisible(uint32_t cp)
{
	static const struct {
		uint32_t first, last;
	} range[] = {
		{ 0x00, 0x1f },	      { 0x7f, 0x9f },	    { 0xad, 0xad },
		{ 0x34f, 0x34f },     { 0x61c, 0x61c },	    { 0x115f, 0x1160 },
		{ 0x17b4, 0x17b5 },   { 0x180b, 0x180f },   { 0x200b, 0x200f },
		{ 0x2028, 0x202e },   { 0x2060, 0x206f },   { 0x3164, 0x3164 },
		{ 0xfe00, 0xfe0f },   { 0xfeff, 0xfeff },   { 0xffa0, 0xffa0 },
		{ 0xfff0, 0xfffb },   { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a },
		{ 0xe0000, 0xe0fff },
	};

	for (size_t i = 0; i < ARRAY_SIZE(range) && cp >= range[i].first; i++)
		if (cp <= range[i].last)
			return true;
	return false;
}

static int escape_one(struct buf *b, uint32_t cp)
{
	switch (cp) {
	case '\n':
		return buf_puts(b, "\\n");
	case '\r':
		return buf_puts(b, "\\r");
	case '\t':
		return buf_puts(b, "\\t");
	default:
		return buf_printf(b, cp < 0x80 ? "\\x%02x" : "\\u{%x}", cp);
	}
}

int str_escape(struct buf *b, const char *s, size_t n)
{
	for (size_t i = 0; i < n;) {
		uint32_t cp;
		size_t len = utf8_decode(s + i, n - i, &cp);

		if (len == 0)
			(void)buf_printf(b, "\\x%02x", (unsigned char)s[i]);
		else if (invisible(cp))
			(void)escape_one(b, cp);
		else if (cp == '\\')
			(void)buf_puts(b, "\\\\");
		else
			(void)buf_put(b, s + i, len);
		i += len > 0 ? len : 1;
	}
	return b->err;
}

bool str_is_visible(const char *s, size_t n)
{
	for (size_t i = 0, len; i < n; i += len) {
		uint32_t cp;

		len = utf8_decode(s + i, n - i, &cp);
		if (len == 0 || invisible(cp))
			return false;
	}
	return true;
}

enum {
	DISTANCE_MAX = 64
};

size_t str_distance(const char *a, const char *b)
{
	size_t row[3][DISTANCE_MAX + 1];
	size_t la = strlen(a), lb = strlen(b);

	if (la > DISTANCE_MAX || lb > DISTANCE_MAX)
		return SIZE_MAX;
	for (size_t j = 0; j <= lb; j++)
		row[0][j] = j;
	/*
	 * Optimal string alignment; row[i % 3] is the current row, the other two the ones before
	 * it.
	 */
	for (size_t i = 1; i <= la; i++) {
		size_t *cur = row[i % 3], *prev = row[(i + 2) % 3], *prev2 = row[(i + 1) % 3];

		cur[0] = i;
		for (size_t j = 1; j <= lb; j++) {
			size_t best = prev[j - 1] + (a[i - 1] != b[j - 1]);

			best = MIN(best, MIN(prev[j], cur[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = MIN(best, prev2[j - 2] + 1);
			cur[j] = best;
		}
	}
	return row[la % 3][lb];
}

const char *str_closest(const char *word, const char *const *list)
{
	const char *best = NULL;
	size_t least = SIZE_MAX;

	for (size_t i = 0; list[i]; i++) {
		size_t d = str_distance(word, list[i]);
		size_t longest = MAX(strlen(word), strlen(list[i]));

		if (d < least && d <= (longest + 2) / 3 && d * 2 <= longest) {
			least = d;
			best = list[i];
		}
	}
	for (size_t i = 0; !best && strlen(word) >= 3 && list[i]; i++)
		if (str_has_prefix(list[i], word))
			best = list[i];
	return best;
}
