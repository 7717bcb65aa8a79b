/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the scanner of the output filter for tests/bench/filter-scan, which judges:
 *
 *	bench-filter-scan ROUNDS BYTES FILE...
 *
 * puts the files together, up to BYTES, and prints in each round, for the same bytes in pieces of
 * 32 KiB, the processor time in seconds of Hyperscan alone with the filter's database ("bare") and
 * of the filter ("filter").
 *
 *	bench-filter-scan hits FILE...
 *
 * prints "RULE COUNT" for each rule that finds anything, and "bytes COUNT".
 */
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "filter/filter-rules.h"
#include "filter/filter.h"

enum {
	MAX_ROUNDS = 10000,
	MAX_BYTES = 1024 * 1024 * 1024,
	MAX_FILE = 256 * 1024 * 1024,
};

static struct filter_rules *rules;
static uint64_t counts[FILTER_RULES_MAX], bytes;

_noreturn_ static void fail(const char *why)
{
	(void)fprintf(stderr, "bench-filter-scan: %s\n", why);
	exit(1);
}

static struct filter *make_filter(void)
{
	static bool on[FILTER_RULES_MAX];
	struct filter *f = NULL;
	struct err e = ERR_INIT;

	if (filter_rules_read(filter_rules_text, filter_rules_text_n, &rules, &e) < 0)
		fail(e.msg);
	for (size_t i = 0; i < rules->n; i++)
		on[i] = rules->rule[i].group == FILTER_SECRETS;
	if (filter_new(rules, on, NULL, 0, &f, &e) < 0)
		fail(e.msg);
	return f;
}

static double spent(void)
{
	struct timespec t;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) < 0)
		fail("no clock");
	return (double)t.tv_sec + (double)t.tv_nsec / (double)NSEC_PER_SEC;
}

static void on_hit(void *arg, const char *name, bool late)
{
	(void)late;
	(void)arg;
	counts[filter_rules_find(rules, name)]++;
}

static double run_bare(struct filter *f, const struct buf *all)
{
	const double start = spent();

	for (size_t at = 0; at < all->len; at += FILTER_PIECE)
		(void)filter_bare_scan(f, all->data + at, MIN((size_t)FILTER_PIECE, all->len - at));
	return spent() - start;
}

static double run_filter(struct filter *f, const char *data, size_t n)
{
	_cleanup_filter_stream_ struct filter_stream *s =
		filter_stream_new(f, FILTER_REDACT, on_hit, NULL);
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)FILTER_PIECE * FILTER_GROWTH_MAX);
	const double start = spent();

	if (!s)
		fail("out of memory");
	for (size_t at = 0; at < n; at += FILTER_PIECE) {
		buf_reset(&out);
		if (filter_put(s, data + at, MIN((size_t)FILTER_PIECE, n - at), &out) < 0)
			fail("the filter failed");
	}
	buf_reset(&out);
	if (filter_pause(s, &out) < 0)
		fail("the filter failed");
	return spent() - start;
}

static void read_file(const char *path, struct buf *ret)
{
	struct err e = ERR_INIT;

	if (fd_read_file(AT_FDCWD, path, ret, &e) < 0)
		fail(e.msg);
}

static void print_hits(char *const *files)
{
	struct filter *f = make_filter();

	for (; *files; files++) {
		_cleanup_buf_ struct buf one = BUF_INIT(MAX_FILE);

		read_file(*files, &one);
		if (one.len > 0)
			(void)run_filter(f, one.data, one.len);
		bytes += one.len;
	}
	for (size_t i = 0; i < rules->n; i++)
		if (counts[i] > 0)
			(void)printf("%s %llu\n", rules->rule[i].name,
				     (unsigned long long)counts[i]);
	(void)printf("bytes %llu\n", (unsigned long long)bytes);
	(void)filter_free(f);
}

static void measure(uint64_t rounds, size_t most, char *const *files)
{
	struct filter *f = make_filter();
	_cleanup_buf_ struct buf all = BUF_INIT(MAX_BYTES);

	for (; *files && all.len < most; files++) {
		_cleanup_buf_ struct buf one = BUF_INIT(MAX_FILE);

		read_file(*files, &one);
		if (buf_put(&all, one.data, MIN(one.len, most - all.len)) < 0)
			fail("out of memory");
	}
	(void)printf("bytes %zu\n", all.len);
	(void)run_filter(f, all.data, all.len); /* compiles patterns */
	for (uint64_t i = 0; i < rounds; i++) {
		const double bare = run_bare(f, &all);

		(void)printf("bare %.9f\nfilter %.9f\n", bare, run_filter(f, all.data, all.len));
	}
	(void)filter_free(f);
}

int main(int argc, char **argv)
{
	uint64_t rounds = 0, most = 0;

	if (argc >= 3 && str_eq(argv[1], "hits")) {
		print_hits(argv + 2);
	} else if (argc >= 4 && str_to_u64(argv[1], strlen(argv[1]), MAX_ROUNDS, &rounds) == 0 &&
		   str_to_u64(argv[2], strlen(argv[2]), MAX_BYTES, &most) == 0) {
		measure(rounds, (size_t)most, argv + 3);
	} else {
		fail("usage: bench-filter-scan ROUNDS BYTES FILE... | hits FILE...");
	}
	(void)filter_rules_free(rules);
	return fflush(stdout) == 0 ? 0 : 1;
}
