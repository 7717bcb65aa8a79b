/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scanner of the output filter: finds secrets and personal data in streams, and takes them out.
 * No input or output; Hyperscan does the searching.
 *
 * A filter is compiled once from rules and known values. Its database has only literals: the `find`
 * lines of rules, and the known values with their encodings. Clean bytes meet nothing else. Where
 * the literal of a rule occurs, the rule's own pattern, compiled when it is first needed, searches
 * the bytes around it. (One database of all patterns takes seconds to compile and is ten times
 * slower.)
 *
 * A stream releases a byte when no match can contain it any more: at the next byte that cannot be
 * part of a match (a line end, any control character), or after the longest possible match. A
 * caller that sees no more bytes for a while calls filter_pause(), so a prompt is not held back for
 * ever. If a match then turns out to contain released bytes, its rest is still taken out, and the
 * hit is reported as late.
 */
#pragma once

#include "base/buf.h"
#include "filter/rules.h"

enum {
	FILTER_VALUES_MAX = 64,
	FILTER_VALUE_MIN = 6, /* shorter known values are not searched for */
	FILTER_VALUE_MAX = 8 * 1024,
	FILTER_PREFIX_MAX = 64, /* bytes of a known value that are searched for */
	FILTER_TOKEN_TAIL_MAX = 8 * 1024,
	FILTER_PEM_TAIL_MAX = 16 * 1024,
	FILTER_PIECE = 32 * 1024,		/* bytes scanned at once */
	FILTER_HELD_MAX = FILTER_WIDTH_MAX + 1, /* bytes that a stream holds back, at most */
	FILTER_HIT_NAME_MAX = 80,
	/* An input byte becomes at most this many: a text of FILTER_TEXT_MAX for 6 bytes. */
	FILTER_TEXT_MAX = FILTER_HIT_NAME_MAX + 24,
	FILTER_GROWTH_MAX = FILTER_TEXT_MAX / FILTER_WIDTH_MIN + 1,
};

enum filter_action {
	FILTER_OFF,
	FILTER_REDACT, /* a text replaces each match */
	FILTER_BLOCK,  /* a text replaces the first match and everything after it */
	FILTER_REPORT, /* bytes pass unchanged and at once */
	FILTER_ACTIONS,
};
const char *filter_action_name(enum filter_action i);

/* A secret of the sandbox. */
struct filter_value {
	const char *name, *data;
	size_t n;
};

struct filter;

/*
 * Compiles the rules whose `on` is true, and the values. The rules must outlive the filter; values
 * are copied. The caller frees *ret after all its streams.
 */
int filter_new(const struct filter_rules *rules, const bool *on, const struct filter_value *values,
	       size_t n_values, struct filter **ret, struct err *e);
struct filter *filter_free(struct filter *f);
DEFINE_CLEANUP(struct filter *, cleanup_filter, filter_free);
#define _cleanup_filter_ _cleanup_(cleanup_filter)

/* Runs Hyperscan alone over bytes, with the filter's database: for benchmarks. Returns the number
 * of literals found. */
uint64_t filter_bare_scan(struct filter *f, const void *data, size_t n);

/* Called for each match; `late`: a part of it was released before. `name` is the rule's, or
 * "secret:NAME" for a known value. */
typedef void filter_hit(void *arg, const char *name, bool late);

struct filter_stream;

/* NULL: out of memory. The filter must outlive the stream. */
struct filter_stream *filter_stream_new(struct filter *f, enum filter_action action,
					filter_hit *hit, void *arg);
struct filter_stream *filter_stream_free(struct filter_stream *s);
DEFINE_CLEANUP(struct filter_stream *, cleanup_filter_stream, filter_stream_free);
#define _cleanup_filter_stream_ _cleanup_(cleanup_filter_stream)

/* Takes bytes and appends to `out` those that may leave. 0, or -errno: the stream then releases
 * nothing more. */
int filter_put(struct filter_stream *s, const void *data, size_t n, struct buf *out);

/* Releases the held bytes; more may come. Call it at the end, too. */
int filter_pause(struct filter_stream *s, struct buf *out);

/* Number of bytes held back. */
size_t filter_held(const struct filter_stream *s);
