/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON piece by piece, in bounded memory: reports each simple value with the path of its
 * keys, and forgets it. Request and response bodies of models may have megabytes, of which a
 * handful of values matter.
 *
 *	{"usage": {"output_tokens": 5}}		usage.output_tokens
 *	{"a": [{"b": 1}, 2]}			a[].b and a[]
 *
 * A key with "." or "[" is "?" in the path, so that no other spelling makes a known path.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SCAN_DEPTH_MAX = 256,
	SCAN_PATH_MAX = 120, /* values with longer paths are not reported */
	SCAN_TEXT_MAX = 256, /* bytes of a string that are kept; the rest is counted */
};

enum scan_kind {
	SCAN_STRING,
	SCAN_NUMBER,
	SCAN_WORD,   /* true, false, null */
	SCAN_NESTED, /* an object or array begins */
};

struct scan_value {
	const char *path;
	enum scan_kind kind;
	const char *text; /* decoded, at most SCAN_TEXT_MAX bytes, with a NUL after them */
	uint64_t n;	  /* bytes of the whole decoded string */
};

struct json_scan {
	void (*on_value)(void *arg, const struct scan_value *v);
	void *arg;
	int state;
	bool is_key;
	unsigned int code, digits; /* of \uXXXX */
	size_t depth;
	uint16_t marks[SCAN_DEPTH_MAX]; /* length of the path outside of each open value */
	bool arrays[SCAN_DEPTH_MAX];
	size_t path_n; /* may be beyond SCAN_PATH_MAX: too long */
	char path[SCAN_PATH_MAX + 1];
	uint64_t n;
	char text[SCAN_TEXT_MAX + 1];
};

void json_scan_init(struct json_scan *s, void (*on_value)(void *, const struct scan_value *),
		    void *arg);

/* Takes all bytes. False: not JSON, now or before; nothing more is reported. */
bool json_scan_feed(struct json_scan *s, const char *data, size_t n);

/* Is one complete value read, with nothing but spaces after it? Ends a number. */
bool json_scan_end(struct json_scan *s);

/* The value as a whole number; false: another value, or beyond 10^15. */
bool scan_number(const struct scan_value *v, uint64_t *ret);
