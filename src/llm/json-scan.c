/* SPDX-License-Identifier: Apache-2.0 */
#include "llm/json-scan.h"

#include <string.h>

#include "base/str.h"

#define NUMBER_MAX 1000000000000000ULL

enum {
	AT_VALUE,
	AT_FIRST, /* a value, or the end of an empty array */
	AT_FIRST_KEY,
	AT_KEY,
	AT_COLON,
	AT_AFTER,
	IN_STRING,
	IN_ESCAPE,
	IN_UNICODE,
	IN_NUMBER,
	IN_WORD,
	AT_END,
	BROKEN,
};

void json_scan_init(struct json_scan *s, void (*on_value)(void *, const struct scan_value *),
		    void *arg)
{
	s->on_value = on_value;
	s->arg = arg;
	s->state = AT_VALUE;
	s->is_key = false;
	s->depth = s->path_n = 0;
	s->path[0] = '\0';
}

/* ---- texts and paths ---- */

static void put(struct json_scan *s, char c)
{
	if (s->n < SCAN_TEXT_MAX)
		s->text[s->n] = c;
	s->n++;
}

static const char *text_of(struct json_scan *s)
{
	s->text[s->n < SCAN_TEXT_MAX ? s->n : SCAN_TEXT_MAX] = '\0';
	return s->text;
}

static void extend(struct json_scan *s, const char *part, size_t n)
{
	if (s->path_n + n <= SCAN_PATH_MAX) {
		memcpy(s->path + s->path_n, part, n);
		s->path_n += n;
	} else {
		s->path_n = SCAN_PATH_MAX + 1;
	}
	s->path[s->path_n <= SCAN_PATH_MAX ? s->path_n : 0] = '\0';
}

static void shorten(struct json_scan *s, size_t n)
{
	s->path_n = n;
	s->path[n <= SCAN_PATH_MAX ? n : 0] = '\0';
}

static void report(struct json_scan *s, enum scan_kind kind)
{
	const struct scan_value v = { s->path, kind, text_of(s), s->n };

	if (s->path_n <= SCAN_PATH_MAX)
		s->on_value(s->arg, &v);
}

/* ---- values ---- */

/* The path of an element or member begins. */
static void begin_inside(struct json_scan *s)
{
	shorten(s, s->marks[s->depth - 1]);
	if (s->arrays[s->depth - 1])
		extend(s, "[]", 2);
}

static void name_member(struct json_scan *s)
{
	const char *key = text_of(s);

	shorten(s, s->marks[s->depth - 1]);
	if (s->path_n > 0)
		extend(s, ".", 1);
	if (s->n > SCAN_PATH_MAX || strlen(key) != s->n || strpbrk(key, ".["))
		extend(s, "?", 1);
	else
		extend(s, key, s->n);
}

static int after(const struct json_scan *s)
{
	return s->depth > 0 ? AT_AFTER : AT_END;
}

static int open_nested(struct json_scan *s, bool is_array)
{
	if (s->depth == SCAN_DEPTH_MAX)
		return BROKEN;
	s->n = 0;
	report(s, SCAN_NESTED);
	s->arrays[s->depth] = is_array;
	s->marks[s->depth++] = (uint16_t)s->path_n;
	if (!is_array)
		return AT_FIRST_KEY;
	begin_inside(s);
	return AT_FIRST;
}

static int close_nested(struct json_scan *s, char c)
{
	if (s->depth == 0 || s->arrays[s->depth - 1] != (c == ']'))
		return BROKEN;
	shorten(s, s->marks[--s->depth]);
	return after(s);
}

static int begin_text(struct json_scan *s, bool is_key)
{
	s->n = 0;
	s->is_key = is_key;
	return IN_STRING;
}

static int begin_value(struct json_scan *s, char c)
{
	if (c == '{' || c == '[')
		return open_nested(s, c == '[');
	if (c == '"')
		return begin_text(s, false);
	s->n = 0;
	put(s, c);
	if (c == '-' || ascii_is_digit(c))
		return IN_NUMBER;
	return ascii_is_lower(c) ? IN_WORD : BROKEN;
}

static int end_text(struct json_scan *s)
{
	if (s->is_key) {
		name_member(s);
		return AT_COLON;
	}
	report(s, SCAN_STRING);
	return after(s);
}

static int end_simple(struct json_scan *s)
{
	const char *text = text_of(s);

	if (s->state == IN_NUMBER) {
		report(s, SCAN_NUMBER);
		return after(s);
	}
	if (!str_eq(text, "true") && !str_eq(text, "false") && !str_eq(text, "null"))
		return BROKEN;
	report(s, SCAN_WORD);
	return after(s);
}

/* ---- strings ---- */

static int take_escape(struct json_scan *s, char c)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at = strchr(from, c);

	if (c == 'u') {
		s->code = s->digits = 0;
		return IN_UNICODE;
	}
	if (c == '\0' || !at)
		return BROKEN;
	put(s, to[at - from]);
	return IN_STRING;
}

/* Characters beyond ASCII are of no interest: half a pair of surrogates is 3 bytes, as UTF-8 would
 * be at most. */
static void put_code(struct json_scan *s)
{
	if (s->code == 0) {
		put(s, '\x01'); /* a NUL would end the text */
	} else if (s->code < 0x80) {
		put(s, (char)s->code);
	} else if (s->code < 0x800) {
		put(s, (char)(0xc0 | s->code >> 6));
		put(s, (char)(0x80 | (s->code & 63)));
	} else {
		put(s, (char)(0xe0 | s->code >> 12));
		put(s, (char)(0x80 | (s->code >> 6 & 63)));
		put(s, (char)(0x80 | (s->code & 63)));
	}
}

static int take_unicode(struct json_scan *s, char c)
{
	const char low = ascii_lower(c);

	if (!ascii_is_digit(c) && !(low >= 'a' && low <= 'f'))
		return BROKEN;
	s->code = s->code * 16 + (unsigned int)(ascii_is_digit(c) ? c - '0' : low - 'a' + 10);
	if (++s->digits < 4)
		return IN_UNICODE;
	put_code(s);
	return IN_STRING;
}

static int take_text(struct json_scan *s, char c)
{
	if (c == '"')
		return end_text(s);
	if (c == '\\')
		return IN_ESCAPE;
	if ((unsigned char)c < ' ')
		return BROKEN;
	put(s, c);
	return IN_STRING;
}

/* ---- bytes ---- */

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool in_simple(const struct json_scan *s, char c)
{
	if (s->state == IN_WORD)
		return ascii_is_lower(c) && s->n < STRLEN("false");
	return ascii_is_digit(c) || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-';
}

static int take_after(struct json_scan *s, char c)
{
	if (c == '}' || c == ']')
		return close_nested(s, c);
	if (c != ',')
		return BROKEN;
	begin_inside(s);
	return s->arrays[s->depth - 1] ? AT_VALUE : AT_KEY;
}

static int take_between(struct json_scan *s, char c)
{
	switch (s->state) {
	case AT_FIRST:
		return c == ']' ? close_nested(s, c) : begin_value(s, c);
	case AT_VALUE:
		return begin_value(s, c);
	case AT_FIRST_KEY:
		return c == '}' ? close_nested(s, c) : c == '"' ? begin_text(s, true) : BROKEN;
	case AT_KEY:
		return c == '"' ? begin_text(s, true) : BROKEN;
	case AT_COLON:
		return c == ':' ? AT_VALUE : BROKEN;
	case AT_AFTER:
		return take_after(s, c);
	default:
		return BROKEN;
	}
}

static int take(struct json_scan *s, char c)
{
	switch (s->state) {
	case IN_STRING:
		return take_text(s, c);
	case IN_ESCAPE:
		return take_escape(s, c);
	case IN_UNICODE:
		return take_unicode(s, c);
	default:
		break;
	}
	if (s->state == IN_NUMBER || s->state == IN_WORD) {
		if (in_simple(s, c)) {
			put(s, c);
			return s->state;
		}
		s->state = end_simple(s);
	}
	return is_space(c) && s->state != BROKEN ? s->state : take_between(s, c);
}

/* Most bytes are the inside of a long string. */
static size_t skip_text(struct json_scan *s, const char *data, size_t n)
{
	size_t i = 0;

	while (i < n && data[i] != '"' && data[i] != '\\' && (unsigned char)data[i] >= ' ')
		i++;
	for (size_t k = 0; k < i && s->n + k < SCAN_TEXT_MAX; k++)
		s->text[s->n + k] = data[k];
	s->n += i;
	return i;
}

bool json_scan_feed(struct json_scan *s, const char *data, size_t n)
{
	size_t i = 0;

	while (i < n && s->state != BROKEN) {
		if (s->state == IN_STRING)
			i += skip_text(s, data + i, n - i);
		if (i < n)
			s->state = take(s, data[i++]);
	}
	return s->state != BROKEN;
}

bool json_scan_end(struct json_scan *s)
{
	if (s->depth == 0 && (s->state == IN_NUMBER || s->state == IN_WORD))
		s->state = end_simple(s);
	return s->state == AT_END;
}

bool scan_number(const struct scan_value *v, uint64_t *ret)
{
	return v->kind == SCAN_NUMBER && str_to_u64(v->text, v->n, NUMBER_MAX, ret) == 0;
}
