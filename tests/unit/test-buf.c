/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "base/buf.h"
#include "fail.h"

TEST(an_empty_buffer_is_empty_text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(10);
	_cleanup_free_ char *text = NULL;

	assert_string_equal(buf_text(&b), "");
	assert_null(b.data);
	text = buf_take(&b);
	assert_string_equal(text, "");
}

TEST(puts_append)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100);

	assert_int_equal(buf_puts(&b, "ab"), 0);
	assert_int_equal(buf_putc(&b, 'c'), 0);
	assert_int_equal(buf_put(&b, "d\0e", 3), 0);
	assert_int_equal(buf_put(&b, NULL, 0), 0);
	assert_int_equal(buf_printf(&b, "%d-%s", 42, "x"), 0);
	assert_int_equal(b.len, 10);
	assert_memory_equal(b.data, "abcd\0e42-x", 11);
}

TEST(the_maximum_is_exact)
{
	_cleanup_buf_ struct buf b = BUF_INIT(3);

	assert_int_equal(buf_puts(&b, "abc"), 0);
	assert_int_equal(buf_puts(&b, ""), 0);
	assert_int_equal(buf_putc(&b, 'd'), -ENOBUFS);
	assert_string_equal(buf_text(&b), "abc");
}

TEST(errors_stick_until_reset)
{
	_cleanup_buf_ struct buf b = BUF_INIT(3);

	assert_int_equal(buf_puts(&b, "a"), 0);
	assert_int_equal(buf_puts(&b, "bcd"), -ENOBUFS);
	assert_int_equal(buf_putc(&b, 'b'), -ENOBUFS);
	assert_int_equal(buf_printf(&b, "b"), -ENOBUFS);
	assert_int_equal(buf_put_be(&b, 1, 1), -ENOBUFS);
	assert_null(buf_reserve(&b, 0));
	assert_null(buf_take(&b));
	assert_string_equal(buf_text(&b), "a");
	buf_reset(&b);
	assert_string_equal(buf_text(&b), "");
	assert_int_equal(buf_puts(&b, "xyz"), 0);
	assert_string_equal(buf_text(&b), "xyz");
}

TEST(a_buffer_of_nothing_holds_nothing)
{
	_cleanup_buf_ struct buf b = BUF_INIT(0);

	assert_int_equal(buf_puts(&b, ""), 0);
	assert_int_equal(buf_putc(&b, 'x'), -ENOBUFS);
}

TEST(growing_keeps_the_contents)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100000);

	for (unsigned int i = 0; i < 25000; i++)
		assert_int_equal(buf_put_be(&b, i, 4), 0);
	assert_int_equal(b.len, 100000);
	for (unsigned int i = 0; i < 25000; i++) {
		struct reader r = reader_of(b.data + 4 * i, 4);

		assert_int_equal(reader_be(&r, 4), i);
	}
	assert_int_equal(buf_putc(&b, 0), -ENOBUFS);
}

TEST(sizes_near_the_end_of_memory)
{
	_cleanup_buf_ struct buf b = BUF_INIT(SIZE_MAX);

	assert_int_equal(buf_putc(&b, 'x'), 0);
	assert_null(buf_reserve(&b, SIZE_MAX - 1));
	assert_int_equal(b.err, -ENOBUFS);
	buf_reset(&b);
	assert_int_equal(buf_puts(&b, "y"), 0);
	assert_string_equal(buf_text(&b), "y");
}

TEST(reserve_then_commit)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1000);
	char *p = buf_reserve(&b, 500);

	assert_non_null(p);
	memset(p, 'z', 500);
	buf_commit(&b, 2);
	assert_string_equal(buf_text(&b), "zz");
	assert_int_equal(b.len, 2);
}

TEST(consume_takes_from_the_front)
{
	_cleanup_buf_ struct buf b = BUF_INIT(10);

	buf_consume(&b, 0);
	assert_int_equal(buf_puts(&b, "abcdef"), 0);
	buf_consume(&b, 0);
	buf_consume(&b, 2);
	assert_string_equal(buf_text(&b), "cdef");
	buf_consume(&b, 4);
	assert_string_equal(buf_text(&b), "");
	assert_int_equal(b.len, 0);
}

TEST(take_hands_over)
{
	_cleanup_buf_ struct buf b = BUF_INIT(10);
	_cleanup_free_ char *text = NULL;

	assert_int_equal(buf_puts(&b, "abc"), 0);
	text = buf_take(&b);
	assert_string_equal(text, "abc");
	assert_null(b.data);
	assert_int_equal(b.len, 0);
	assert_int_equal(b.max, 10);
	assert_int_equal(buf_puts(&b, "0123456789"), 0);
}

TEST(network_order)
{
	_cleanup_buf_ struct buf b = BUF_INIT(20);
	struct reader r;

	assert_int_equal(buf_put_be(&b, 0x12, 1), 0);
	assert_int_equal(buf_put_be(&b, 0x123456, 3), 0);
	assert_int_equal(buf_put_be(&b, UINT64_MAX - 1, 8), 0);
	assert_memory_equal(b.data, "\x12\x12\x34\x56\xff\xff\xff\xff\xff\xff\xff\xfe", 12);
	r = reader_of(b.data, b.len);
	assert_int_equal(reader_be(&r, 1), 0x12);
	assert_int_equal(reader_be(&r, 3), 0x123456);
	assert_true(reader_be(&r, 8) == UINT64_MAX - 1);
	assert_int_equal(reader_finish(&r), 0);
}

TEST(a_reader_stays_inside)
{
	_cleanup_free_ char *data = unit_copy("abc", 3);
	struct reader r = reader_of(data, 3);

	assert_memory_equal(reader_bytes(&r, 2), "ab", 2);
	assert_int_equal(reader_left(&r), 1);
	assert_int_equal(reader_finish(&r), -EBADMSG); /* left over */
	assert_int_equal(reader_be(&r, 2), 0);
	assert_int_equal(r.err, -EBADMSG);
	assert_null(reader_bytes(&r, 1)); /* the error persists, although one byte is left */
	assert_null(reader_bytes(&r, 0));
	assert_int_equal(reader_left(&r), 1);
	assert_int_equal(reader_finish(&r), -EBADMSG);
}

TEST(a_reader_of_all_or_nothing)
{
	struct reader r = reader_of("x", 1), none = reader_of(NULL, 0);

	assert_non_null(reader_bytes(&r, 1));
	assert_int_equal(reader_finish(&r), 0);
	assert_int_equal(reader_finish(&none), 0);
	assert_non_null(reader_bytes(&none, 0));
	assert_null(reader_bytes(&none, SIZE_MAX));
	assert_int_equal(reader_finish(&none), -EBADMSG);
}

static int fill(void)
{
	_cleanup_buf_ struct buf b = BUF_INIT(5000);
	_cleanup_free_ char *text = NULL;
	int r = 0;

	for (int i = 0; i < 1000; i++)
		r = buf_printf(&b, "%d ", i);
	if (r < 0)
		assert_null(buf_take(&b));
	else
		text = buf_take(&b);
	return r;
}

TEST(no_memory)
{
	FAIL_SWEEP(fill());
}
