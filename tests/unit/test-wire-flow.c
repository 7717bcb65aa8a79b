/* SPDX-License-Identifier: Apache-2.0 */
/* Credit and pending output: exact at the limits, bounded everywhere. */
#include "test-wire.h"

enum {
	START = 262144,	   /* PROTOCOL.md: a sender's initial credit */
	IN_HAND = 1048576, /* and its maximum */
	PIECE = 65536,
};

static const uint8_t bytes[2 * IN_HAND];

static void quiet_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		       void *arg)
{
	*(size_t *)arg += n;
}

static void pending_is(const struct end *x, size_t want)
{
	size_t n;

	(void)link_pending(x->l, &n);
	assert_int_equal(n, want);
}

static int feed_data(struct end *x, uint32_t ch, unsigned int stream, size_t n)
{
	return end_feed_raw(x, WIRE_DATA, ch, stream, bytes, n);
}

static int feed_credit(struct end *x, uint32_t ch, unsigned int stream, uint32_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4);

	assert_int_equal(buf_put_be(&b, n, 4), 0);
	return end_feed_raw(x, WIRE_CREDIT, ch, stream, b.data, 4);
}

static void feed_all(struct end *x, uint32_t ch, unsigned int stream)
{
	for (unsigned int i = 0; i < START / PIECE; i++)
		assert_int_equal(feed_data(x, ch, stream, PIECE), 0);
}

/* ---- received ---- */

TEST(all_credit_and_one_byte_more)
{
	for (unsigned int i = 0; i < 2 * WIRE_STREAMS; i++) {
		_cleanup_end_ struct end x = { .l = NULL };
		uint32_t ch = end_start_open(&x, i % 2 ? LINK_GUEST : LINK_KEEPER);

		feed_all(&x, ch, i / 2);
		buf_reset(&x.log);
		for (unsigned int other = 0; other < WIRE_STREAMS; other++)
			if (other != i / 2) /* each stream has its own */
				assert_int_equal(feed_data(&x, ch, other, 1), 0);
		buf_reset(&x.log);
		assert_int_equal(feed_data(&x, ch, i / 2, 1), -EPROTO);
		end_expect(&x, "|");
	}
}

TEST(last_piece_is_one_too_long)
{
	_cleanup_end_ struct end x = { .l = NULL };
	uint32_t ch = end_start_open(&x, LINK_KEEPER);

	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(feed_data(&x, ch, 1, PIECE), 0);
	assert_int_equal(feed_data(&x, ch, 1, PIECE - 1), 0);
	assert_int_equal(feed_data(&x, ch, 1, 2), -EPROTO);
}

TEST(what_is_consumed_may_come_again)
{
	_cleanup_end_ struct end x = { .l = NULL };
	uint32_t ch = end_start_open(&x, LINK_GUEST);

	feed_all(&x, ch, 0);
	end_drain(&x);
	assert_int_equal(link_consumed(x.l, ch, 0, 0), 0);
	end_expect(&x, "|");
	assert_int_equal(link_consumed(x.l, ch, 0, 100), 0);
	pending_is(&x, 16);
	{
		size_t n;
		const char *out = link_pending(x.l, &n);

		assert_memory_equal(out, "\0\0\0\4\0\0\0\2\x08\0\0\0\0\0\0\x64", 16);
	}
	end_expect(&x, "|CREDIT 2.0\n");
	assert_int_equal(feed_data(&x, ch, 0, 99), 0);
	assert_int_equal(feed_data(&x, ch, 0, 1), 0);
	assert_int_equal(link_consumed(x.l, ch, 0, START), 0);
	feed_all(&x, ch, 0);
	assert_int_equal(feed_data(&x, ch, 0, 1), -EPROTO);
}

/* A stream after EOF needs no credit. */
TEST(no_credit_after_their_eof)
{
	_cleanup_end_ struct end x = { .l = NULL };
	uint32_t ch = end_start_open(&x, LINK_GUEST);

	assert_int_equal(feed_data(&x, ch, 0, 10), 0);
	assert_int_equal(feed_data(&x, ch, 1, 10), 0);
	assert_int_equal(end_feed_frame(&x, WIRE_EOF, ch), 0);
	end_drain(&x);
	assert_int_equal(link_consumed(x.l, ch, 0, 10), 0);
	end_expect(&x, "|");
	assert_int_equal(link_consumed(x.l, ch, 1, 10), 0);
	end_expect(&x, "|CREDIT 2.1\n");
	assert_int_equal(feed_data(&x, ch, 1, 1), 0); /* EOF is of one stream */
	assert_int_equal(feed_data(&x, ch, 0, 1), -EPROTO);
}

/* Bytes after our CLOSE count for nothing, in any amount. */
TEST(no_limit_after_our_close)
{
	_cleanup_end_ struct end x = { .l = NULL };
	uint32_t ch = end_start_open(&x, LINK_KEEPER);

	assert_int_equal(link_close(x.l, ch, WIRE_DONE, NULL), 0);
	end_drain(&x);
	for (unsigned int i = 0; i < 8; i++)
		assert_int_equal(feed_data(&x, ch, 0, PIECE), 0);
	assert_int_equal(feed_credit(&x, ch, 0, IN_HAND), 0);
	assert_int_equal(feed_credit(&x, ch, 0, IN_HAND), 0);
	assert_int_equal(link_consumed(x.l, ch, 0, PIECE), 0);
	end_expect(&x, "|");
}

/* ---- sent ---- */

TEST(sends_what_credit_allows)
{
	for (unsigned int i = 0; i < 2 * WIRE_STREAMS; i++) {
		_cleanup_end_ struct end x = { .l = NULL };
		uint32_t ch = end_start_open(&x, i % 2 ? LINK_GUEST : LINK_KEEPER);
		unsigned int stream = i / 2;

		assert_int_equal(link_credit(x.l, ch, stream), START);
		assert_int_equal(link_data(x.l, ch, stream, bytes, 0), 0);
		pending_is(&x, 0);
		assert_int_equal(link_data(x.l, ch, stream, bytes, 5), 5);
		pending_is(&x, WIRE_HEADER + 5);
		assert_int_equal(link_data(x.l, ch, stream, bytes, START), START - 5);
		pending_is(&x, 5 * WIRE_HEADER + START);
		assert_int_equal(link_credit(x.l, ch, stream), 0);
		assert_int_equal(link_data(x.l, ch, stream, bytes, 1), 0);
		assert_int_equal(link_credit(x.l, ch, (stream + 1) % 3), START);
		assert_int_equal(feed_credit(&x, ch, stream, 10), 0);
		assert_int_equal(link_data(x.l, ch, stream, bytes, 11), 10);
		end_drain(&x);
		assert_int_equal(link_data(x.l, ch, stream, bytes, 1), 0);
		assert_int_equal(feed_credit(&x, ch, stream, IN_HAND), 0);
		assert_int_equal(link_credit(x.l, ch, stream), IN_HAND);
	}
}

TEST(credit_has_a_bound)
{
	static const struct {
		uint32_t first, second;
		int want;
	} list[] = {
		{ IN_HAND - START, 0, 0 },
		{ IN_HAND - START + 1, 0, -EPROTO },
		{ IN_HAND - START, 1, -EPROTO },
		{ 1, IN_HAND - START - 1, 0 },
		{ 1, IN_HAND - START, -EPROTO },
		{ UINT32_MAX, 0, -EPROTO },
		{ UINT32_MAX - START, 0, -EPROTO },
		{ UINT32_MAX - START + 1, 0, -EPROTO },
		{ UINT32_MAX - START + 2, 0, -EPROTO },
	};

	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		_cleanup_end_ struct end x = { .l = NULL };
		uint32_t ch = end_start_open(&x, LINK_GUEST);
		int r = feed_credit(&x, ch, 2, list[i].first);

		if (r == 0 && list[i].second)
			r = feed_credit(&x, ch, 2, list[i].second);
		assert_int_equal(r, list[i].want);
		assert_int_equal(link_credit(x.l, ch, 0), START);
		if (r == 0)
			assert_int_equal(link_credit(x.l, ch, 2), IN_HAND);
	}
}

TEST(nothing_to_send_after_eof)
{
	_cleanup_end_ struct end x = { .l = NULL };
	uint32_t ch = end_start_open(&x, LINK_GUEST);

	assert_int_equal(link_eof(x.l, ch, 1), 0);
	assert_int_equal(link_eof(x.l, ch, 1), 0);
	end_expect(&x, "|EOF 2.1\n");
	assert_int_equal(link_credit(x.l, ch, 1), 0);
	assert_int_equal(link_credit(x.l, ch, 0), START);
	/* Credit for earlier bytes may still arrive: accepted, and not reported. */
	assert_int_equal(feed_credit(&x, ch, 1, 1), 0);
	assert_int_equal(feed_credit(&x, ch, 0, 1), 0);
	end_expect(&x, "credit 2.0\n|");
	assert_int_equal(feed_credit(&x, ch, 1, IN_HAND), -EPROTO);
}

/* ---- the output ---- */

TEST(no_data_over_the_soft_bound)
{
	_cleanup_end_ struct end x = { .l = NULL };
	size_t sent = 0, n, before;
	uint32_t ch = 0;

	end_start(&x, LINK_KEEPER);
	for (unsigned int i = 0; link_ready(x.l); i++) {
		ssize_t got;

		if (i % WIRE_STREAMS == 0) {
			ch = end_open(&x);
			assert_int_equal(end_feed_frame(&x, WIRE_ACCEPT, ch), 0);
		}
		got = link_data(x.l, ch, i % WIRE_STREAMS, bytes, START);
		assert_true(got > 0);
		sent += (size_t)got;
	}
	(void)link_pending(x.l, &before);
	assert_in_range(before, LINK_OUT_SOFT, LINK_OUT_SOFT + PIECE + WIRE_HEADER - 1);
	assert_true(sent <= before);
	ch = end_open(&x);
	assert_int_equal(end_feed_frame(&x, WIRE_ACCEPT, ch), 0);
	assert_int_equal(link_credit(x.l, ch, 0), START);
	assert_int_equal(link_data(x.l, ch, 0, bytes, 1), 0);
	assert_int_equal(link_credit(x.l, ch, 0), START);
	/* One byte below the limit it is ready again. */
	(void)link_pending(x.l, &n);
	link_wrote(x.l, n - LINK_OUT_SOFT);
	assert_false(link_ready(x.l));
	link_wrote(x.l, 1);
	assert_true(link_ready(x.l));
	assert_int_equal(link_data(x.l, ch, 0, bytes, START), PIECE);
	assert_false(link_ready(x.l));
}

/* Frames are written whole and in order, in pieces of any size. */
TEST(written_in_pieces)
{
	for (size_t piece = 1; piece < 60; piece += 7) {
		_cleanup_buf_ struct buf out = BUF_INIT(IN_HAND);
		_cleanup_end_ struct end x = { .l = NULL };
		size_t n, k;

		end_start(&x, LINK_GUEST);
		for (uint64_t i = 0; i < 500; i++) {
			const void *p;

			assert_int_equal(link_ping(x.l, i), 0);
			p = link_pending(x.l, &n);
			k = MIN(piece, n);
			assert_int_equal(buf_put(&out, p, k), 0);
			link_wrote(x.l, k);
		}
		assert_int_equal(buf_put(&out, link_pending(x.l, &n), 0), 0);
		assert_int_equal(buf_put(&out, link_pending(x.l, &n), n), 0);
		assert_int_equal(out.len, 500 * 20);
		for (unsigned int i = 0; i < 500; i++) {
			assert_memory_equal(out.data + (size_t)i * 20, "\0\0\0\x08\0\0\0\0\2\0\0\0",
					    12);
			assert_int_equal((uint8_t)out.data[i * 20 + 18], i >> 8);
			assert_int_equal((uint8_t)out.data[i * 20 + 19], i & 255);
		}
	}
}

/* Fills the output until there is no room for one more frame of 20 bytes. */
static void fill(struct end *x)
{
	struct buf large = { .data = (char *)bytes, .len = PIECE };
	uint32_t ch;
	size_t n;

	while ((void)link_pending(x->l, &n), n + 2 * PIECE <= LINK_OUT_MAX)
		assert_int_equal(link_open(x->l, WIRE_OP_EXEC, &large, NULL, &ch), 0);
	for (;;) {
		(void)link_pending(x->l, &n);
		if (n + 20 > LINK_OUT_MAX)
			break;
		assert_int_equal(link_ping(x->l, n), 0);
	}
}

TEST(output_has_a_bound)
{
	_cleanup_end_ struct end x = { .l = NULL };
	size_t n;

	end_start(&x, LINK_KEEPER);
	fill(&x);
	(void)link_pending(x.l, &n);
	assert_in_range(n, LINK_OUT_MAX - 19, LINK_OUT_MAX);
	assert_int_equal(link_ping(x.l, 0), -ENOBUFS);
	assert_int_equal(link_ping(x.l, 0), -ENOBUFS);
	assert_int_equal(end_feed_frame(&x, WIRE_PONG, 0), -ENOBUFS);
	pending_is(&x, n); /* and no half of a frame */
	end_drain(&x);
	assert_int_equal(link_ping(x.l, 0), -ENOBUFS); /* too late */
}

/* The limit applies to pending bytes, wherever in the buffer they are. */
TEST(what_was_written_does_not_count)
{
	static const size_t written[] = { 20, 2 * IN_HAND, 4 * IN_HAND - 40, 5 * IN_HAND };

	for (size_t i = 0; i < ARRAY_SIZE(written); i++) {
		_cleanup_end_ struct end x = { .l = NULL };
		size_t n;

		end_start(&x, LINK_KEEPER);
		for (unsigned int round = 0; round < 2; round++) {
			fill(&x);
			link_wrote(x.l, written[i]);
		}
		fill(&x);
		(void)link_pending(x.l, &n);
		assert_in_range(n, LINK_OUT_MAX - 19, LINK_OUT_MAX);
		assert_int_equal(link_ping(x.l, 0), -ENOBUFS);
	}
}

/* A peer that sends requests and does not read the answers. */
TEST(questions_without_end)
{
	_cleanup_buf_ struct buf b = BUF_INIT(START);
	_cleanup_end_ struct end x = { .l = NULL };
	int r;

	for (unsigned int i = 0; i < 10000; i++)
		frame_to(&b, LINK_KEEPER, WIRE_PING, 0);
	end_start(&x, LINK_KEEPER);
	while ((r = end_feed(&x, b.data, b.len)) == 0)
		;
	assert_int_equal(r, -ENOBUFS);
	pending_is(&x, LINK_OUT_MAX / 20 * 20);
	assert_non_null(strstr(x.e.msg, "the link cannot continue"));
}

TEST(openings_without_end)
{
	_cleanup_end_ struct end x = { .l = NULL };
	size_t before;
	int r = 0;

	end_start(&x, LINK_GUEST);
	fill(&x);
	before = link_channels(x.l);
	for (uint32_t ch = 2; r == 0; ch += 2) /* the 1025th is refused, with a CLOSE */
		r = end_feed_frame(&x, WIRE_OPEN, ch);
	assert_int_equal(r, -ENOBUFS);
	assert_int_equal(link_channels(x.l) - before, 1025);
	end_done(&x);
	end_start(&x, LINK_GUEST);
	assert_int_equal(end_feed_frame(&x, WIRE_OPEN, 2), 0);
	fill(&x);
	buf_reset(&x.log);
	assert_int_equal(end_feed_frame(&x, WIRE_CLOSE, 2), -ENOBUFS);
	assert_string_equal(buf_text(&x.log), "closed 2\n");
}

/* A link that dies while a callback sends. */
static void callback_fills(struct link *l, uint64_t token, void *arg)
{
	while (link_ping(l, token) == 0)
		;
	*(size_t *)arg += 1;
}

TEST(dies_inside_a_callback)
{
	static const struct link_ops ops = { .pong = callback_fills, .data = quiet_data };
	_cleanup_end_ struct end x = { .role = LINK_GUEST, .log = BUF_INIT(64) };
	_cleanup_buf_ struct buf b = BUF_INIT(256);
	size_t calls = 0;

	assert_int_equal(link_new(LINK_GUEST, &ops, &calls, &x.l), 0);
	end_send_hello(&x);
	assert_int_equal(end_feed_frame(&x, WIRE_HELLO, 0), 0);
	for (unsigned int i = 0; i < 3; i++)
		frame_to(&b, LINK_GUEST, WIRE_PONG, 0);
	assert_int_equal(end_feed(&x, b.data, b.len), -ENOBUFS);
	assert_int_equal(calls, 1);
}

/* Data in one piece is not copied, data in two is: the same bytes. */
TEST(data_is_delivered)
{
	static const struct link_ops ops = { .data = quiet_data };
	_cleanup_end_ struct end x = { .role = LINK_GUEST, .log = BUF_INIT(64) };
	size_t heard = 0;

	assert_int_equal(link_new(LINK_GUEST, &ops, &heard, &x.l), 0);
	end_send_hello(&x);
	assert_int_equal(end_feed_frame(&x, WIRE_HELLO, 0), 0);
	assert_int_equal(end_feed_frame(&x, WIRE_OPEN, 2), 0);
	end_accept(&x, 2);
	for (unsigned int i = 0; i < 20; i++) {
		assert_int_equal(feed_data(&x, 2, 0, PIECE), 0);
		assert_int_equal(link_consumed(x.l, 2, 0, PIECE), 0);
	}
	assert_int_equal(heard, 20 * PIECE);
}
