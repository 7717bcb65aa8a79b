/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "base/base64.h"
#include "fail.h"

/* RFC 4648, section 10. */
static const char *const pairs[][2] = {
	{ "", "" },
	{ "f", "Zg==" },
	{ "fo", "Zm8=" },
	{ "foo", "Zm9v" },
	{ "foob", "Zm9vYg==" },
	{ "fooba", "Zm9vYmE=" },
	{ "foobar", "Zm9vYmFy" },
};

static void decodes_to(const char *text, const void *want, size_t n)
{
	_cleanup_free_ char *copy = unit_copy(text, strlen(text)), *out = NULL;
	size_t got = 0;

	assert_int_equal(base64_decode(copy, strlen(text), &out, &got), 0);
	assert_int_equal(got, n);
	assert_memory_equal(out, want, n);
	assert_int_equal(out[n], '\0');
}

TEST(test_known)
{
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(64);
		char bare[16];

		assert_int_equal(base64_put(&b, pairs[i][0], strlen(pairs[i][0])), 0);
		assert_string_equal(buf_text(&b), pairs[i][1]);
		decodes_to(pairs[i][1], pairs[i][0], strlen(pairs[i][0]));
		(void)snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(pairs[i][1], "="),
			       pairs[i][1]);
		decodes_to(bare, pairs[i][0], strlen(pairs[i][0]));
	}
}

TEST(test_both_alphabets)
{
	decodes_to("+/+/", "\xfb\xff\xbf", 3);
	decodes_to("-_-_", "\xfb\xff\xbf", 3);
}

TEST(test_every_length)
{
	uint8_t data[256];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + 3);
	for (size_t n = 0; n <= sizeof(data); n++) {
		_cleanup_free_ char *copy = unit_copy(data, n);
		_cleanup_buf_ struct buf b = BUF_INIT(1024);

		assert_int_equal(base64_put(&b, copy, n), 0);
		decodes_to(buf_text(&b), data, n);
	}
}

TEST(test_refused)
{
	static const char *const wrong[] = { "A",     "=",    "==",   "A===",  "AA=",  "AAA==",
					     "AA==A", "AA=A", "A A=", "AAA\n", "AA.=", "AB==",
					     "AAB=",  "AB",   "AAB",  "AAAAA", "====", "AA===" };

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		_cleanup_free_ char *copy = unit_copy(wrong[i], strlen(wrong[i])), *out = NULL;
		size_t n;

		if (base64_decode(copy, strlen(wrong[i]), &out, &n) != -EINVAL)
			fail_msg("'%s' was taken", wrong[i]);
	}
}

TEST(test_no_room)
{
	_cleanup_buf_ struct buf b = BUF_INIT(7);

	assert_int_equal(base64_put(&b, "abc", 3), 0);
	assert_int_equal(base64_put(&b, "a", 1), -ENOBUFS);
	assert_int_equal(b.len, 4);
}

static int round_trip(void)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	_cleanup_free_ char *out = NULL;
	size_t n;
	int r = base64_put(&b, "abcd", 4);

	return r < 0 ? r : base64_decode(b.data, b.len, &out, &n);
}

TEST(test_faults)
{
	FAIL_SWEEP(round_trip());
}
