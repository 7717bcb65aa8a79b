/* SPDX-License-Identifier: Apache-2.0 */
/* Streaming replacement of secrets, against a plain search over the whole text. */
#include "unit.h"

#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/str.h"
#include "tap/mask.h"
#include "tap/percent.h"

static uint32_t seed = 1;

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % below;
}

static struct mask *mask_of(const char *value, const char *user)
{
	struct mask *m = mask_new(NULL);

	assert_non_null(m);
	assert_int_equal(mask_add(m, value, strlen(value), user), 0);
	return m;
}

static void check_text(const char *value, const char *text, const char *wanted)
{
	struct mask *m = mask_of(value, NULL);
	_cleanup_free_ char *copy = strdup(text);

	mask_text(m, copy, strlen(copy));
	assert_string_equal(copy, wanted);
	assert_int_equal(mask_take_hit(m), strcmp(text, wanted) != 0);
	assert_false(mask_take_hit(m));
	(void)mask_free(m);
}

TEST(test_forms)
{
	check_text("secret/+value", "a secret/+value, secret/+valu",
		   "a *************, secret/+valu");
	check_text("secret/+value", "a=secret%2F%2Bvalue&b", "a=*****************&b");
	check_text("secret/+value", "a=secret%2f%2bvalue&b", "a=*****************&b");
	check_text("secret/+value", "{\"a\":\"secret\\/+value\"}", "{\"a\":\"**************\"}");
	check_text("secret/+value", "a=secret/%2Bvalue&b", "a=***************&b");
	check_text("secret/+value", "a=secret/%2bvalue&b", "a=***************&b");
	check_text("secret/+value", "{\"a\":\"secret/\\u002Bvalue\"}",
		   "{\"a\":\"******************\"}");
	/* Overlapping matches are all covered. */
	check_text("abab-abab", "xabab-abab-ababx", "x**************x");
	check_text("abc", "abcabc", "abcabc"); /* too short */
	check_text("abcd", "abcabcd", "abc****");
	check_text("secret", "", "");
}

/* In base64, at each alignment, at most one character at either end shows bits of the value. */
TEST(test_base64)
{
	const char *value = "s3cr\xfft\xfe-value>?";

	for (size_t before = 0; before < 9; before++) {
		for (size_t after = 0; after < 4; after++) {
			_cleanup_buf_ struct buf raw = BUF_INIT(256), text = BUF_INIT(256);
			struct mask *m = mask_of(value, NULL);
			size_t n, first, stars = 0;

			for (size_t i = 0; i < before; i++)
				(void)buf_putc(&raw, 'x');
			(void)buf_puts(&raw, value);
			for (size_t i = 0; i < after; i++)
				(void)buf_putc(&raw, 'y');
			(void)base64_put(&text, raw.data, raw.len);
			if (before % 2)
				for (size_t i = 0; i < text.len; i++)
					text.data[i] = text.data[i] == '+'   ? '-'
						       : text.data[i] == '/' ? '_'
									     : text.data[i];
			n = text.len;
			mask_text(m, text.data, n);
			assert_true(mask_take_hit(m));
			first = strcspn(text.data, "*");
			stars = strspn(text.data + first, "*");
			assert_true(first * 6 < before * 8 + 6);
			assert_true((first + stars + 1) * 6 > (before + strlen(value)) * 8);
			(void)mask_free(m);
		}
	}
}

TEST(test_basic)
{
	struct mask *m = mask_of("password", "user");
	char text[] = "Basic dXNlcjpwYXNzd29yZA==";

	mask_text(m, text, strlen(text));
	assert_string_equal(text, "Basic *****************A==");
	(void)mask_free(m);
}

/* All matches of all patterns, the slow way. */
static void mask_slowly(char *out, const char *text, size_t n, const char *const *values)
{
	memcpy(out, text, n);
	for (; *values; values++) {
		size_t len = strlen(*values);

		for (size_t i = 0; i + len <= n; i++)
			if (memcmp(text + i, *values, len) == 0)
				memset(out + i, '*', len);
	}
}

static bool is_prefix(const char *s, size_t n, const char *const *values)
{
	for (; *values; values++)
		if (n < strlen(*values) && memcmp(s, *values, n) == 0)
			return true;
	return false;
}

/* Few letters, so that texts are full of matches and beginnings of matches. */
TEST(test_random)
{
	/* The base64 forms of these have other letters, so only the plain forms can match. */
	static const char *const values[] = { "aaba", "abaab", "aabaaabaaab", "bbabbbbabb", NULL };

	for (int round = 0; round < 20000; round++) {
		unsigned int probes = 0;
		struct mask *m = mask_new(&probes);
		char text[96], wanted[96], got[96];
		size_t n = draw(sizeof(text)), at = 0, out = 0, part_n;
		const char *part;

		for (size_t i = 0; values[i]; i++)
			assert_int_equal(mask_add(m, values[i], strlen(values[i]), NULL), 0);
		for (size_t i = 0; i < n; i++)
			text[i] = draw(8) == 0 ? 'c' : (char)('a' + draw(2));
		mask_slowly(wanted, text, n, values);
		while (at < n) {
			size_t piece = 1 + draw((uint32_t)(n - at));

			probes = round % 2 ? MASK_PROBES_MAX : 0;
			assert_int_equal(mask_feed(m, text + at, piece, &part, &part_n), 0);
			memcpy(got + out, part, part_n);
			out += part_n;
			at += piece;
			/* Held back is only what may become a match. */
			assert_true(out == at || probes == MASK_PROBES_MAX ||
				    is_prefix(text + out, at - out, values));
		}
		assert_int_equal(mask_end(m, &part, &part_n), 0);
		memcpy(got + out, part, part_n);
		assert_int_equal(out + part_n, n);
		assert_memory_equal(got, wanted, n);
		(void)mask_free(m);
	}
}

/* At most MASK_RELEASE_MAX bytes are released, and none once a reader has guessed too often.
 * Released bytes are unmasked unless a match covers them already; all others are masked. */
TEST(test_release)
{
	static const char *const values[] = { "aaba", "abaab", "aabaaabaaab", "bbabbbbabb", NULL };

	for (int round = 0; round < 20000; round++) {
		unsigned int probes = 0;
		struct mask *m = mask_new(&probes);
		char text[96], wanted[96], got[96];
		bool early[96] = { false };
		size_t n = draw(sizeof(text)), at = 0, out = 0, part_n;
		const char *part;

		for (size_t i = 0; values[i]; i++)
			assert_int_equal(mask_add(m, values[i], strlen(values[i]), NULL), 0);
		for (size_t i = 0; i < n; i++)
			text[i] = draw(8) == 0 ? 'c' : (char)('a' + draw(2));
		mask_slowly(wanted, text, n, values);
		while (at < n) {
			size_t piece = 1 + draw((uint32_t)MIN(n - at, (size_t)8));

			assert_int_equal(mask_feed(m, text + at, piece, &part, &part_n), 0);
			memcpy(got + out, part, part_n);
			out += part_n;
			at += piece;
			probes = round % 4 ? 0 : MASK_PROBES_MAX;
			if (round % 4 == 0)
				assert_false(mask_holds(m));
			if (draw(2) == 0)
				continue;
			assert_int_equal(mask_release(m, &part, &part_n), 0);
			assert_in_range(part_n, 0, round % 4 ? MASK_RELEASE_MAX : 0);
			memcpy(got + out, part, part_n);
			memset(early + out, true, part_n);
			out += part_n;
			assert_false(mask_holds(m));
		}
		assert_int_equal(mask_end(m, &part, &part_n), 0);
		memcpy(got + out, part, part_n);
		assert_int_equal(out + part_n, n);
		for (size_t i = 0; i < n; i++)
			assert_true(got[i] == wanted[i] || (early[i] && got[i] == text[i]));
		(void)mask_free(m);
	}
}

/* A value may be a form of another value: its own forms are added all the same. */
TEST(test_nested)
{
	struct mask *m = mask_of("secret", NULL);
	char text[] = "secret c2VjcmV0 YzJWamNtVjA=";

	assert_int_equal(mask_add(m, "c2VjcmV0", 8, NULL), 0);
	assert_int_equal(mask_add(m, "secret", 6, NULL), 0);
	mask_text(m, text, strlen(text));
	assert_string_equal(text, "****** ******** **********A=");
	(void)mask_free(m);
}

TEST(test_none)
{
	const char *part;
	size_t n;

	assert_int_equal(mask_feed(NULL, "abc", 3, &part, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(mask_end(NULL, &part, &n), 0);
	assert_int_equal(n, 0);
	assert_false(mask_take_hit(NULL));
}

TEST(test_long)
{
	struct mask *m = mask_new(NULL);
	static char value[8192], text[3 * sizeof(value)];
	const char *part;
	size_t n, total = 0;

	for (size_t i = 0; i < sizeof(value); i++)
		value[i] = (char)('a' + draw(26));
	assert_int_equal(mask_add(m, value, sizeof(value), NULL), 0);
	memset(text, '-', sizeof(text));
	memcpy(text + 5000, value, sizeof(value));
	for (size_t at = 0; at < sizeof(text); at += 1000) {
		size_t piece = MIN((size_t)1000, sizeof(text) - at);

		assert_int_equal(mask_feed(m, text + at, piece, &part, &n), 0);
		assert_null(memmem(part, n, value, 16));
		total += n;
	}
	assert_int_equal(mask_end(m, &part, &n), 0);
	assert_int_equal(total + n, sizeof(text));
	assert_true(mask_take_hit(m));
	(void)mask_free(m);
}

/* ---- guessing ---- */

#define GUESSED "sk-pub-4jX9vQ2mT7bLz0Rn8Wc5Kd"

/* Does the stream pause before `known` and `c`? Each guess is a response of its own. `leave`: the
 * connection breaks there; otherwise text follows that completes no secret. */
static bool pauses(unsigned int *probes, const char *known, size_t n_known, char c, bool leave)
{
	_cleanup_buf_ struct buf text = BUF_INIT(4096);
	struct mask *m = mask_new(probes);
	size_t n = 0, held;
	const char *out;

	assert_non_null(m);
	assert_int_equal(mask_add(m, GUESSED, strlen(GUESSED), NULL), 0);
	for (size_t i = 0; i < 2000; i++)
		(void)buf_putc(&text, '.');
	(void)buf_put(&text, known, n_known);
	(void)buf_putc(&text, c);
	assert_int_equal(mask_feed(m, text.data, text.len, &out, &n), 0);
	held = text.len - n;
	if (!leave) {
		assert_int_equal(mask_feed(m, "....", 4, &out, &n), 0);
		assert_int_equal(mask_end(m, &out, &n), 0);
	}
	(void)mask_free(m);
	return held == n_known + 1;
}

/* How many bytes of the secret someone learns who knows its public beginning. */
static size_t learn(unsigned int *probes, bool leave)
{
	char known[sizeof(GUESSED)] = "sk-pub-";
	size_t n = strlen(known), before = n;

	while (n < strlen(GUESSED)) {
		char right = 0, wrong = 0;

		for (char c = '0'; c <= 'z'; c++)
			if (pauses(probes, known, n, c, leave)) {
				wrong = right;
				right = c;
			}
		if (!right || wrong) /* none or several: no knowledge */
			break;
		known[n++] = right;
	}
	assert_memory_equal(known, GUESSED, n);
	return n - before;
}

TEST(test_guesses)
{
	for (int leave = 0; leave < 2; leave++) {
		unsigned int shared = 0;

		/* The control: masks that know nothing of each other show all but the last byte,
		 * which completes the secret. */
		assert_int_equal(learn(NULL, leave), strlen(GUESSED) - strlen("sk-pub-") - 1);
		assert_in_range(learn(&shared, leave), 0, MASK_PROBES_MAX);
		assert_int_equal(learn(&shared, leave), 0);
	}
}

/* After many guesses, the mask works as before, and holds back no more than it must. */
TEST(test_after_guesses)
{
	unsigned int shared = MASK_PROBES_MAX;
	struct mask *m = mask_new(&shared);
	_cleanup_buf_ struct buf all = BUF_INIT(4096);
	const char *text = "before " GUESSED " between " GUESSED, *out;
	size_t n;

	assert_int_equal(mask_add(m, GUESSED, strlen(GUESSED), NULL), 0);
	for (size_t i = 0; i < strlen(text); i++) {
		assert_int_equal(mask_feed(m, text + i, 1, &out, &n), 0);
		(void)buf_put(&all, out, n);
	}
	assert_true(all.len + 100 > strlen(text));
	assert_int_equal(mask_end(m, &out, &n), 0);
	(void)buf_put(&all, out, n);
	assert_int_equal(all.len, strlen(text));
	assert_null(strstr(buf_text(&all), "sk-pub"));
	assert_non_null(strstr(buf_text(&all), "* between *"));
	(void)mask_free(m);
}

/* Prints the speed without a match. */
TEST(test_speed)
{
	enum {
		SIZE = 64 * 1024,
		ROUNDS = 4000
	};
	struct mask *m = mask_of("sk-ant-api03-9cJ2mK8QwX4vT7bR1nZ5", NULL);
	_cleanup_free_ char *text = malloc(SIZE);
	uint64_t best = UINT64_MAX;
	const char *part;
	size_t n;

	for (size_t i = 0; i < SIZE; i++)
		text[i] = (char)draw(256);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t start = clock_mono(), spent;

		assert_int_equal(mask_feed(m, text, SIZE, &part, &n), 0);
		spent = clock_mono() - start;
		best = MIN(best, spent);
	}
	print_message("# %.2f GB/s\n", (double)SIZE / (double)best);
	(void)mask_free(m);
}
