/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "names/name.h"

static void assert_name(const char *s, const char *want)
{
	size_t n = strlen(s);
	char *copy = unit_copy(s, n);
	struct err e = ERR_INIT;
	struct name name;

	assert_int_equal(name_parse(copy, n, &name, &e), 0);
	assert_string_equal(name.text, want);
	assert_int_equal(name.len, strlen(want));
	free(copy);
}

static void assert_refused(const char *s, size_t n, const char *why)
{
	char *copy = unit_copy(s, n);
	struct name name = { .len = 7, .text = "keep.me" };
	struct err e = ERR_INIT;

	assert_int_equal(name_parse(copy, n, &name, &e), -EINVAL);
	if (!strstr(e.msg, why))
		fail_msg("'%.*s': expected '%s' in '%s'", (int)n, s, why, e.msg);
	assert_string_equal(name.text, "keep.me");
	free(copy);
}

#define REFUSE(s, why) assert_refused(s, sizeof(s) - 1, why)

TEST(one_canonical_form)
{
	assert_name("github.com", "github.com");
	assert_name("GitHub.COM", "github.com");
	assert_name("a.b", "a.b");
	assert_name("xn--bcher-kva.example", "xn--bcher-kva.example");
	assert_name("r3---sn-4g5e6nez.googlevideo.com", "r3---sn-4g5e6nez.googlevideo.com");
	assert_name("1.2.3.4.example", "1.2.3.4.example");
	assert_name("0x7f.1.com", "0x7f.1.com");
	assert_name("example.0xyz", "example.0xyz");
	assert_name("x.7a", "x.7a");
}

TEST(refuses_other_bytes)
{
	REFUSE("", "empty");
	REFUSE("github.com\0.evil.com", "byte 0x00 at 11");
	REFUSE("github.com\r", "byte 0x0d at 11");
	REFUSE("github.com\n", "byte 0x0a at 11");
	REFUSE("git hub.com", "byte 0x20 at 4");
	REFUSE("github.com%00", "'%' at byte 11");
	REFUSE("user@github.com", "'@' at byte 5");
	REFUSE("github.com/", "'/' at byte 11");
	REFUSE("github.com\\", "'\\' at byte 11");
	REFUSE("github.com#x", "'#' at byte 11");
	REFUSE("github.com:443", "':' at byte 11");
	REFUSE("my_bucket.s3.example.com", "underscore");
	REFUSE("b\xc3\xbc"
	       "cher.example",
	       "punycode");
	REFUSE("github\xef\xbc\x8e"
	       "com",
	       "punycode");
	REFUSE("\x7f.com", "byte 0x7f at 1");
}

TEST(refuses_other_shapes)
{
	REFUSE("github.com.", "ends in a dot");
	REFUSE("github..com", "empty");
	REFUSE(".github.com", "empty");
	REFUSE("..", "empty");
	REFUSE(".", "empty");
	REFUSE("-a.com", "hyphen");
	REFUSE("a-.com", "hyphen");
	REFUSE("a.-", "hyphen");
	REFUSE("localhost", "no dot");
	REFUSE("com", "no dot");
}

TEST(refuses_numbers_at_the_end)
{
	REFUSE("127.0.0.1", "ends in a number");
	REFUSE("0177.0.0.1", "ends in a number");
	REFUSE("0x7f.1", "ends in a number");
	REFUSE("0x7F.0X1", "ends in a number");
	REFUSE("2130706433", "ends in a number");
	REFUSE("example.0x", "ends in a number");
	REFUSE("foo.09", "ends in a number");
}

TEST(knows_its_lengths)
{
	char s[300];

	memset(s, 'a', sizeof(s));
	s[63] = '.';
	memcpy(s + 64, "com", 4);
	assert_name(s, s);
	memset(s, 'a', 64);
	memcpy(s + 64, ".com", 5);
	assert_refused(s, strlen(s), "64 bytes");

	/* 253 bytes in four labels fit, 254 do not. */
	memset(s, 'b', sizeof(s));
	s[63] = s[127] = s[191] = '.';
	s[253] = '\0';
	assert_name(s, s);
	s[253] = 'b';
	assert_refused(s, 254, "254 bytes");
}
