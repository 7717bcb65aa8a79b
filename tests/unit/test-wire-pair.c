/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two connected links: for any legal operations of their owners, in any order and with any split of
 * the bytes, no link dies, both ends agree on the events, and nothing leaks.
 */
#include "test-wire.h"

enum {
	K,
	G, /* the sides: keeper and guest */
	SIDES,
	CHANNELS = 4096,
	OPERATIONS = 10000,
	SEEDS = 12,
	START = 262144,
};

/* Events of one side on one channel. */
struct half {
	uint64_t sent[WIRE_STREAMS], heard[WIRE_STREAMS], consumed[WIRE_STREAMS];
	bool eof_sent[WIRE_STREAMS], eof_heard[WIRE_STREAMS];
	unsigned int msgs_sent, msgs_heard;
	bool asked, open, closed, heard_close;
};

struct pair {
	struct side {
		struct pair *pair;
		unsigned int who;
		struct link *l;
		unsigned int pings, pongs;
	} sides[SIDES];
	struct half (*halves)[SIDES]; /* by channel */
	uint32_t n, max;	      /* channels that were opened: 2, 4 ... 2n */
	uint64_t seed;
	unsigned int close_in; /* one callback in this many closes; 0: none */
};

static uint32_t draw(struct pair *p, uint32_t below)
{
	p->seed = p->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(p->seed >> 33) % below;
}

static struct half *half_of(struct side *s, uint32_t ch)
{
	assert_true(ch % 2 == 0 && ch / 2 <= s->pair->n);
	return &s->pair->halves[ch / 2 - 1][s->who];
}

/* The expected byte at a place in a stream, so that mixed-up, lost or repeated bytes are
 * detected. */
static uint8_t byte_at(unsigned int who, uint32_t ch, unsigned int stream, uint64_t at)
{
	return (uint8_t)((at * 167 + at / 251) ^ (ch * 29 + stream * 83 + who * 11));
}

static enum wire_code code_of(unsigned int who, uint32_t ch)
{
	return (enum wire_code)((ch * 7 + who) % WIRE_CODE_MAX);
}

static void close_channel(struct side *s, uint32_t ch)
{
	struct half *h = half_of(s, ch);

	assert_int_equal(link_close(s->l, ch, code_of(s->who, ch), s->who == K ? "k" : NULL), 0);
	if (!h->heard_close)
		h->closed = true;
	h->open = h->asked = false;
}

static void maybe_close(struct side *s, uint32_t ch)
{
	if (s->pair->close_in && draw(s->pair, s->pair->close_in) == 0)
		close_channel(s, ch);
}

static void pair_opened(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
			void *arg)
{
	struct side *s = arg;
	struct half *h = half_of(s, ch);

	assert_true(s->who == G && !h->asked && !h->open && !h->closed);
	h->asked = true;
	maybe_close(s, ch);
}

static void pair_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct half *h = half_of(arg, ch);

	assert_true(h->asked && !h->open && !h->closed && !h->heard_close);
	h->asked = false;
	h->open = true;
	maybe_close(arg, ch);
}

static void pair_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		      void *arg)
{
	struct side *s = arg;
	struct half *h = half_of(s, ch);

	assert_true(h->open && !h->eof_heard[stream] && n > 0);
	for (size_t i = 0; i < n; i++)
		if (((const uint8_t *)data)[i] !=
		    byte_at(!s->who, ch, stream, h->heard[stream] + i))
			fail_msg("channel %u, stream %u: not the byte that was sent", ch, stream);
	h->heard[stream] += n;
	assert_true(h->heard[stream] - h->consumed[stream] <= START);
	maybe_close(s, ch);
}

static void pair_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct half *h = half_of(arg, ch);

	assert_true(h->open && !h->eof_heard[stream]);
	h->eof_heard[stream] = true;
	maybe_close(arg, ch);
}

static void pair_credit(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	const struct half *h = half_of(arg, ch);

	assert_true(h->open && !h->eof_sent[stream]);
	assert_in_range(link_credit(l, ch, stream), 1, START);
	maybe_close(arg, ch);
}

static void pair_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		     void *arg)
{
	struct half *h = half_of(arg, ch);

	assert_true(h->open);
	h->msgs_heard++;
	maybe_close(arg, ch);
}

static void pair_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct side *s = arg;
	struct half *h = half_of(s, ch);

	assert_true((h->asked || h->open) && !h->closed && !h->heard_close);
	assert_int_equal(fields_number(f, TAG_CODE, 99), code_of(!s->who, ch));
	assert_true(fields_has(f, TAG_TEXT) == (s->who == G));
	h->heard_close = true;
	h->open = h->asked = false;
	maybe_close(s, ch); /* does nothing */
}

static void pair_pong(struct link *l, uint64_t token, void *arg)
{
	struct side *s = arg;

	assert_int_equal(token, s->pongs);
	s->pongs++;
}

static const struct link_ops pair_ops = {
	.opened = pair_opened,
	.accepted = pair_accepted,
	.data = pair_data,
	.eof = pair_eof,
	.credit = pair_credit,
	.msg = pair_msg,
	.closed = pair_closed,
	.pong = pair_pong,
};

/* Moves up to `max` bytes from one side to the other; returns how many. */
static size_t pump(struct pair *p, unsigned int from, size_t max)
{
	_cleanup_free_ char *copy = NULL;
	struct err e = ERR_INIT;
	const void *data;
	size_t n;

	data = link_pending(p->sides[from].l, &n);
	n = MIN(n, max);
	if (n == 0)
		return 0;
	copy = unit_copy(data, n);
	link_wrote(p->sides[from].l, n);
	if (link_feed(p->sides[!from].l, copy, n, &e) < 0)
		fail_msg("side %u: %s", !from, e.msg);
	return n;
}

/* One whole frame. */
static size_t pump_frame(struct pair *p, unsigned int from)
{
	size_t n;
	struct reader r = reader_of(link_pending(p->sides[from].l, &n), 0);

	if (n == 0)
		return 0;
	r.end = r.pos + n;
	return pump(p, from, WIRE_HEADER + (size_t)reader_be(&r, 4));
}

static void pump_all(struct pair *p)
{
	while (pump(p, K, SIZE_MAX) + pump(p, G, SIZE_MAX) > 0)
		;
}

static void send_fields(struct side *s, enum wire_message m, uint32_t ch,
			int (*send)(struct side *, uint32_t, const struct buf *))
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	sample(m, &b);
	assert_int_equal(send(s, ch, &b), 0);
}

static int send_hello(struct side *s, uint32_t ch, const struct buf *b)
{
	return link_hello(s->l, b);
}

static int send_accept(struct side *s, uint32_t ch, const struct buf *b)
{
	return link_accept(s->l, ch, b);
}

static int send_msg(struct side *s, uint32_t ch, const struct buf *b)
{
	return link_msg(s->l, ch, s->who == K ? WIRE_MSG_SIGNAL : WIRE_MSG_EXIT, b);
}

static struct pair *pair_new(uint64_t seed, uint32_t max)
{
	struct pair *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->seed = seed;
	p->max = max;
	p->halves = calloc(max, sizeof(*p->halves));
	assert_non_null(p->halves);
	for (unsigned int who = K; who < SIDES; who++) {
		struct side *s = &p->sides[who];

		s->pair = p;
		s->who = who;
		assert_int_equal(link_new(who == K ? LINK_KEEPER : LINK_GUEST, &pair_ops, s, &s->l),
				 0);
		send_fields(s, who == K ? MESSAGE_HELLO_KEEPER : MESSAGE_HELLO_GUEST, 0,
			    send_hello);
	}
	pump_all(p);
	return p;
}

static void pair_free(struct pair **p)
{
	(void)link_free((*p)->sides[K].l);
	(void)link_free((*p)->sides[G].l);
	free((*p)->halves);
	free(*p);
}

#define _cleanup_pair_ _cleanup_(pair_free)

/* ---- owner operations ---- */

static void do_open(struct pair *p)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);
	uint32_t ch = 0;
	int r;

	if (p->n == p->max)
		return;
	sample(MESSAGE_EXEC, &b);
	r = link_open(p->sides[K].l, WIRE_OP_EXEC, &b, NULL, &ch);
	if (r == -EAGAIN) {
		assert_int_equal(link_channels(p->sides[K].l), WIRE_CHANNELS_MAX);
		return;
	}
	assert_int_equal(r, 0);
	p->n++;
	assert_int_equal(ch, 2 * p->n);
	half_of(&p->sides[K], ch)->asked = true;
}

static void do_accept(struct side *s, uint32_t ch)
{
	struct half *h = half_of(s, ch);

	if (s->who != G || !h->asked)
		return;
	send_fields(s, MESSAGE_STARTED, ch, send_accept);
	h->asked = false;
	h->open = true;
}

static void do_data(struct side *s, uint32_t ch, unsigned int stream)
{
	static uint8_t bytes[100000];
	struct half *h = half_of(s, ch);
	size_t n = draw(s->pair, 4) ? draw(s->pair, 200) : draw(s->pair, sizeof(bytes));
	size_t credit = link_credit(s->l, ch, stream);
	bool ready = link_ready(s->l);
	ssize_t sent;

	if (!h->open || h->eof_sent[stream]) {
		assert_int_equal(credit, 0);
		return;
	}
	for (size_t i = 0; i < n; i++)
		bytes[i] = byte_at(s->who, ch, stream, h->sent[stream] + i);
	sent = link_data(s->l, ch, stream, bytes, n);
	assert_true(sent >= 0 && (size_t)sent <= MIN(n, credit));
	assert_true(ready || sent == 0);
	assert_true((size_t)sent == MIN(n, credit) || !link_ready(s->l));
	assert_int_equal(link_credit(s->l, ch, stream), credit - (size_t)sent);
	h->sent[stream] += (uint64_t)sent;
}

static void do_eof(struct side *s, uint32_t ch, unsigned int stream)
{
	struct half *h = half_of(s, ch);

	assert_int_equal(link_eof(s->l, ch, stream), h->open ? 0 : -ESTALE);
	if (h->open)
		h->eof_sent[stream] = true;
}

static void do_consume(struct side *s, uint32_t ch, unsigned int stream)
{
	struct half *h = half_of(s, ch);
	uint64_t n = h->heard[stream] - h->consumed[stream];

	if (n > 1 && draw(s->pair, 3) == 0)
		n = 1 + draw(s->pair, (uint32_t)n);
	assert_int_equal(link_consumed(s->l, ch, stream, n), 0);
	if (h->open)
		h->consumed[stream] += n;
}

static void do_msg(struct side *s, uint32_t ch)
{
	struct half *h = half_of(s, ch);

	if (!h->open)
		return;
	send_fields(s, s->who == K ? MESSAGE_SIGNAL : MESSAGE_EXIT, ch, send_msg);
	h->msgs_sent++;
}

static void do_something(struct pair *p)
{
	struct side *s = &p->sides[draw(p, SIDES)];
	unsigned int stream = draw(p, WIRE_STREAMS), what = draw(p, 100);
	/* Mostly the newest ones, so that a channel sees several events. */
	uint32_t back = p->n == 0 ? 0 : draw(p, MIN(p->n, draw(p, 8) ? 6U : 2000U));
	uint32_t ch = 2 * (p->n - back);

	if (what < 40)
		(void)pump(p, s->who, draw(p, 3) ? draw(p, 64) : draw(p, 300000));
	else if (what < 46 || p->n == 0)
		do_open(p);
	else if (what < 56)
		do_accept(s, ch);
	else if (what < 78)
		do_data(s, ch, stream);
	else if (what < 88)
		do_consume(s, ch, stream);
	else if (what < 90)
		do_eof(s, ch, stream);
	else if (what < 95)
		do_msg(s, ch);
	else if (what < 97)
		assert_int_equal(link_ping(s->l, s->pings++), 0);
	else if (s->who == K || half_of(s, ch)->asked || half_of(s, ch)->open)
		close_channel(s, ch);
}

/* ---- invariants ---- */

/* With nothing in flight: one side's credit is the limit minus the other's unconsumed bytes. */
static void check_credit(struct pair *p)
{
	for (uint32_t ch = 2; ch <= 2 * p->n; ch += 2)
		for (unsigned int i = 0; i < SIDES * WIRE_STREAMS; i++) {
			unsigned int who = i % SIDES, stream = i / SIDES;
			const struct half *a = half_of(&p->sides[who], ch);
			const struct half *b = half_of(&p->sides[!who], ch);

			assert_int_equal(a->open, b->open);
			if (!a->open)
				continue;
			assert_int_equal(a->sent[stream], b->heard[stream]);
			assert_int_equal(a->eof_sent[stream], b->eof_heard[stream]);
			if (!a->eof_sent[stream])
				assert_int_equal(link_credit(p->sides[who].l, ch, stream),
						 START - (b->heard[stream] - b->consumed[stream]));
		}
}

static void check_half(const struct half *a, const struct half *b)
{
	for (unsigned int stream = 0; stream < WIRE_STREAMS; stream++) {
		bool all = a->heard[stream] == b->sent[stream] &&
			   a->eof_heard[stream] == b->eof_sent[stream];

		assert_true(a->heard[stream] <= b->sent[stream]);
		assert_true(b->eof_sent[stream] || !a->eof_heard[stream]);
		assert_true(all || !a->heard_close);
	}
	assert_true(a->msgs_heard <= b->msgs_sent);
	assert_true(a->msgs_heard == b->msgs_sent || !a->heard_close);
	/* A side either closes or receives a CLOSE, which the other side has sent. */
	assert_true(a->closed != a->heard_close);
	assert_true(!a->heard_close || b->closed);
}

static void check_end(struct pair *p)
{
	for (uint32_t ch = 2; ch <= 2 * p->n; ch += 2) {
		const struct half *k = half_of(&p->sides[K], ch), *g = half_of(&p->sides[G], ch);

		check_half(k, g);
		check_half(g, k);
	}
	for (unsigned int who = K; who < SIDES; who++) {
		assert_int_equal(p->sides[who].pings, p->sides[who].pongs);
		assert_int_equal(link_channels(p->sides[who].l), 0);
	}
}

static void close_the_rest(struct pair *p)
{
	for (uint32_t ch = 2; ch <= 2 * p->n; ch += 2)
		for (unsigned int i = 0; i < SIDES; i++) {
			struct side *s = &p->sides[i];
			const struct half *h = half_of(s, ch);

			if ((h->asked || h->open) && (s->who == K || draw(p, 2)))
				close_channel(s, ch);
		}
	pump_all(p);
}

TEST(both_ends_agree)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		_cleanup_pair_ struct pair *p = pair_new(seed, CHANNELS);

		p->close_in = seed % 2 ? 0 : 40;
		for (unsigned int i = 0; i < OPERATIONS; i++) {
			do_something(p);
			if (i % 1000 != 999)
				continue;
			pump_all(p);
			check_credit(p);
		}
		close_the_rest(p);
		check_end(p);
		assert_true(p->n > 400);
	}
}

/* ---- every order of a short life ---- */

enum step {
	PUMP_K,
	PUMP_G,
	CLOSE_K,
	CLOSE_G,
	ACCEPT_G,
	DATA_K,
	DATA_G,
	STEPS,
	LENGTH = 9,
};

static bool step(struct pair *p, enum step what)
{
	struct side *s = &p->sides[what == CLOSE_G || what == ACCEPT_G || what == DATA_G];
	const struct half *h = half_of(s, 2);

	switch (what) {
	case PUMP_K:
	case PUMP_G:
		return pump_frame(p, what == PUMP_K ? K : G) > 0;
	case CLOSE_K:
	case CLOSE_G:
		if (!h->asked && !h->open)
			return false;
		close_channel(s, 2);
		return true;
	case ACCEPT_G:
		if (!h->asked)
			return false;
		do_accept(s, 2);
		return true;
	default:
		if (!h->open)
			return false;
		do_msg(s, 2);
		do_eof(s, 2, 0);
		return true;
	}
}

/* The next order, like an odometer, that differs in one of the first `n` steps. */
static bool next_order(unsigned char order[static LENGTH], unsigned int n)
{
	memset(order + n, 0, LENGTH - n);
	while (n > 0 && ++order[n - 1] == STEPS)
		order[--n] = 0;
	return n > 0;
}

/* An order ends at an impossible step; orders with the same beginning are equal. */
TEST(every_order_of_closing)
{
	unsigned char order[LENGTH] = { 0 };
	unsigned int i, done = 0;

	do {
		_cleanup_pair_ struct pair *p = pair_new(1, 1);

		do_open(p);
		for (i = 0; i < LENGTH && step(p, (enum step)order[i]); i++)
			;
		done += i == LENGTH;
		close_the_rest(p);
		check_end(p);
	} while (next_order(order, MIN(i + 1, (unsigned int)LENGTH)));
	assert_in_range(done, 1000, 1000000);
}
