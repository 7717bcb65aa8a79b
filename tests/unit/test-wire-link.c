/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a link that receives hand-made frames, valid and invalid. */
#include "test-wire.h"

#include <malloc.h>

#include "fail.h"

enum {
	MIB = 1024 * 1024,
	TYPES = WIRE_TYPE_MAX
};

/* ---- every state and every type ---- */

enum st {
	ST_FIRST, /* no HELLO yet; the frame is on channel 0 */
	ST_FIRST_CHANNEL,
	ST_HALF, /* they did, we did not */
	ST_HALF_CHANNEL,
	ST_SENT, /* we did, they did not */
	ST_SENT_CHANNEL,
	ST_LINK,    /* both did: channel 0 */
	ST_FALLING, /* the keeper said SLEEP */
	ST_NEW_OWN,
	ST_NEW_THEIRS,
	ST_ASKING,
	ST_ASKED,
	ST_OPEN_OWN,
	ST_OPEN_THEIRS,
	ST_EOF, /* open, and they said EOF */
	ST_CLOSING,
	ST_REFUSED,   /* closing, after their request */
	ST_CANCELLED, /* closing, after our request */
	ST_GONE_OWN,
	ST_GONE_THEIRS,
	ST_MAX,
};

/* The effect of a frame: "heard|SAID", '#' for the channel; an empty cell is an error. */
static const struct cell {
	const char *effect;
	enum st next;
} cells[ST_MAX][TYPES] = {
	[ST_FIRST] = { [WIRE_HELLO] = { "hello 0|", ST_HALF } },
	[ST_SENT] = { [WIRE_HELLO] = { "hello 0|", ST_LINK } },
	[ST_LINK] = { [WIRE_PING] = { "|PONG 0", ST_LINK },
		      [WIRE_PONG] = { "pong 0|", ST_LINK },
		      [WIRE_SLEEP] = { "sleep 0|", ST_FALLING },
		      [WIRE_WAKE] = { "wake 0|", ST_LINK } },
	[ST_NEW_THEIRS] = { [WIRE_OPEN] = { "opened #|", ST_ASKED } },
	[ST_ASKING] = { [WIRE_ACCEPT] = { "accepted #|", ST_OPEN_OWN },
			[WIRE_CLOSE] = { "closed #|CLOSE #", ST_GONE_OWN } },
	[ST_ASKED] = { [WIRE_CLOSE] = { "closed #|CLOSE #", ST_GONE_THEIRS } },
	[ST_OPEN_OWN] = { [WIRE_DATA] = { "data #.0 1 |", ST_OPEN_OWN },
			  [WIRE_EOF] = { "eof #.0|", ST_EOF },
			  [WIRE_CREDIT] = { "credit #.0|", ST_OPEN_OWN },
			  [WIRE_MSG] = { "msg #|", ST_OPEN_OWN },
			  [WIRE_CLOSE] = { "closed #|CLOSE #", ST_GONE_OWN } },
	[ST_OPEN_THEIRS] = { [WIRE_DATA] = { "data #.0 1 |", ST_OPEN_THEIRS },
			     [WIRE_EOF] = { "eof #.0|", ST_EOF },
			     [WIRE_CREDIT] = { "credit #.0|", ST_OPEN_THEIRS },
			     [WIRE_MSG] = { "msg #|", ST_OPEN_THEIRS },
			     [WIRE_CLOSE] = { "closed #|CLOSE #", ST_GONE_THEIRS } },
	[ST_EOF] = { [WIRE_CREDIT] = { "credit #.0|", ST_EOF },
		     [WIRE_MSG] = { "msg #|", ST_EOF },
		     [WIRE_CLOSE] = { "closed #|CLOSE #", ST_GONE_OWN } },
	[ST_CLOSING] = { [WIRE_DATA] = { "|", ST_CLOSING },
			 [WIRE_EOF] = { "|", ST_CLOSING },
			 [WIRE_CREDIT] = { "|", ST_CLOSING },
			 [WIRE_MSG] = { "|", ST_CLOSING },
			 [WIRE_CLOSE] = { "|", ST_GONE_OWN } },
	[ST_REFUSED] = { [WIRE_DATA] = { "|", ST_REFUSED },
			 [WIRE_EOF] = { "|", ST_REFUSED },
			 [WIRE_CREDIT] = { "|", ST_REFUSED },
			 [WIRE_MSG] = { "|", ST_REFUSED },
			 [WIRE_CLOSE] = { "|", ST_GONE_THEIRS } },
	[ST_CANCELLED] = { [WIRE_ACCEPT] = { "|", ST_CANCELLED },
			   [WIRE_DATA] = { "|", ST_CANCELLED },
			   [WIRE_EOF] = { "|", ST_CANCELLED },
			   [WIRE_CREDIT] = { "|", ST_CANCELLED },
			   [WIRE_MSG] = { "|", ST_CANCELLED },
			   [WIRE_CLOSE] = { "|", ST_GONE_OWN } },
};

/* Frames that are on channel 0. */
static bool on_link(unsigned int type)
{
	return type <= WIRE_PONG || type > WIRE_CLOSE;
}

static uint32_t own(enum link_role role)
{
	return role == LINK_KEEPER ? 2 : 1;
}

static void enter_channel(struct end *x, enum st st, uint32_t ch)
{
	bool theirs = st == ST_NEW_THEIRS || st == ST_ASKED || st == ST_OPEN_THEIRS ||
		      st == ST_REFUSED || st == ST_GONE_THEIRS;

	if (theirs)
		assert_int_equal(end_feed_frame(x, WIRE_OPEN, ch), 0);
	else
		assert_int_equal(end_open(x), ch);
	if (st == ST_OPEN_THEIRS)
		end_accept(x, ch);
	if (st == ST_OPEN_OWN || st == ST_EOF || st == ST_CLOSING || st == ST_GONE_OWN)
		assert_int_equal(end_feed_frame(x, WIRE_ACCEPT, ch), 0);
	if (st == ST_EOF)
		assert_int_equal(end_feed_frame(x, WIRE_EOF, ch), 0);
	if (st == ST_CLOSING || st == ST_REFUSED || st == ST_CANCELLED || st == ST_GONE_OWN)
		assert_int_equal(link_close(x->l, ch, WIRE_DONE, NULL), 0);
	if (st == ST_GONE_OWN || st == ST_GONE_THEIRS)
		assert_int_equal(end_feed_frame(x, WIRE_CLOSE, ch), 0);
}

/* Brings an end into a state; returns that state's channel. */
static uint32_t enter(struct end *x, enum link_role role, enum st st)
{
	uint32_t ch = own(role);

	if (st == ST_NEW_THEIRS || st == ST_ASKED || st == ST_OPEN_THEIRS || st == ST_REFUSED ||
	    st == ST_GONE_THEIRS)
		ch = 3 - ch;
	if (st == ST_FIRST_CHANNEL || st == ST_HALF_CHANNEL || st == ST_SENT_CHANNEL)
		ch = 3 - ch; /* an OPEN would be theirs */
	end_init(x, role);
	if (st >= ST_SENT)
		end_send_hello(x);
	if (st == ST_HALF || st == ST_HALF_CHANNEL || st >= ST_LINK)
		assert_int_equal(end_feed_frame(x, WIRE_HELLO, 0), 0);
	if (st == ST_FALLING)
		assert_int_equal(end_feed_frame(x, WIRE_SLEEP, 0), 0);
	if (st > ST_NEW_THEIRS)
		enter_channel(x, st, ch);
	end_drain(x);
	return st == ST_FIRST || st == ST_HALF || st == ST_SENT || st == ST_LINK || st == ST_FALLING
		       ? 0
		       : ch;
}

/* Only a guest receives requests, SLEEP and WAKE. */
static bool reachable(enum link_role role, enum st st)
{
	return role == LINK_GUEST || (st != ST_FALLING && st != ST_ASKED && st != ST_OPEN_THEIRS &&
				      st != ST_REFUSED && st != ST_GONE_THEIRS);
}

static const char *effect_of(enum link_role role, enum st st, unsigned int type)
{
	return role == LINK_KEEPER && (type == WIRE_OPEN || type == WIRE_SLEEP || type == WIRE_WAKE)
		       ? NULL
		       : cells[st][type].effect;
}

/* After an error nothing changes, and everything fails with the same errno. */
static void assert_dead(struct end *x, uint32_t ch, int err)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64), broken = { .err = -ENOBUFS };
	size_t n, before, channels = link_channels(x->l);
	uint32_t ret = 99;

	buf_reset(&x->log);
	(void)link_pending(x->l, &before);
	sample(MESSAGE_SIGNAL, &b);
	assert_int_equal(end_feed_frame(x, WIRE_PING, 0), err);
	assert_int_equal(end_feed_frame(x, WIRE_CLOSE, ch), err);
	assert_int_equal(end_feed(x, NULL, 0), err);
	assert_int_equal(link_ping(x->l, 1), err);
	assert_int_equal(link_open(x->l, WIRE_OP_EXEC, &b, NULL, &ret), err);
	assert_int_equal(link_accept(x->l, ch, NULL), err);
	assert_int_equal(link_msg(x->l, ch, WIRE_MSG_SIGNAL, &b), err);
	assert_int_equal(link_msg(x->l, ch, WIRE_MSG_SIGNAL, &broken), err);
	assert_int_equal(link_data(x->l, ch, 0, "x", 1), err);
	assert_int_equal(link_eof(x->l, ch, 0), err);
	assert_int_equal(link_consumed(x->l, ch, 0, 1), err);
	assert_int_equal(link_close(x->l, ch, WIRE_DONE, NULL), err);
	assert_false(link_ready(x->l));
	assert_int_equal(ret, 99);
	assert_int_equal(link_channels(x->l), channels);
	(void)link_pending(x->l, &n);
	assert_int_equal(n, before);
	assert_string_equal(buf_text(&x->log), "");
}

/* Feeds a frame in a state and checks its effect. Returns whether it was legal. */
static bool check_cell(struct end *x, enum st st, unsigned int type, uint32_t ch)
{
	const char *effect = effect_of(x->role, st, type);
	_cleanup_buf_ struct buf want = BUF_INIT(256);
	int r = end_feed_frame(x, type, ch);

	if (r != (effect ? 0 : -EPROTO))
		fail_msg("role %d, state %d, type %u: %d %s", (int)x->role, (int)st, type, r,
			 x->e.msg);
	if (!effect) {
		end_expect(x, "|");
		assert_dead(x, ch, -EPROTO);
		return false;
	}
	for (const char *p = effect; *p; p++) {
		if ((*p == '|' && p > effect))
			(void)buf_putc(&want, '\n');
		(void)(*p == '#' ? buf_printf(&want, "%u", ch) : buf_putc(&want, *p));
	}
	if (effect[strlen(effect) - 1] != '|')
		(void)buf_putc(&want, '\n');
	end_expect(x, buf_text(&want));
	return true;
}

TEST(states_and_types)
{
	for (enum link_role role = LINK_KEEPER; role <= LINK_GUEST; role++)
		for (enum st st = 0; st < ST_MAX; st++)
			for (unsigned int type = 1; type < TYPES; type++) {
				_cleanup_end_ struct end x = { .l = NULL };

				if (!reachable(role, st))
					continue;
				(void)check_cell(&x, st, type, enter(&x, role, st));
			}
}

/* The effect of every second frame shows the state after the first. */
TEST(states_follow_states)
{
	for (enum link_role role = LINK_KEEPER; role <= LINK_GUEST; role++)
		for (enum st st = 0; st < ST_MAX; st++)
			for (unsigned int pair = 0; pair < TYPES * TYPES; pair++) {
				unsigned int first = pair / TYPES, second = pair % TYPES;
				_cleanup_end_ struct end x = { .l = NULL };
				uint32_t ch;

				if (first == 0 || second == 0 || !reachable(role, st) ||
				    !effect_of(role, st, first))
					continue;
				ch = enter(&x, role, st);
				assert_true(check_cell(&x, st, first, ch));
				(void)check_cell(&x, cells[st][first].next, second, ch);
			}
}

/* Which states count as a channel. */
TEST(channels_are_counted)
{
	for (enum st st = 0; st < ST_MAX; st++) {
		_cleanup_end_ struct end x = { .l = NULL };
		bool counts = st > ST_NEW_THEIRS && st < ST_GONE_OWN;

		(void)enter(&x, LINK_GUEST, st);
		assert_int_equal(link_channels(x.l), counts);
	}
}

/* ---- headers ---- */

/* The 12 bytes are enough to reject a frame; a valid header waits for more. */
static void expect_header(enum link_role role, uint32_t len, unsigned int type, unsigned int sub,
			  unsigned int zero, int want)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	_cleanup_end_ struct end x = { .l = NULL };
	uint32_t ch = end_start_open(&x, role);

	frame_header(&b, len, on_link(type) ? 0 : ch, type, sub, zero);
	assert_int_equal(end_feed(&x, b.data, b.len - 1), 0);
	assert_int_equal(end_feed(&x, b.data + b.len - 1, 1), want);
	end_done(&x);
	ch = end_start_open(&x, role);
	assert_int_equal(end_feed(&x, b.data, b.len), want);
	end_expect(&x, "|");
	if (want < 0)
		assert_dead(&x, ch, want);
}

TEST(lengths_have_limits)
{
	for (enum link_role role = LINK_KEEPER; role <= LINK_GUEST; role++)
		for (unsigned int type = 1; type < TYPES; type++) {
			bool large = role == LINK_GUEST && type == WIRE_OPEN;
			uint32_t max = large ? MIB : 65536;

			expect_header(role, 1, type, 0, 0, 0);
			expect_header(role, max - 1, type, 0, 0, 0);
			expect_header(role, max, type, 0, 0, 0);
			expect_header(role, max + 1, type, 0, 0, -EPROTO);
			expect_header(role, MIB + 1, type, 0, 0, -EPROTO);
			expect_header(role, UINT32_C(1) << 31, type, 0, 0, -EPROTO);
			expect_header(role, UINT32_MAX, type, 0, 0, -EPROTO);
		}
}

TEST(types_and_zeros)
{
	for (unsigned int type = 0; type < 256; type++)
		if (type == 0 || type >= TYPES)
			expect_header(LINK_GUEST, 8, type, 0, 0, -EPROTO);
	for (unsigned int bit = 0; bit < 16; bit++)
		expect_header(LINK_KEEPER, 8, WIRE_PING, 0, 1U << bit, -EPROTO);
}

/* An empty frame is one of EOF, of SLEEP, or of WAKE. */
TEST(empty_payloads)
{
	for (enum link_role role = LINK_KEEPER; role <= LINK_GUEST; role++)
		for (unsigned int type = 1; type < TYPES; type++) {
			_cleanup_end_ struct end x = { .l = NULL };
			uint32_t ch = end_start_open(&x, role);
			int r = end_feed_raw(&x, type, on_link(type) ? 0 : ch, 0, NULL, 0);
			bool good =
				type == WIRE_EOF ||
				((type == WIRE_SLEEP || type == WIRE_WAKE) && role == LINK_GUEST);

			assert_int_equal(r, good ? 0 : -EPROTO);
		}
}

TEST(payloads_of_the_wrong_size)
{
	static const struct {
		unsigned int type;
		const char *bytes;
		size_t n;
		int want;
	} list[] = {
		{ WIRE_PING, "1234567", 7, -EPROTO },
		{ WIRE_PING, "123456789", 9, -EPROTO },
		{ WIRE_PONG, "1234567", 7, -EPROTO },
		{ WIRE_PONG, "123456789", 9, -EPROTO },
		{ WIRE_EOF, "x", 1, -EPROTO },
		{ WIRE_CREDIT, "\0\0\1", 3, -EPROTO },
		{ WIRE_CREDIT, "\0\0\0\1\0", 5, -EPROTO },
		{ WIRE_CREDIT, "\0\0\0\0", 4, -EPROTO },
		{ WIRE_CREDIT, "\0\0\0\1", 4, 0 },
		{ WIRE_MSG, "\x18\0\0\x01\x09", 5, -EPROTO },
		{ WIRE_CLOSE, "\x1f\0\0\0", 4, -EPROTO },
		{ WIRE_SLEEP, "x", 1, -EPROTO },
		{ WIRE_WAKE, "x", 1, -EPROTO },
	};

	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		_cleanup_end_ struct end x = { .l = NULL };
		uint32_t ch = end_start_open(&x, LINK_GUEST);

		if (on_link(list[i].type))
			ch = 0;
		assert_int_equal(end_feed_raw(&x, list[i].type, ch, list[i].type == WIRE_MSG,
					      list[i].bytes, list[i].n),
				 list[i].want);
	}
}

/* Valid values of `sub`: a stream, an operation, a kind; otherwise 0. */
TEST(subs_are_checked)
{
	for (enum link_role role = LINK_KEEPER; role <= LINK_GUEST; role++)
		for (unsigned int type = 1; type < TYPES; type++)
			for (unsigned int sub = 0; sub < 256; sub++) {
				bool stream = type >= WIRE_DATA && type <= WIRE_CREDIT;
				bool good = stream	       ? sub < 3
					    : type == WIRE_MSG ? sub == msg_kind(role)
					    : type == WIRE_OPEN
						    ? sub == WIRE_OP_EXEC && role == LINK_GUEST
						    : sub == 0 && (type <= WIRE_CLOSE ||
								   (type != WIRE_ASLEEP &&
								    role == LINK_GUEST));
				_cleanup_buf_ struct buf b = BUF_INIT(256);
				_cleanup_end_ struct end x = { .l = NULL };
				uint32_t ch = end_start_open(&x, role);

				if (type == WIRE_HELLO) {
					end_done(&x);
					end_init(&x, role);
				}
				if (type == WIRE_ACCEPT)
					ch = end_open(&x);
				if (type == WIRE_OPEN)
					ch = own(role) == 2 ? 1 : 4;
				frame_to(&b, role, type, on_link(type) ? 0 : ch);
				b.data[9] = (char)sub;
				if (end_feed(&x, b.data, b.len) != (good ? 0 : -EPROTO))
					fail_msg("role %d, type %u, sub %u", (int)role, type, sub);
			}
}

TEST(versions_must_be_equal)
{
	for (uint64_t version = 0; version < 4; version++) {
		_cleanup_buf_ struct buf b = BUF_INIT(64);
		_cleanup_end_ struct end x = { .l = NULL };

		end_init(&x, LINK_GUEST);
		fields_put_number(&b, TAG_VERSION, version);
		assert_int_equal(end_feed_raw(&x, WIRE_HELLO, 0, 0, b.data, b.len),
				 version == 1 ? 0 : -EPROTO);
		assert_string_equal(buf_text(&x.log), version == 1 ? "hello 0\n" : "");
	}
}

TEST(hello_is_of_the_other_side)
{
	_cleanup_end_ struct end x = { .l = NULL };
	_cleanup_buf_ struct buf b = BUF_INIT(256);

	end_init(&x, LINK_GUEST);
	frame_to(&b, LINK_KEEPER, WIRE_HELLO, 0);
	assert_int_equal(end_feed(&x, b.data, b.len), -EPROTO);
	assert_int_equal(link_hello(x.l, &b), -EPROTO);
}

TEST(accepting_says_what_was_asked)
{
	static const struct {
		const char *bytes;
		size_t n;
	} wrong[] = { { "", 0 }, { "\x17\0\0\x07xxxxxxx", 11 }, { "\x0a\0\0\x01x", 5 } };

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		_cleanup_end_ struct end x = { .l = NULL };
		uint32_t ch;

		end_start(&x, LINK_KEEPER);
		ch = end_open(&x);
		assert_int_equal(end_feed_raw(&x, WIRE_ACCEPT, ch, 0, wrong[i].bytes, wrong[i].n),
				 -EPROTO);
		end_expect(&x, "|OPEN 2\n");
	}
}

/* ---- pieces ---- */

/* All that one side may receive in a link's life, some of it in unusual orders. */
static void script(enum link_role role, bool wrong_end, struct buf *b)
{
	frame_to(b, role, WIRE_HELLO, 0);
	frame_to(b, role, WIRE_PING, 0);
	for (uint32_t ch = 2; ch <= 8; ch += 2)
		frame_to(b, role, role == LINK_GUEST ? WIRE_OPEN : WIRE_ACCEPT, ch);
	frame(b, WIRE_DATA, 2, 0, "some bytes", 10);
	frame(b, WIRE_DATA, 4, 2, "others that are longer than a header", 36);
	for (unsigned int type = WIRE_DATA; type <= WIRE_CLOSE; type++)
		frame_to(b, role, type, 6);
	frame_to(b, role, WIRE_PONG, 0);
	frame_to(b, role, WIRE_CLOSE, 4);
	frame_to(b, role, WIRE_EOF, 2);
	frame_to(b, role, WIRE_CLOSE, 2);
	if (wrong_end)
		frame_to(b, role, WIRE_DATA, 2);
}

static void script_begin(struct end *x, enum link_role role)
{
	end_init(x, role);
	x->accept = true;
	x->hello = role == LINK_GUEST;
	if (role == LINK_GUEST)
		return;
	end_send_hello(x);
	for (unsigned int i = 0; i < 4; i++)
		(void)end_open(x);
}

/* Feeds the script in pieces that end at `cuts`, and returns all events. */
static int play(enum link_role role, const struct buf *b, size_t first, size_t step,
		struct buf *ret)
{
	_cleanup_end_ struct end x = { .l = NULL };
	size_t n;
	int r = 0;

	script_begin(&x, role);
	for (size_t at = 0, next = first; r == 0 && at < b->len;
	     at = next, next = MIN(next + step, b->len))
		r = end_feed(&x, b->data + at, next - at);
	assert_int_equal(buf_puts(ret, buf_text(&x.log)), 0);
	assert_int_equal(buf_put(ret, link_pending(x.l, &n), 0), 0);
	assert_int_equal(buf_put(ret, link_pending(x.l, &n), n), 0);
	return r;
}

TEST(pieces_do_not_matter)
{
	for (unsigned int i = 0; i < 4; i++) {
		enum link_role role = i % 2 ? LINK_GUEST : LINK_KEEPER;
		_cleanup_buf_ struct buf b = BUF_INIT(64 * 1024), whole = BUF_INIT(64 * 1024);
		int want = i / 2 ? -EPROTO : 0;

		script(role, i / 2, &b);
		assert_int_equal(play(role, &b, b.len, b.len, &whole), want);
		assert_non_null(strstr(whole.data, "closed 2\n"));
		for (size_t first = 0; first < b.len; first++) {
			_cleanup_buf_ struct buf got = BUF_INIT(64 * 1024);

			assert_int_equal(play(role, &b, first, b.len, &got), want);
			assert_int_equal(got.len, whole.len);
			assert_memory_equal(got.data, whole.data, whole.len);
		}
		for (size_t step = 1; step < 40; step++) {
			_cleanup_buf_ struct buf got = BUF_INIT(64 * 1024);

			assert_int_equal(play(role, &b, step, step, &got), want);
			assert_int_equal(got.len, whole.len);
			assert_memory_equal(got.data, whole.data, whole.len);
		}
	}
}

/* A script cut at any byte has the effect of its whole frames, and no error. */
TEST(cut_anywhere)
{
	for (enum link_role role = LINK_KEEPER; role <= LINK_GUEST; role++) {
		_cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);
		_cleanup_end_ struct end all = { .l = NULL };

		script(role, false, &b);
		script_begin(&all, role);
		assert_int_equal(end_feed(&all, b.data, b.len), 0);
		for (size_t n = 0; n < b.len; n++) {
			_cleanup_end_ struct end x = { .l = NULL };

			script_begin(&x, role);
			assert_int_equal(end_feed(&x, b.data, n), 0);
			assert_true(x.log.len <= all.log.len);
			assert_memory_equal(buf_text(&x.log), all.log.data, x.log.len);
		}
	}
}

/* The sanitizer's count if there is one, otherwise glibc's. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t heap(void)
{
	struct mallinfo2 m = mallinfo2();

	return __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes()
						       : m.uordblks + m.hblkhd;
}

/* Memory grows with the received bytes, not with the announced length. */
TEST(announcements_cost_nothing)
{
	static const char zeros[4096];
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	_cleanup_end_ struct end x = { .l = NULL };
	size_t before;

	end_start(&x, LINK_GUEST);
	frame_header(&b, MIB, 2, WIRE_OPEN, WIRE_OP_EXEC, 0);
	before = heap();
	assert_int_equal(link_feed(x.l, b.data, b.len, &x.e), 0);
	assert_in_range(heap() - before, 0, 1024);
	for (size_t fed = 0; fed + sizeof(zeros) < MIB; fed += sizeof(zeros)) {
		assert_int_equal(link_feed(x.l, zeros, sizeof(zeros), &x.e), 0);
		assert_in_range(heap() - before, 1, 2 * (fed + 2 * sizeof(zeros)));
	}
	assert_string_equal(buf_text(&x.log), "");
}

/* ---- channels ---- */

TEST(numbers_go_up)
{
	static const struct {
		uint32_t first, second;
		int want;
	} list[] = {
		{ 2, 5, -EPROTO },
		{ 2, 4, 0 },
		{ 2, 2, -EPROTO },
		{ 4, 2, -EPROTO },
		{ 2, 3, -EPROTO },
		{ 2, 1, -EPROTO },
		{ 2, UINT32_MAX - 1, 0 },
		{ 1000, 1002, 0 },
		{ 1000, 998, -EPROTO },
		{ UINT32_MAX - 1, 2, -EPROTO },
		{ UINT32_MAX - 1, 4, -EPROTO },
		{ UINT32_MAX - 1, UINT32_MAX, -EPROTO },
		{ UINT32_MAX - 1, UINT32_MAX - 1, -EPROTO },
	};

	for (size_t i = 0; i < 2 * ARRAY_SIZE(list); i++) {
		_cleanup_end_ struct end x = { .l = NULL };

		end_start(&x, LINK_GUEST);
		assert_int_equal(end_feed_frame(&x, WIRE_OPEN, list[i / 2].first), 0);
		if (i % 2) /* the same after the first one is gone */
			assert_int_equal(end_feed_frame(&x, WIRE_CLOSE, list[i / 2].first), 0);
		assert_int_equal(end_feed_frame(&x, WIRE_OPEN, list[i / 2].second),
				 list[i / 2].want);
	}
}

TEST(own_numbers_go_up)
{
	for (enum link_role role = LINK_KEEPER; role <= LINK_GUEST; role++) {
		_cleanup_end_ struct end x = { .l = NULL };
		uint32_t want = own(role);

		end_start(&x, role);
		for (unsigned int i = 0; i < 10; i++, want += 2) {
			assert_int_equal(end_open(&x), want);
			assert_int_equal(end_feed_frame(&x, WIRE_CLOSE, want), 0);
		}
	}
}

TEST(guests_ask_for_nothing)
{
	for (unsigned int op = 0; op < 256; op++) {
		_cleanup_end_ struct end x = { .l = NULL };

		end_start(&x, LINK_KEEPER);
		assert_int_equal(end_feed_raw(&x, WIRE_OPEN, 1, op, "\x07\0\0\1x", 5), -EPROTO);
	}
}

TEST(channels_have_a_limit)
{
	_cleanup_end_ struct end x = { .l = NULL };
	uint32_t ch = 2;

	end_start(&x, LINK_GUEST);
	for (; ch <= 2 * 1024; ch += 2)
		assert_int_equal(end_feed_frame(&x, WIRE_OPEN, ch), 0);
	end_drain(&x);
	assert_int_equal(link_channels(x.l), 1024);
	assert_int_equal(end_feed_frame(&x, WIRE_OPEN, ch), 0);
	end_expect(&x, "|CLOSE 2050\n");
	assert_int_equal(link_channels(x.l), 1025);
	/* One that ends makes room for one, after the refusal has been acknowledged. */
	assert_int_equal(end_feed_frame(&x, WIRE_CLOSE, ch), 0);
	assert_int_equal(end_feed_frame(&x, WIRE_CLOSE, 2), 0);
	end_drain(&x);
	ch += 2;
	assert_int_equal(end_feed_frame(&x, WIRE_OPEN, ch), 0);
	end_expect(&x, "opened 2052\n|");
	for (ch += 2; link_channels(x.l) < 2048; ch += 2)
		assert_int_equal(end_feed_frame(&x, WIRE_OPEN, ch), 0);
	end_drain(&x);
	assert_int_equal(end_feed_frame(&x, WIRE_OPEN, ch), -EPROTO);
	assert_dead(&x, ch, -EPROTO);
}

TEST(opening_has_a_limit)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	_cleanup_end_ struct end x = { .l = NULL };
	uint32_t ch = 77;

	end_start(&x, LINK_KEEPER);
	for (unsigned int i = 0; i < 1024; i++)
		(void)end_open(&x);
	sample(MESSAGE_EXEC, &b);
	assert_int_equal(link_open(x.l, WIRE_OP_EXEC, &b, NULL, &ch), -EAGAIN);
	assert_int_equal(ch, 77);
	assert_int_equal(link_close(x.l, 2, WIRE_DONE, NULL), 0);
	/* Not gone until the peer closes it. */
	assert_int_equal(link_open(x.l, WIRE_OP_EXEC, &b, NULL, &ch), -EAGAIN);
	assert_int_equal(end_feed_frame(&x, WIRE_CLOSE, 2), 0);
	assert_int_equal(end_open(&x), 2050);
}

TEST(cookies_travel)
{
	_cleanup_end_ struct end x = { .l = NULL };
	uint32_t ch;

	end_start(&x, LINK_KEEPER);
	ch = end_open(&x);
	assert_ptr_equal(link_cookie(x.l, ch), &x);
	link_set_cookie(x.l, ch, &ch);
	assert_ptr_equal(link_cookie(x.l, ch), &ch);
	assert_null(link_cookie(x.l, ch + 2));
	link_set_cookie(x.l, ch + 2, &ch);
	assert_null(link_cookie(x.l, ch + 2));
	assert_int_equal(link_close(x.l, ch, WIRE_DONE, NULL), 0);
	assert_null(link_cookie(x.l, ch));
}

TEST(what_is_not_open_is_stale)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	_cleanup_end_ struct end x = { .l = NULL };
	uint32_t ch;

	end_start(&x, LINK_KEEPER);
	ch = end_open(&x);
	end_drain(&x);
	sample(MESSAGE_SIGNAL, &b);
	for (uint32_t c = ch; c <= ch + 2; c += 2) {
		assert_int_equal(link_msg(x.l, c, WIRE_MSG_SIGNAL, &b), -ESTALE);
		assert_int_equal(link_data(x.l, c, 0, "x", 1), -ESTALE);
		assert_int_equal(link_eof(x.l, c, 0), -ESTALE);
		assert_int_equal(link_consumed(x.l, c, 0, 1), 0);
		assert_int_equal(link_credit(x.l, c, 0), 0);
	}
	assert_int_equal(link_close(x.l, ch + 2, WIRE_DONE, NULL), 0);
	end_expect(&x, "|");
}

TEST(fields_have_limits)
{
	_cleanup_buf_ struct buf large = BUF_INIT(2 * MIB), broken = { .err = -ENOMEM };
	_cleanup_end_ struct end x = { .l = NULL };
	uint32_t ch = end_start_open(&x, LINK_KEEPER), ret = 0;

	assert_non_null(buf_reserve(&large, MIB + 1));
	memset(large.data, 0, MIB + 1);
	buf_commit(&large, MIB + 1);
	assert_int_equal(link_open(x.l, WIRE_OP_EXEC, &large, NULL, &ret), -EMSGSIZE);
	assert_int_equal(link_open(x.l, WIRE_OP_EXEC, &broken, NULL, &ret), -ENOMEM);
	large.len = 65537;
	assert_int_equal(link_msg(x.l, ch, WIRE_MSG_SIGNAL, &large), -EMSGSIZE);
	end_expect(&x, "|");
	large.len = MIB;
	assert_int_equal(link_open(x.l, WIRE_OP_EXEC, &large, NULL, &ret), 0);
	assert_int_equal(ret, 4);
	end_expect(&x, "|OPEN 4\n");
	end_done(&x);
	end_start(&x, LINK_GUEST);
	assert_int_equal(link_open(x.l, WIRE_OP_EXEC, &large, NULL, &ret), -EMSGSIZE);
}

/* The text of a CLOSE as the peer reads it: valid for any input. */
TEST(closing_texts_are_cut_and_cleaned)
{
	static const struct {
		const char *bytes;
		size_t repeat;
		size_t want;
	} list[] = { { "", 1, 0 },
		     { "x", 255, 255 },
		     { "x", 256, 256 },
		     { "x", 257, 256 },
		     { "\xc3\xa4", 128, 256 },
		     { "\xc3\xa4", 500, 256 },
		     { "\xe2\x82\xac", 86, 255 },
		     { "\xff", 1, 1 },
		     { "/x/\xff\xc3", 100, 256 } };

	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		_cleanup_buf_ struct buf text = BUF_INIT(4096);
		_cleanup_end_ struct end x = { .l = NULL };
		uint32_t ch = end_start_open(&x, LINK_GUEST);
		struct err e = ERR_INIT;
		struct fields f;
		const char *out, *value;
		size_t n, pos = 0;

		for (size_t k = 0; k < list[i].repeat; k++)
			(void)buf_puts(&text, list[i].bytes);
		assert_int_equal(link_close(x.l, ch, WIRE_IO, buf_text(&text)), 0);
		out = link_pending(x.l, &n);
		assert_int_equal(
			fields_parse(MESSAGE_CLOSE, out + WIRE_HEADER, n - WIRE_HEADER, &f, &e), 0);
		assert_int_equal(fields_number(&f, TAG_CODE, 0), WIRE_IO);
		assert_true(fields_next(&f, TAG_TEXT, &pos, &value, &n));
		assert_int_equal(n, list[i].want);
	}
}

/* ---- closing inside callbacks ---- */

TEST(closing_inside_callbacks)
{
	static const char *const names[] = { "opened", "accepted", "data", "eof",
					     "credit", "msg",	   "pong", "closed" };

	for (unsigned int i = 0; i < 2 * ARRAY_SIZE(names); i++) {
		enum link_role role = i % 2 ? LINK_GUEST : LINK_KEEPER;
		_cleanup_buf_ struct buf b = BUF_INIT(4096), said = BUF_INIT(4096);
		_cleanup_end_ struct end x = { .l = NULL };
		const char *name = names[i / 2], *at;
		bool last = strcmp(name, "closed") == 0;

		if (strcmp(name, role == LINK_GUEST ? "accepted" : "opened") == 0)
			continue;
		end_start(&x, role);
		x.close_in = name;
		x.close_ch = 2;
		x.accept = strcmp(name, "opened") != 0;
		if (role == LINK_KEEPER)
			(void)end_open(&x);
		frame_to(&b, role, role == LINK_GUEST ? WIRE_OPEN : WIRE_ACCEPT, 2);
		for (unsigned int type = WIRE_DATA; type <= WIRE_MSG; type++)
			frame_to(&b, role, type, 2);
		frame_to(&b, role, WIRE_PONG, 0);
		frame_to(&b, role, WIRE_CLOSE, 2);
		assert_int_equal(end_feed(&x, b.data, b.len), 0);
		assert_int_equal(link_channels(x.l), 0);
		at = strstr(x.log.data, name);
		assert_non_null(at);
		at = strchr(at, '\n') + 1;
		assert_string_equal(at, strcmp(name, "pong") == 0 || last ? "" : "pong 0\n");
		end_output(&x, &said);
		at = strstr(said.data, "CLOSE 2\n");
		assert_non_null(at);
		assert_string_equal(at, "CLOSE 2\n"); /* one, and the last */
	}
}

static void use_in_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct end *x = arg;

	assert_ptr_equal(link_cookie(l, ch), x);
	assert_int_equal(link_data(l, ch, 0, "x", 1), -ESTALE);
	assert_int_equal(link_eof(l, ch, 0), -ESTALE);
	assert_int_equal(link_msg(l, ch, WIRE_MSG_SIGNAL, NULL), -ESTALE);
	assert_int_equal(link_consumed(l, ch, 0, 1), 0);
	assert_int_equal(link_credit(l, ch, 0), 0);
	assert_int_equal(link_close(l, ch, WIRE_DONE, NULL), 0);
	for (unsigned int i = 0; i < 600; i++) /* a round of the slots and more */
		(void)end_open(x);
}

TEST(a_closed_channel_is_not_used)
{
	struct link_ops ops = { .closed = use_in_closed };
	_cleanup_end_ struct end x = { .role = LINK_KEEPER, .log = BUF_INIT(64) };

	assert_int_equal(link_new(LINK_KEEPER, &ops, &x, &x.l), 0);
	end_send_hello(&x);
	assert_int_equal(end_feed_frame(&x, WIRE_HELLO, 0), 0);
	assert_int_equal(end_open(&x), 2);
	assert_int_equal(end_feed_frame(&x, WIRE_ACCEPT, 2), 0);
	assert_int_equal(end_feed_frame(&x, WIRE_CLOSE, 2), 0);
	assert_int_equal(link_channels(x.l), 600);
	assert_null(link_cookie(x.l, 2));
	assert_ptr_equal(link_cookie(x.l, 514), &x); /* in the slot of 2 */
}

/* All callbacks may be missing. */
TEST(callbacks_may_be_missing)
{
	struct link_ops ops = { 0 };

	for (enum link_role role = LINK_KEEPER; role <= LINK_GUEST; role++) {
		_cleanup_end_ struct end x = { .role = role, .log = BUF_INIT(64) };
		uint32_t ch = 2;

		assert_int_equal(link_new(role, &ops, &x, &x.l), 0);
		end_send_hello(&x);
		assert_int_equal(end_feed_frame(&x, WIRE_HELLO, 0), 0);
		if (role == LINK_KEEPER)
			ch = end_open(&x);
		assert_int_equal(
			end_feed_frame(&x, role == LINK_KEEPER ? WIRE_ACCEPT : WIRE_OPEN, ch), 0);
		if (role == LINK_GUEST)
			end_accept(&x, ch);
		assert_int_equal(end_feed_frame(&x, WIRE_PONG, 0), 0);
		for (unsigned int type = WIRE_DATA; type <= WIRE_CLOSE; type++)
			assert_int_equal(end_feed_frame(&x, type, ch), 0);
		assert_int_equal(link_channels(x.l), 0);
	}
	assert_null(link_free(NULL));
}

/* ---- failing calls ---- */

static void sweep_hello(struct link *l, const struct fields *f, void *arg)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	fields_put_number(&b, TAG_VERSION, 1);
	fields_put_text(&b, TAG_AGENT, "x");
	*(int *)arg = link_hello(l, &b);
}

static void sweep_opened(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
			 void *arg)
{
	static const uint8_t many[4096];
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	fields_put_number(&b, TAG_PID, 1);
	*(int *)arg = link_accept(l, ch, &b);
	if (*(int *)arg < 0)
		return;
	(void)link_data(l, ch, 1, many, sizeof(many));
	(void)link_eof(l, ch, 1);
	*(int *)arg = link_close(l, ch, WIRE_DONE, "done");
}

static int sweep(const struct buf *b)
{
	static const struct link_ops ops = { .hello = sweep_hello, .opened = sweep_opened };
	_cleanup_link_ struct link *l = NULL;
	_cleanup_buf_ struct buf open = BUF_INIT(64);
	struct err e = ERR_INIT;
	int r, inside = 0;
	uint32_t ch;

	r = link_new(LINK_GUEST, &ops, &inside, &l);
	for (size_t at = 0; r == 0 && inside == 0 && at < b->len; at += 50)
		r = link_feed(l, b->data + at, MIN((size_t)50, b->len - at), &e);
	assert_true(e.num == (l ? r : 0));
	if (r < 0 || inside < 0)
		return r < 0 ? r : inside;
	fields_put_text(&open, TAG_ARGV, "x");
	r = link_open(l, WIRE_OP_EXEC, &open, NULL, &ch);
	return r < 0 ? r : link_close(l, ch, WIRE_DONE, NULL);
}

TEST(survives_failing_calls)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	frame_to(&b, LINK_GUEST, WIRE_HELLO, 0);
	for (uint32_t ch = 2; ch < 12; ch += 2)
		frame_to(&b, LINK_GUEST, WIRE_OPEN, ch);
	frame_to(&b, LINK_GUEST, WIRE_PING, 0);
	for (uint32_t ch = 2; ch < 12; ch += 2)
		frame_to(&b, LINK_GUEST, WIRE_CLOSE, ch);
	FAIL_SWEEP(sweep(&b));
}
