/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/str.h"

/* Parses exactly the bytes of `s`; the memory after them is not readable. */
static int number(const char *s, uint64_t max, uint64_t *ret)
{
	_cleanup_free_ char *raw = unit_copy(s, strlen(s));

	return str_to_u64(raw, strlen(s), max, ret);
}

TEST(prefixes_and_suffixes)
{
	assert_true(str_eq("a", "a"));
	assert_false(str_eq("a", "ab"));
	assert_true(str_has_prefix("hutch", "hu"));
	assert_true(str_has_prefix("hutch", ""));
	assert_false(str_has_prefix("hu", "hutch"));
	assert_true(str_has_suffix("hutch", "tch"));
	assert_true(str_has_suffix("hutch", "hutch"));
	assert_true(str_has_suffix("hutch", ""));
	assert_false(str_has_suffix("tch", "hutch"));
	assert_false(str_has_suffix("hutcH", "h"));
}

TEST(ascii_only)
{
	assert_true(ascii_is_digit('0') && ascii_is_digit('9'));
	assert_false(ascii_is_digit('/') || ascii_is_digit(':'));
	assert_true(ascii_is_lower('a') && ascii_is_lower('z') && !ascii_is_lower('A'));
	assert_true(ascii_is_upper('A') && ascii_is_upper('Z') && !ascii_is_upper('['));
	assert_int_equal(ascii_lower('Q'), 'q');
	assert_int_equal(ascii_lower('1'), '1');
	assert_int_equal(ascii_lower('\xc4'), '\xc4');
}

TEST(numbers)
{
	uint64_t v = 1;

	assert_int_equal(number("0", 0, &v), 0);
	assert_true(v == 0);
	assert_int_equal(number("42", 42, &v), 0);
	assert_true(v == 42);
	assert_int_equal(number("18446744073709551615", UINT64_MAX, &v), 0);
	assert_true(v == UINT64_MAX);
}

TEST(no_numbers)
{
	static const char *const bad[] = { "",	  "00",	  "01",	 "+1",
					   "-1",  " 1",	  "1 ",	 "1.0",
					   "1e3", "0x1f", "1k",	 "1\n",
					   "abc", "١",	  "1_0", "99999999999999999999x" };
	uint64_t v = 7;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(number(bad[i], UINT64_MAX, &v), -EINVAL);
	assert_int_equal(str_to_u64("1\0", 2, 100, &v), -EINVAL);
	assert_true(v == 7); /* written only on success */
}

TEST(numbers_too_large)
{
	uint64_t v = 7;

	assert_int_equal(number("43", 42, &v), -ERANGE);
	assert_int_equal(number("1", 0, &v), -ERANGE);
	assert_int_equal(number("18446744073709551616", UINT64_MAX, &v), -ERANGE);
	assert_int_equal(number("184467440737095516150", UINT64_MAX, &v), -ERANGE);
	assert_int_equal(number("99999999999999999999999999999999", UINT64_MAX, &v), -ERANGE);
	assert_true(v == 7);
}

static size_t decode(const char *s, size_t n, uint32_t *ret)
{
	_cleanup_free_ char *raw = unit_copy(s, n);

	return utf8_decode(raw, n, ret);
}

TEST(utf8_boundaries)
{
	static const struct {
		const char *text;
		size_t len;
		uint32_t cp;
	} good[] = {
		{ "\x00", 1, 0 },
		{ "\x7f", 1, 0x7f },
		{ "\xc2\x80", 2, 0x80 },
		{ "\xdf\xbf", 2, 0x7ff },
		{ "\xe0\xa0\x80", 3, 0x800 },
		{ "\xed\x9f\xbf", 3, 0xd7ff },
		{ "\xee\x80\x80", 3, 0xe000 },
		{ "\xef\xbf\xbf", 3, 0xffff },
		{ "\xf0\x90\x80\x80", 4, 0x10000 },
		{ "\xf4\x8f\xbf\xbf", 4, 0x10ffff },
	};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		uint32_t cp = 1;

		assert_int_equal(decode(good[i].text, good[i].len, &cp), good[i].len);
		assert_int_equal(cp, good[i].cp);
		for (size_t cut = 0; cut < good[i].len; cut++)
			assert_int_equal(decode(good[i].text, cut, &cp), 0);
	}
}

TEST(not_utf8)
{
	static const char *const bad[] = {
		"\x80",
		"\xbf",
		"\xc0\x80", /* overlong NUL */
		"\xc1\xbf",
		"\xe0\x80\x80",
		"\xe0\x9f\xbf",
		"\xf0\x80\x80\x80",
		"\xf0\x8f\xbf\xbf",
		"\xed\xa0\x80", /* surrogates */
		"\xed\xbf\xbf",
		"\xf4\x90\x80\x80", /* past U+10FFFF */
		"\xf5\x80\x80\x80",
		"\xf8\x88\x80\x80",
		"\xfe",
		"\xff",
		"\xc2\x41",
		"\xe2\x82\x41",
		"\xf0\x9f\x90\xc0",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		uint32_t cp = 7;

		assert_int_equal(decode(bad[i], strlen(bad[i]), &cp), 0);
		assert_int_equal(cp, 7);
		assert_false(utf8_valid(bad[i], strlen(bad[i])));
	}
}

TEST(whole_texts)
{
	assert_true(utf8_valid("", 0));
	assert_true(utf8_valid("grün \xf0\x9f\x90\xb0", strlen("grün \xf0\x9f\x90\xb0")));
	assert_false(utf8_valid("ok\xff", 3));
	assert_false(utf8_valid("ok\xe2\x82", 4));
}

static void assert_escaped_n(const char *in, size_t n, const char *want)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1000);
	_cleanup_free_ char *raw = unit_copy(in, n);

	assert_int_equal(str_escape(&b, raw, n), 0);
	assert_string_equal(buf_text(&b), want);
}

static void assert_escaped(const char *in, const char *want)
{
	assert_escaped_n(in, strlen(in), want);
}

TEST(what_can_be_seen_stays)
{
	assert_escaped("", "");
	assert_escaped("plain text ~ \"quoted\"", "plain text ~ \"quoted\"");
	assert_escaped("grün 日本 \xf0\x9f\x90\xb0", "grün 日本 \xf0\x9f\x90\xb0");
	assert_escaped("\xc2\xa0", "\xc2\xa0"); /* the first after C1 */
	assert_escaped("\xc2\xae", "\xc2\xae"); /* the one after the soft hyphen */
}

TEST(controls_are_escaped)
{
	assert_escaped("a\nb\rc\td", "a\\nb\\rc\\td");
	assert_escaped("\x1b[31m", "\\x1b[31m");
	assert_escaped("\x01\x1f\x7f", "\\x01\\x1f\\x7f");
	assert_escaped_n("a\0b", 3, "a\\x00b");
	assert_escaped("\xc2\x9b", "\\u{9b}"); /* C1: CSI */
	assert_escaped("\xc2\x80\xc2\x9f", "\\u{80}\\u{9f}");
	assert_escaped("\\n", "\\\\n"); /* distinct from an escaped newline */
}

TEST(marks_are_escaped)
{
	assert_escaped("\xe2\x80\xae", "\\u{202e}"); /* right-to-left override */
	assert_escaped("\xe2\x81\xa6\xe2\x81\xa9", "\\u{2066}\\u{2069}"); /* isolates */
	assert_escaped("\xe2\x80\x8b", "\\u{200b}");			  /* zero width space */
	assert_escaped("\xe2\x80\x8d", "\\u{200d}");			  /* joiner */
	assert_escaped("\xe2\x80\xa8", "\\u{2028}");			  /* line separator */
	assert_escaped("\xef\xbb\xbf", "\\u{feff}");
	assert_escaped("\xd8\x9c", "\\u{61c}");
	assert_escaped("\xc2\xad", "\\u{ad}");
	assert_escaped("\xef\xb8\x8f", "\\u{fe0f}");	  /* variation selector */
	assert_escaped("\xf3\xa0\x81\x81", "\\u{e0041}"); /* tag letter: hidden ASCII */
	assert_escaped("\xf3\xa0\x84\x80", "\\u{e0100}"); /* variation selector: hidden bytes */
	assert_escaped("\xe3\x85\xa4", "\\u{3164}");	  /* Hangul filler */
}

TEST(bytes_are_escaped)
{
	assert_escaped("a\xff", "a\\xff");
	assert_escaped("\xe2\x82", "\\xe2\\x82"); /* cut off */
	assert_escaped("\xc0\x8a", "\\xc0\\x8a"); /* an overlong newline */
	assert_escaped("\xed\xa0\x80x", "\\xed\\xa0\\x80x");
}

TEST(escaping_is_bounded)
{
	_cleanup_buf_ struct buf b = BUF_INIT(5);

	assert_int_equal(str_escape(&b, "ab\x1b", 3), -ENOBUFS);
	assert_string_equal(buf_text(&b), "ab"); /* no partial escape */
}

TEST(every_escaped_byte_string_is_one_clean_line)
{
	uint32_t seed = 1;

	for (int round = 0; round < 2000; round++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1000);
		char in[32];

		for (size_t i = 0; i < sizeof(in); i++) {
			seed = seed * 1664525 + 1013904223;
			in[i] = (char)(seed >> 24);
		}
		assert_int_equal(str_escape(&b, in, sizeof(in)), 0);
		assert_true(utf8_valid(b.data, b.len));
		assert_true(b.len <= 4 * sizeof(in)); /* log.c relies on this */
		for (size_t i = 0; i < b.len; i++)
			assert_true((unsigned char)b.data[i] >= 0x20 && b.data[i] != 0x7f);
	}
}

TEST(distances)
{
	char word[66];

	assert_int_equal(str_distance("", ""), 0);
	assert_int_equal(str_distance("abc", "abc"), 0);
	assert_int_equal(str_distance("", "abc"), 3);
	assert_int_equal(str_distance("abc", ""), 3);
	assert_int_equal(str_distance("abc", "abd"), 1);
	assert_int_equal(str_distance("abc", "acb"), 1); /* swap */
	assert_int_equal(str_distance("abc", "abcd"), 1);
	assert_int_equal(str_distance("kitten", "sitting"), 3);
	assert_int_equal(str_distance("sitting", "kitten"), 3);
	memset(word, 'x', sizeof(word));
	word[64] = '\0';
	assert_int_equal(str_distance(word, word), 0);
	assert_int_equal(str_distance(word, ""), 64);
	word[64] = 'x';
	word[65] = '\0';
	assert_true(str_distance(word, "x") == SIZE_MAX);
	assert_true(str_distance("x", word) == SIZE_MAX);
}

TEST(closest)
{
	static const char *const list[] = { "github", "gitlab", "pypi", "npm", "git", NULL };
	static const char *const none[] = { NULL };

	assert_string_equal(str_closest("gihub", list), "github");
	assert_string_equal(str_closest("githbu", list), "github");
	assert_string_equal(str_closest("pipy", list), "pypi");
	assert_string_equal(str_closest("pyp", list), "pypi");
	assert_string_equal(str_closest("npn", list), "npm");
	assert_string_equal(str_closest("git", list), "git"); /* the nearest, not the first */
	assert_string_equal(str_closest("gitla", list), "gitlab");
	assert_string_equal(str_closest("mem", (const char *const[]){ "pids", "memory", NULL }),
			    "memory");
	assert_null(str_closest("me", (const char *const[]){ "pids", "memory", NULL }));
	assert_null(str_closest("foo", list));
	assert_null(str_closest("", list));
	assert_null(str_closest("x", list));
	assert_null(str_closest("git", none));
}

TEST(closest_has_limits)
{
	static const char *const list[] = { "q", "ab", "abcdef", "mnopqrs", NULL };

	assert_string_equal(str_closest("ax", list), "ab");
	assert_string_equal(str_closest("abcdxy", list), "abcdef");   /* 2 of 6 */
	assert_null(str_closest("abcxyz", list));		      /* 3 of 6 */
	assert_string_equal(str_closest("mnopxyz", list), "mnopqrs"); /* 3 of 7: three begun */
	assert_null(str_closest("mnowxyz", list));
	assert_null(str_closest("r", list)); /* less than half matches */
}

TEST(words)
{
	assert_true(str_has_word("cpu,memory pids\n", "cpu"));
	assert_true(str_has_word("cpu,memory pids\n", "memory"));
	assert_true(str_has_word(",\tcpu,memory pids\n", "pids"));
	assert_false(str_has_word("cpuset cpuacct", "cpu"));
	assert_false(str_has_word("cpu", "cpuset"));
	assert_false(str_has_word("", "cpu"));
	assert_false(str_has_word(" ,\n", ""));
}

TEST(made_utf8)
{
	char s[] = "a\xc3\xbc\xc3|\xff\xe2\x82";

	str_make_utf8(s);
	assert_string_equal(s, "a\xc3\xbc?|???");
}
