/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots: who may send when, which frames are held meanwhile, and what is left for another
 * keeper. */
#include "test-wire.h"

enum {
	MIB = 1024 * 1024,
	TYPES = WIRE_TYPE_MAX,
};

enum st {
	KEEPER_FALLING, /* SLEEP was sent */
	KEEPER_ASLEEP,
	KEEPER_WOKEN,
	GUEST_FALLING,
	GUEST_EARLY, /* ASLEEP is not written yet */
	GUEST_ASLEEP,
	GUEST_WOKEN,
	GUEST_AGAIN, /* HELLO came instead, and was answered */
	ST_MAX,
};

static enum link_role role_of(enum st st)
{
	return st < GUEST_FALLING ? LINK_KEEPER : LINK_GUEST;
}

static void wake(struct end *x)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	sample(MESSAGE_WAKE, &b);
	assert_int_equal(link_wake(x->l, &b), 0);
}

/* An end with channel 2 open, in a state; only GUEST_EARLY has pending output. */
static void enter(struct end *x, enum st st)
{
	(void)end_start_open(x, role_of(st));
	if (st < GUEST_FALLING)
		assert_int_equal(link_sleep(x->l), 0);
	else
		assert_int_equal(end_feed_frame(x, WIRE_SLEEP, 0), 0);
	end_drain(x);
	if (st == KEEPER_ASLEEP || st == KEEPER_WOKEN)
		assert_int_equal(end_feed_frame(x, WIRE_ASLEEP, 0), 0);
	if (st == KEEPER_WOKEN)
		wake(x);
	if (st > GUEST_FALLING)
		assert_int_equal(link_asleep(x->l), 0);
	if (st == GUEST_EARLY) {
		buf_reset(&x->log);
		return;
	}
	end_drain(x);
	if (st == GUEST_WOKEN)
		assert_int_equal(end_feed_frame(x, WIRE_WAKE, 0), 0);
	x->hello = true;
	if (st == GUEST_AGAIN)
		assert_int_equal(end_feed_frame(x, WIRE_HELLO, 0), 0);
	end_drain(x);
}

/* Legal frames, with the events heard and frames sent then. Any other frame ends the link. */
static const struct {
	enum st st;
	unsigned int type;
	const char *effect;
} cells[] = {
	/* The guest may send until ASLEEP; answers are held. */
	{ KEEPER_FALLING, WIRE_PING, "|" },
	{ KEEPER_FALLING, WIRE_PONG, "pong 0\n|" },
	{ KEEPER_FALLING, WIRE_ASLEEP, "asleep 0\n|" },
	{ KEEPER_FALLING, WIRE_DATA, "data 2.0 1 \n|" },
	{ KEEPER_FALLING, WIRE_EOF, "eof 2.0\n|" },
	{ KEEPER_FALLING, WIRE_CREDIT, "credit 2.0\n|" },
	{ KEEPER_FALLING, WIRE_MSG, "msg 2\n|" },
	{ KEEPER_FALLING, WIRE_CLOSE, "closed 2\n|" },
	/* From then on, nothing. After WAKE, the same as before. */
	{ KEEPER_WOKEN, WIRE_PING, "|PONG 0\n" },
	{ KEEPER_WOKEN, WIRE_PONG, "pong 0\n|" },
	{ KEEPER_WOKEN, WIRE_DATA, "data 2.0 1 \n|" },
	{ KEEPER_WOKEN, WIRE_EOF, "eof 2.0\n|" },
	{ KEEPER_WOKEN, WIRE_CREDIT, "credit 2.0\n|" },
	{ KEEPER_WOKEN, WIRE_MSG, "msg 2\n|" },
	{ KEEPER_WOKEN, WIRE_CLOSE, "closed 2\n|CLOSE 2\n" },
	/* The keeper is silent until ASLEEP has come, then sends one of two frames. */
	{ GUEST_ASLEEP, WIRE_WAKE, "wake 0\n|" },
	{ GUEST_ASLEEP, WIRE_HELLO, "reset 0\nhello 0\n|HELLO 0\n" },
	{ GUEST_WOKEN, WIRE_PING, "|PONG 0\n" },
	{ GUEST_WOKEN, WIRE_PONG, "pong 0\n|" },
	{ GUEST_WOKEN, WIRE_SLEEP, "sleep 0\n|" },
	{ GUEST_WOKEN, WIRE_WAKE, "wake 0\n|" },
	{ GUEST_WOKEN, WIRE_DATA, "data 2.0 1 \n|" },
	{ GUEST_WOKEN, WIRE_EOF, "eof 2.0\n|" },
	{ GUEST_WOKEN, WIRE_CREDIT, "credit 2.0\n|" },
	{ GUEST_WOKEN, WIRE_MSG, "msg 2\n|" },
	{ GUEST_WOKEN, WIRE_CLOSE, "closed 2\n|CLOSE 2\n" },
	/* Channel 2 is gone, and its number is new. */
	{ GUEST_AGAIN, WIRE_PING, "|PONG 0\n" },
	{ GUEST_AGAIN, WIRE_PONG, "pong 0\n|" },
	{ GUEST_AGAIN, WIRE_SLEEP, "sleep 0\n|" },
	{ GUEST_AGAIN, WIRE_WAKE, "wake 0\n|" },
	{ GUEST_AGAIN, WIRE_OPEN, "opened 2\n|" },
};

static const char *effect_of(enum st st, unsigned int type)
{
	for (size_t i = 0; i < ARRAY_SIZE(cells); i++)
		if (cells[i].st == st && cells[i].type == type)
			return cells[i].effect;
	return NULL;
}

TEST(states_and_types)
{
	for (enum st st = 0; st < ST_MAX; st++)
		for (unsigned int type = 1; type < TYPES; type++) {
			bool on_link = type <= WIRE_PONG || type > WIRE_CLOSE;
			const char *effect = effect_of(st, type);
			_cleanup_end_ struct end x = { .l = NULL };
			int r;

			enter(&x, st);
			r = end_feed_frame(&x, type, on_link ? 0 : 2);
			if (r != (effect ? 0 : -EPROTO))
				fail_msg("state %d, type %u: %d %s", (int)st, type, r, x.e.msg);
			if (st != GUEST_EARLY) /* the frames held there are not answers */
				end_expect(&x, effect ? effect : "|");
		}
}

/* Each of the three on a channel, and with an invalid payload. */
TEST(on_channel_0_alone)
{
	static const struct {
		enum st st;
		unsigned int type;
	} legal[] = { { GUEST_WOKEN, WIRE_SLEEP },
		      { KEEPER_FALLING, WIRE_ASLEEP },
		      { GUEST_ASLEEP, WIRE_WAKE } };

	for (size_t i = 0; i < ARRAY_SIZE(legal); i++)
		for (unsigned int way = 0; way < 4; way++) {
			_cleanup_buf_ struct buf b = BUF_INIT(256);
			_cleanup_end_ struct end x = { .l = NULL };

			enter(&x, legal[i].st);
			frame_to(&b, x.role, legal[i].type, 0);
			if (way == 1)
				b.data[7] = 2; /* the channel */
			if (way == 2)
				b.data[9] = 1; /* sub */
			if (way == 3) {	       /* one byte more */
				b.data[3]++;
				(void)buf_putc(&b, 0);
			}
			assert_int_equal(end_feed(&x, b.data, b.len), way == 0 ? 0 : -EPROTO);
		}
}

TEST(not_before_both_hellos)
{
	for (enum link_role role = LINK_KEEPER; role <= LINK_GUEST; role++)
		for (unsigned int way = 0; way < 3; way++) {
			_cleanup_end_ struct end x = { .l = NULL };

			end_init(&x, role);
			if (way == 1)
				end_send_hello(&x);
			if (way == 2)
				assert_int_equal(end_feed_frame(&x, WIRE_HELLO, 0), 0);
			for (unsigned int type = WIRE_SLEEP; type <= WIRE_WAKE; type++)
				assert_int_equal(end_feed_frame(&x, type, 0), -EPROTO);
		}
}

/* A client cannot put its keeper to sleep or wake it. */
TEST(not_by_clients)
{
	for (unsigned int type = WIRE_SLEEP; type <= WIRE_WAKE; type++) {
		_cleanup_end_ struct end x = { .l = NULL };

		end_init(&x, LINK_GUEST);
		link_with_client(x.l);
		end_send_hello(&x);
		assert_int_equal(end_feed_frame(&x, WIRE_HELLO, 0), 0);
		assert_int_equal(end_feed_frame(&x, type, 0), -EPROTO);
	}
}

/* Sends everything that an owner may send on channel 2. */
static void say_all(struct end *x)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);

	assert_int_equal(link_ping(x->l, 1), 0);
	assert_int_equal(link_data(x->l, 2, 1, "x", 1), 1);
	assert_int_equal(link_eof(x->l, 2, 1), 0);
	sample(x->role == LINK_KEEPER ? MESSAGE_SIGNAL : MESSAGE_EXIT, &b);
	assert_int_equal(
		link_msg(x->l, 2, x->role == LINK_KEEPER ? WIRE_MSG_SIGNAL : WIRE_MSG_EXIT, &b), 0);
	assert_int_equal(link_close(x->l, 2, WIRE_DONE, NULL), 0);
}

#define ALL "PING 0\nDATA 2.1\nEOF 2.1\nMSG 2\nCLOSE 2\n"

TEST(what_is_sent_waits)
{
	for (unsigned int early = 0; early < 2; early++) {
		_cleanup_end_ struct end x = { .l = NULL };

		enter(&x, early ? KEEPER_FALLING : KEEPER_ASLEEP);
		say_all(&x);
		end_expect(&x, "|");
		if (early)
			assert_int_equal(end_feed_frame(&x, WIRE_ASLEEP, 0), 0);
		end_drain(&x);
		wake(&x);
		end_expect(&x, "|WAKE 0\n" ALL);
	}
}

TEST(so_does_the_guests)
{
	_cleanup_end_ struct end x = { .l = NULL };

	enter(&x, GUEST_FALLING); /* it may still send here */
	assert_int_equal(link_ping(x.l, 1), 0);
	assert_int_equal(link_asleep(x.l), 0);
	end_expect(&x, "|PING 0\nASLEEP 0\n");
	say_all(&x);
	end_expect(&x, "|");
	assert_int_equal(end_feed_frame(&x, WIRE_WAKE, 0), 0);
	end_expect(&x, "wake 0\n|" ALL);
}

/* The held frames were for channels that are gone. */
TEST(another_keeper_hears_nothing_of_it)
{
	_cleanup_end_ struct end x = { .l = NULL };

	enter(&x, GUEST_ASLEEP);
	x.hello = true;
	say_all(&x);
	assert_int_equal(end_feed_frame(&x, WIRE_HELLO, 0), 0);
	end_expect(&x, "reset 0\nhello 0\n|HELLO 0\n");
	assert_int_equal(link_channels(x.l), 0);
	assert_int_equal(end_feed_frame(&x, WIRE_OPEN, 2), 0);
	end_accept(&x, 2);
	assert_int_equal(link_credit(x.l, 2, 0), WIRE_CREDIT_START);
	end_expect(&x, "opened 2\n|ACCEPT 2\n");
	assert_int_equal(end_open(&x), 1);
}

/* Large DATA does not bypass a sleeping link, and its buffer has a limit. */
static ssize_t count_writes(void *arg, const struct iovec pieces[static 2])
{
	*(size_t *)arg += pieces[0].iov_len + pieces[1].iov_len;
	return (ssize_t)(pieces[0].iov_len + pieces[1].iov_len);
}

TEST(large_data_waits_too)
{
	static const char large[64 * 1024];
	_cleanup_end_ struct end x = { .l = NULL };
	size_t written = 0, n;

	enter(&x, KEEPER_ASLEEP);
	link_set_output(x.l, count_writes, &written);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(link_data(x.l, 2, i, large, sizeof(large)), sizeof(large));
	assert_int_equal(link_flush(x.l), 0);
	(void)link_pending(x.l, &n);
	assert_int_equal(written + n, 0);
	wake(&x);
	assert_int_equal(link_flush(x.l), 0);
	assert_true(written > 3 * sizeof(large));
	written = 0;
	assert_int_equal(link_data(x.l, 2, 0, large, sizeof(large)), sizeof(large));
	assert_int_equal(written, WIRE_HEADER + sizeof(large));
}

/* Held frames count as output: at the limit DATA stops first, then the link. */
TEST(what_waits_has_a_limit)
{
	_cleanup_end_ struct end x = { .l = NULL };
	size_t n = 0;

	enter(&x, KEEPER_FALLING);
	for (; link_ready(x.l); n += WIRE_HEADER + 8)
		assert_int_equal(link_ping(x.l, n), 0);
	assert_true(n >= MIB && n < MIB + 64);
	assert_int_equal(link_data(x.l, 2, 0, "x", 1), 0);
	for (; n + WIRE_HEADER + 8 <= LINK_OUT_MAX; n += WIRE_HEADER + 8)
		assert_int_equal(link_ping(x.l, n), 0);
	assert_int_equal(link_ping(x.l, n), -ENOBUFS);
	assert_int_equal(end_feed_frame(&x, WIRE_ASLEEP, 0), -ENOBUFS);
}

TEST(callbacks_may_be_missing)
{
	static const struct link_ops none;
	_cleanup_buf_ struct buf b = BUF_INIT(256);
	_cleanup_link_ struct link *l = NULL;
	struct err e = ERR_INIT;
	size_t n;

	assert_int_equal(link_new(LINK_GUEST, &none, NULL, &l), 0);
	sample(MESSAGE_HELLO_GUEST, &b);
	assert_int_equal(link_hello(l, &b), 0);
	buf_reset(&b);
	frame_to(&b, LINK_GUEST, WIRE_HELLO, 0);
	frame_to(&b, LINK_GUEST, WIRE_SLEEP, 0);
	assert_int_equal(link_feed(l, b.data, b.len, &e), 0);
	assert_int_equal(link_asleep(l), 0);
	(void)link_pending(l, &n);
	link_wrote(l, n);
	buf_reset(&b);
	frame_to(&b, LINK_GUEST, WIRE_HELLO, 0);
	assert_int_equal(link_feed(l, b.data, b.len, &e), 0);
}
