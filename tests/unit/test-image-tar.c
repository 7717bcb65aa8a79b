/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "test-image.h"

static struct tar_entry en;

/* Reads the whole archive: the number of entries, or -errno with `e` set. */
static int walk(const struct buf *b, size_t step, struct err *e)
{
	struct memory m = { b->data, b->len, step };
	struct tar t = { .read = memory_read, .arg = &m };
	int r, n = 0;

	while ((r = tar_next(&t, &en, e)) > 0)
		n++;
	return r < 0 ? r : n;
}

static void expect_error(const struct buf *b, const char *words)
{
	struct err e = ERR_INIT;

	assert_int_equal(walk(b, 4096, &e), -EINVAL);
	if (!strstr(e.msg, words))
		fail_msg("'%s' is not in: %s", words, e.msg);
}

TEST(entries_are_read)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct memory m;
	struct tar t = { .read = memory_read, .arg = &m };
	struct err e = ERR_INIT;
	char data[16];

	(void)tar_put(&b, '5', "./d/", "", 0755, "", 0);
	(void)tar_put(&b, '0', "/d/f", "", 04711, "hello", 5);
	(void)tar_put(&b, '2', "d/l", "../x", 0777, "", 0);
	(void)tar_put(&b, '1', "d/h", "./d//f", 0, "", 0);
	(void)tar_put(&b, '3', "n", "", 0, "", 0);
	(void)tar_put(&b, '6', "p", "", 0, "", 0);
	tar_end(&b);
	for (size_t step = 1; step <= 4096; step *= 8) {
		m = (struct memory){ b.data, b.len, step };
		t = (struct tar){ .read = memory_read, .arg = &m };
		assert_int_equal(tar_next(&t, &en, &e), 1);
		assert_string_equal(en.name, "d");
		assert_int_equal(en.type, TAR_DIR);
		assert_int_equal(tar_next(&t, &en, &e), 1);
		assert_string_equal(en.name, "d/f");
		assert_int_equal(en.mode, 04711);
		assert_int_equal(en.mtime, 1700000000);
		assert_int_equal(tar_read(&t, data, 2, &e), MIN(step, (size_t)2));
		assert_int_equal(data[0], 'h'); /* the rest is passed over */
		assert_int_equal(tar_next(&t, &en, &e), 1);
		assert_string_equal(en.link, "../x");
		assert_int_equal(tar_read(&t, data, 2, &e), 0);
		assert_int_equal(tar_next(&t, &en, &e), 1);
		assert_string_equal(en.link, "d/f");
		assert_int_equal(tar_next(&t, &en, &e), 1);
		assert_int_equal(en.type, TAR_DEVICE);
		assert_int_equal(tar_next(&t, &en, &e), 1);
		assert_int_equal(en.type, TAR_FIFO);
		assert_int_equal(tar_next(&t, &en, &e), 0);
		assert_int_equal(tar_next(&t, &en, &e), 0);
	}
}

TEST(every_cut_is_seen)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct err e = ERR_INIT;
	size_t whole;

	(void)tar_put(&b, 'x', "p", "", 0, "12 path=abc\n", 12);
	(void)tar_put(&b, '0', "f", "", 0644, "hello", 5);
	tar_end(&b);
	whole = b.len;
	assert_int_equal(walk(&b, 4096, &e), 1);
	for (b.len = 0; b.len < whole; b.len++)
		assert_int_equal(walk(&b, 4096, &e), -EINVAL);
	b.len = whole;
	assert_int_equal(buf_putc(&b, '\0'), 0);
	assert_int_equal(walk(&b, 4096, &e), -EINVAL); /* half a block */
}

TEST(every_flipped_bit_of_a_header_is_seen)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct err e = ERR_INIT;

	(void)tar_put(&b, '0', "f", "", 0644, "hello", 5);
	tar_end(&b);
	for (size_t i = 0; i < TAR_BLOCK; i++) {
		if (i >= 148 && i < 156)
			continue; /* the checksum itself, in which 0 and space are equivalent */
		b.data[i] ^= 1;
		assert_int_equal(walk(&b, 4096, &e), -EINVAL);
		b.data[i] ^= 1;
	}
	assert_int_equal(walk(&b, 4096, &e), 1);
}

static void one_pax(const char *record, const char *words)
{
	_cleanup_buf_ struct buf b = BUF_INIT(3 * 1024 * 1024);
	struct err e = ERR_INIT;

	(void)tar_put(&b, 'x', "p", "", 0, record, strlen(record));
	(void)tar_put(&b, '0', "f", "", 0644, "", 0);
	tar_end(&b);
	if (words)
		expect_error(&b, words);
	else
		assert_int_equal(walk(&b, 4096, &e), 1);
}

TEST(pax_headers)
{
	one_pax("18 path=./a//b/c\n", "bad extended header");
	one_pax("17 path=./a//b/c\n", NULL);
	assert_string_equal(en.name, "a/b/c");
	one_pax("12 uid=1000\n12 gid=1001\n", NULL);
	assert_int_equal(en.uid, 1000);
	assert_int_equal(en.gid, 1001);
	one_pax("27 mtime=1700000001.123456\n", NULL);
	assert_int_equal(en.mtime, 1700000001);
	one_pax("12 mtime=-5\n", NULL);
	assert_int_equal(en.mtime, 0);
	one_pax("36 SCHILY.xattr.security.capability=\n", "bad extended header");
	one_pax("37 SCHILY.xattr.security.capability=\n", NULL);
	assert_int_equal(en.xattrs, 1);
	one_pax("10 path=a\n10 path=b\n", "two names");
	one_pax("18 path=a/../../b\n", "'..'");
	one_pax("8 size=x\n", "bad extended header");
	one_pax("10 size=x\n", "not a number");
	one_pax("11 size=-1\n", "not a number");
	one_pax("22 GNU.sparse.major=1\n", "sparse");
	one_pax("16 VENDOR.x=abc\n", "unknown");
	one_pax("21 hdrcharset=BINARY\n", NULL);
	one_pax("19 hdrcharset=EBCD\n", "character set");
	one_pax("0 path=a\n", "bad extended header");
	one_pax("99999999999 path=a\n", "bad extended header");
	one_pax("8 path=a\n", "bad extended header");
	one_pax("11 path=a\n\n", NULL);
	one_pax("4 =\n", "bad extended header");
	one_pax("3 a", "bad extended header");
	one_pax("path=a\n", "bad extended header");
}

TEST(global_headers)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct err e = ERR_INIT;

	(void)tar_put(&b, 'g', "p", "", 0, "13 comment=x\n", 13);
	(void)tar_put(&b, '0', "f", "", 0644, "", 0);
	tar_end(&b);
	assert_int_equal(walk(&b, 4096, &e), 1);
	buf_reset(&b);
	(void)tar_put(&b, 'g', "p", "", 0, "10 path=a\n", 10);
	(void)tar_put(&b, '0', "f", "", 0644, "", 0);
	tar_end(&b);
	expect_error(&b, "not for all entries");
}

TEST(gnu_names)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	char name[300];
	struct err e = ERR_INIT;

	memset(name, 'n', sizeof(name));
	name[149] = '/';
	name[299] = '\0';
	(void)tar_put(&b, 'L', "x", "", 0, name, sizeof(name));
	(void)tar_put(&b, 'K', "x", "", 0, name, sizeof(name));
	(void)tar_put(&b, '2', "f", "", 0777, "", 0);
	tar_end(&b);
	assert_int_equal(walk(&b, 4096, &e), 1);
	assert_string_equal(en.name, name);
	assert_string_equal(en.link, name);
	buf_reset(&b);
	(void)tar_put(&b, 'L', "x", "", 0, "a\0b", 4);
	(void)tar_put(&b, '0', "f", "", 0777, "", 0);
	tar_end(&b);
	expect_error(&b, "NUL");
	buf_reset(&b);
	(void)tar_put(&b, 'L', "x", "", 0, "abc", 3);
	expect_error(&b, "NUL");
	buf_reset(&b);
	(void)tar_put(&b, 'L', "x", "", 0, "abc", 4);
	(void)tar_put(&b, 'L', "x", "", 0, "abc", 4);
	expect_error(&b, "two long names");
	buf_reset(&b);
	(void)tar_put(&b, 'L', "x", "", 0, "abc", 4);
	tar_end(&b);
	expect_error(&b, "for nothing");
}

/* Replaces bytes of the header and updates its checksum. */
static void changed(size_t at, const char *bytes, size_t n, const char *words)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct err e = ERR_INIT;

	(void)tar_put(&b, '0', "f", "", 0644, "", 0);
	tar_end(&b);
	memcpy(b.data + at, bytes, n);
	tar_sum(b.data);
	if (words)
		expect_error(&b, words);
	else
		assert_int_equal(walk(&b, 4096, &e), 1);
}

TEST(headers_that_are_wrong)
{
	changed(257, "\0\0\0\0\0\0\0\0", 8, "neither ustar");
	changed(257, "ustar  ", 8, NULL);
	changed(156, "S", 1, "sparse");
	changed(156, "Z", 1, "unknown type 0x5a");
	changed(156, "1", 1, "link to nothing");
	changed(0, "", 1, "without a name");
	changed(0, "f/", 3, "ends in '/'");
	changed(100, "9", 1, "mode");
	changed(108, "-000001", 8, "uid that is not a number");
	changed(108, "\x80\0\0\0\0\0\0\x05", 8, NULL);
	assert_int_equal(en.uid, 5);
	changed(108, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, "not a number");
	changed(124, "\x80\0\0\0\xff\0\0\0\0\0\0\0", 12, "out of range");
	changed(124, "\x80\xff\0\0\0\0\0\0\0\0\0\0", 12, "out of range");
	changed(136, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", 12,
		NULL); /* before 1970 */
	changed(345, "pre/fix", 7, NULL);
	assert_string_equal(en.name, "pre/fix/f");
}

TEST(data_where_none_can_be)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);

	(void)tar_put(&b, '5', "d", "", 0755, "hello", 5);
	tar_end(&b);
	expect_error(&b, "data where none can be");
}

TEST(trailing_bytes)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	char zero[TAR_BLOCK] = "";

	(void)tar_put(&b, '0', "f", "", 0644, "", 0);
	(void)buf_put(&b, zero, sizeof(zero));
	(void)tar_put(&b, '0', "g", "", 0644, "", 0);
	expect_error(&b, "behind the end");
}

static int clean(const char *name, char *out)
{
	struct err e = ERR_INIT;

	return tar_clean_name(name, strlen(name), out, &e);
}

TEST(names_have_one_form)
{
	static const char *const pairs[][2] = {
		{ "", "." },	      { "/", "." },	{ "./", "." },	      { "a", "a" },
		{ "/a", "a" },	      { "//a//", "a" }, { "./a/./b", "a/b" }, { "..a", "..a" },
		{ "a../b", "a../b" }, { "...", "..." }, { ".a", ".a" },	      { "a/b/", "a/b" },
	};
	static const char *const wrong[] = { "..", "../a", "a/..", "a/../b", "/..", "./.." };
	char out[TAR_NAME_MAX + 1], longer[TAR_NAME_MAX + 10];
	struct err e = ERR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		assert_int_equal(clean(pairs[i][0], out), 0);
		assert_string_equal(out, pairs[i][1]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(clean(wrong[i], out), -EINVAL);
	assert_int_equal(tar_clean_name("a\0b", 3, out, &e), -EINVAL);
	memset(longer, 'x', sizeof(longer));
	assert_int_equal(tar_clean_name(longer, TAR_PART_MAX, out, &e), 0);
	assert_int_equal(tar_clean_name(longer, TAR_PART_MAX + 1, out, &e), -EINVAL);
	for (size_t i = 1; i < sizeof(longer); i += 2)
		longer[i] = '/';
	assert_int_equal(tar_clean_name(longer, 2 * TAR_DEPTH_MAX, out, &e), 0);
	assert_int_equal(tar_clean_name(longer, 2 * TAR_DEPTH_MAX + 1, out, &e), -EINVAL);
	memset(longer, 'x', sizeof(longer));
	for (size_t i = 200; i < sizeof(longer); i += 201)
		longer[i] = '/';
	assert_int_equal(tar_clean_name(longer, sizeof(longer), out, &e), -EINVAL);
}
