/* SPDX-License-Identifier: Apache-2.0 */
/* Text: strict numbers, UTF-8, escaping for display, and spelling suggestions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"

static inline bool str_eq(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

static inline bool str_has_prefix(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_has_suffix(const char *s, const char *suffix);

/* Returns true if `word` is in `list`, between separators (space, comma, newline, tab). */
bool str_has_word(const char *list, const char *word);

static inline bool ascii_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline bool ascii_is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

static inline bool ascii_is_upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

static inline char ascii_lower(char c)
{
	return ascii_is_upper(c) ? (char)(c | 0x20) : c;
}

/*
 * Parses `n` bytes of `s`: decimal digits only, no sign, no space, no leading zero (except "0"), at
 * most `max`. -EINVAL if it is not such a number, -ERANGE if it is above `max`.
 */
int str_to_u64(const char *s, size_t n, uint64_t max, uint64_t *ret);

/*
 * Returns the length of the UTF-8 sequence at `s` (1 to 4) and its code point, or 0 if the bytes
 * are not UTF-8.
 */
size_t utf8_decode(const char *s, size_t n, uint32_t *ret);
bool utf8_valid(const char *s, size_t n);

/* Replaces every byte that is not part of a UTF-8 character by '?'. */
void str_make_utf8(char *s);

/*
 * Appends untrusted text escaped for display: control bytes, C1, bidirectional and zero-width marks
 * and bytes that are not UTF-8 become \n, \x1b, \u{202e}; a backslash becomes two. One line stays
 * one line.
 */
int str_escape(struct buf *b, const char *s, size_t n);

/* Returns whether a terminal shows the text unchanged: valid UTF-8 that str_escape() would not
 * escape. */
bool str_is_visible(const char *s, size_t n);

/*
 * Returns the number of edits (insert, delete, replace, swap of neighbours) between two short
 * words; SIZE_MAX past 64 bytes.
 */
size_t str_distance(const char *a, const char *b);

/*
 * Returns the word of a NULL-terminated list that `word` probably meant, or NULL: the closest one,
 * by at most one edit for every three letters begun and with half of it right; else the first with
 * `word` as prefix. "pipy" finds pypi, "mem" finds memory, "foo" finds nothing.
 */
const char *str_closest(const char *word, const char *const *list);
