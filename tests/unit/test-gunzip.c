/* SPDX-License-Identifier: Apache-2.0 */
#include "api/gunzip.h"

#include <string.h>
#include <zlib.h>

#include "base/buf.h"
#include "fail.h"
#include "unit.h"

static const struct gunzip_limits wide = { .free = UINT64_MAX, .ratio = 1 };

/* Appends one member with `n` bytes. */
static void pack(struct buf *b, const void *data, size_t n)
{
	z_stream z = { .next_in = (Bytef *)data, .avail_in = (unsigned int)n };
	size_t max;

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, MAX_WBITS + 16, 9, Z_DEFAULT_STRATEGY),
			 Z_OK);
	max = deflateBound(&z, n);
	z.next_out = (Bytef *)buf_reserve(b, max);
	assert_non_null(z.next_out);
	z.avail_out = (unsigned int)max;
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	buf_commit(b, max - z.avail_out);
	(void)deflateEnd(&z);
}

/* Input in pieces of `step`, output in pieces of `room`. Returns 1 if the input was complete. */
static int unpack(const struct gunzip_limits *limits, const struct buf *in, size_t step,
		  size_t room, struct buf *out)
{
	_cleanup_free_ char *piece = malloc(room);
	struct gunzip *g = NULL;
	struct err e = ERR_INIT;
	ssize_t r = piece ? gunzip_new(limits, &g) : -ENOMEM;

	for (size_t at = 0; r >= 0 && at < in->len; at += step) {
		const char *data = in->data + at;
		size_t n = MIN(step, in->len - at);

		while ((r = gunzip_next(g, &data, &n, piece, room, &e)) > 0)
			(void)buf_put(out, piece, (size_t)r);
		assert_true(r < 0 || n == 0);
	}
	if (r == 0)
		r = out->err ? out->err : gunzip_whole(g);
	(void)gunzip_free(g);
	return (int)r;
}

static void fill(char *data, size_t n)
{
	uint32_t x = 1;

	for (size_t i = 0; i < n; i++) {
		x = x * 1103515245 + 12345;
		data[i] = (char)(x >> 28);
	}
}

TEST(test_pieces)
{
	static const size_t sizes[] = { 1, 2, 7, 64, 1000, 100000 };
	_cleanup_buf_ struct buf in = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);
	char data[5000];

	fill(data, sizeof(data));
	pack(&in, data, sizeof(data));
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
			buf_reset(&out);
			assert_int_equal(unpack(&wide, &in, sizes[i], sizes[k], &out), 1);
			assert_int_equal(out.len, sizeof(data));
			assert_memory_equal(out.data, data, sizeof(data));
		}
	}
}

/* A member may follow another, also an empty one. */
TEST(test_members)
{
	_cleanup_buf_ struct buf in = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);

	pack(&in, "", 0);
	assert_int_equal(unpack(&wide, &in, 3, 10, &out), 1);
	assert_int_equal(out.len, 0);
	pack(&in, "one", 3);
	pack(&in, "two", 3);
	for (size_t step = 1; step <= in.len; step++) {
		buf_reset(&out);
		assert_int_equal(unpack(&wide, &in, step, 10, &out), 1);
		assert_string_equal(buf_text(&out), "onetwo");
	}
	(void)buf_puts(&in, "tail");
	buf_reset(&out);
	assert_int_equal(unpack(&wide, &in, in.len, 10, &out), -EBADMSG);
}

TEST(test_damage)
{
	_cleanup_buf_ struct buf in = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);
	size_t len;

	(void)buf_puts(&in, "plain text");
	assert_int_equal(unpack(&wide, &in, 100, 100, &out), -EBADMSG);
	buf_reset(&in);
	pack(&in, "hello, hello", 12);
	len = in.len;
	for (in.len = 1; in.len < len; in.len++)
		assert_int_equal(unpack(&wide, &in, 100, 100, &out), 0); /* not whole */
	in.data[in.len - 5] ^= 1;					 /* the checksum */
	assert_int_equal(unpack(&wide, &in, 100, 100, &out), -EBADMSG);
	/* zlib's own format is different. */
	buf_reset(&in);
	(void)buf_put(&in, "\x78\x9c\x03\x00\x00\x00\x00\x01", 8);
	assert_int_equal(unpack(&wide, &in, 100, 100, &out), -EBADMSG);
}

/* A megabyte of zeros is a kilobyte: allowed below the free size, or by a high enough ratio. */
TEST(test_bomb)
{
	const struct gunzip_limits narrow = { .free = 1 << 16, .ratio = 100 };
	const struct gunzip_limits enough = { .free = 1 << 20, .ratio = 100 };
	const struct gunzip_limits steep = { .free = 0, .ratio = 1100 };
	_cleanup_buf_ struct buf in = BUF_INIT(1 << 22), out = BUF_INIT(1 << 21);
	_cleanup_free_ char *zeros = calloc(1, 1 << 20);

	assert_non_null(zeros);
	pack(&in, zeros, 1 << 20);
	assert_in_range(in.len, 900, 1100);
	assert_int_equal(unpack(&narrow, &in, 100, 4096, &out), -EFBIG);
	/* Stops exactly at the limit. */
	assert_in_range(out.len, 1 << 15, (1 << 16) + 100 * 100);
	buf_reset(&out);
	assert_int_equal(unpack(&enough, &in, 100, 4096, &out), 1);
	assert_int_equal(out.len, 1 << 20);
	buf_reset(&out);
	assert_int_equal(unpack(&steep, &in, 2000, 4096, &out), 1);
}

TEST(test_faults)
{
	_cleanup_buf_ struct buf in = BUF_INIT(1 << 20);

	pack(&in, "hello, hello", 12);
	FAIL_SWEEP(({
		_cleanup_buf_ struct buf out = BUF_INIT(100);

		unpack(&wide, &in, 5, 3, &out);
	}));
}
