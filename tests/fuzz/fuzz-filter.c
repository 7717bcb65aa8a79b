/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first line is a known value, the rest is output. The byte after the first line says how it is
 * cut. The same output comes out for every way to cut it, the value never does, and nothing is held
 * back after a pause. A rule file may be anything.
 */
#include <string.h>

#include "base/util.h"
#include "filter/filter-rules.h"
#include "filter/filter.h"
#include "fuzz.h"

enum {
	OUT_MAX = 64 * 1024 * 1024,
};

static struct filter_rules *rules;
static bool on[FILTER_RULES_MAX], off[FILTER_RULES_MAX];
static struct filter *plain;

static void begin(void)
{
	struct err e = ERR_INIT;

	if (rules)
		return;
	assert(filter_rules_read(filter_rules_text, filter_rules_text_n, &rules, &e) == 0);
	for (size_t i = 0; i < rules->n; i++)
		on[i] = rules->rule[i].group == FILTER_SECRETS;
	assert(filter_new(rules, on, NULL, 0, &plain, &e) == 0);
}

static void on_hit(void *arg, const char *name, bool late)
{
	assert(name[0] && !late);
	(*(unsigned int *)arg)++;
}

static unsigned int run(struct filter *f, enum filter_action action, const uint8_t *data,
			size_t size, size_t step, struct buf *out)
{
	unsigned int hits = 0;
	_cleanup_filter_stream_ struct filter_stream *s =
		filter_stream_new(f, action, on_hit, &hits);

	assert(s);
	for (size_t at = 0; at < size; at += MIN(step, size - at)) {
		assert(filter_put(s, data + at, MIN(step, size - at), out) == 0);
		assert(filter_held(s) <= FILTER_HELD_MAX);
	}
	assert(filter_pause(s, out) == 0 && filter_held(s) == 0);
	return hits;
}

static void check(struct filter *f, const uint8_t *data, size_t size, size_t step)
{
	_cleanup_buf_ struct buf whole = BUF_INIT(OUT_MAX), cut = BUF_INIT(OUT_MAX),
				 same = BUF_INIT(OUT_MAX);
	const unsigned int hits = run(f, FILTER_REDACT, data, size, SIZE_MAX, &whole);

	assert(run(f, FILTER_REDACT, data, size, step, &cut) == hits);
	assert(whole.len == cut.len &&
	       (whole.len == 0 || memcmp(whole.data, cut.data, cut.len) == 0));
	assert(whole.len <= size * FILTER_GROWTH_MAX);
	assert(run(f, FILTER_REPORT, data, size, step, &same) == hits);
	assert(same.len == size && (size == 0 || memcmp(same.data, data, size) == 0));
}

/* The redaction itself could complete a value, so only values that it cannot contain are checked.
 */
static void check_known(const uint8_t *value, size_t n, const uint8_t *data, size_t size,
			size_t step)
{
	const struct filter_value v = { .name = "known", .data = (const char *)value, .n = n };
	_cleanup_buf_ struct buf out = BUF_INIT(OUT_MAX);
	_cleanup_filter_ struct filter *f = NULL;
	struct err e = ERR_INIT;

	assert(filter_new(rules, off, &v, 1, &f, &e) == 0);
	check(f, data, size, step);
	(void)run(f, FILTER_REDACT, data, size, step, &out);
	assert(memchr(value, '[', n) || memchr(value, ']', n) || out.len == 0 ||
	       !memmem(out.data, out.len, value, n) || memmem("hutch: redacted", 15, value, n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;
	const size_t n = line ? (size_t)(line - data) : 0;
	_cleanup_filter_rules_ struct filter_rules *read = NULL;
	struct err e = ERR_INIT;
	size_t step;

	begin();
	(void)filter_rules_read((const char *)data, size, &read, &e);
	if (!line || size - n < 2)
		return 0;
	step = 1 + line[1] % 64;
	check(plain, line + 2, size - n - 2, step);
	if (n >= FILTER_VALUE_MIN && n <= 100)
		check_known(data, n, line + 2, size - n - 2, step);
	return 0;
}
