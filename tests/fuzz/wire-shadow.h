/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a link that receives fuzzed bytes, and a shadow of each channel: the events that
 * PROTOCOL.md allows its owner. The first two bytes of an input select its split into pieces and
 * the actions of the owner.
 */
#pragma once

#include <string.h>

#include "fuzz.h"
#include "wire/link.h"

struct shadow {
	uint32_t ch;
	enum {
		SHADOW_ASKING,
		SHADOW_ASKED,
		SHADOW_OPEN,
		SHADOW_OVER, /* closed by either side: no event may come */
	} state;
	uint64_t heard[WIRE_STREAMS], consumed[WIRE_STREAMS];
	bool eof_heard[WIRE_STREAMS], eof_sent[WIRE_STREAMS];
	bool said_close;
	struct shadow *next;
};

struct world {
	enum link_role role;
	struct link *l;
	struct shadow *all;
	size_t live;	     /* shadows that are not over */
	uint32_t last_heard; /* the highest number that the peer opened */
	uint32_t seed;
	bool asked; /* the guest may open channels to the keeper's end */
	bool ended; /* the link is dead */
	bool sleeping, said_asleep, heard_asleep;
	bool silent; /* it has announced sleep */
	bool again;  /* a second keeper */
};

static uint32_t world_draw(struct world *w, uint32_t below)
{
	w->seed = w->seed * 1664525 + 1013904223;
	return (w->seed >> 16) % below;
}

static struct shadow *shadow_new(struct world *w, uint32_t ch, int state)
{
	struct shadow *s = calloc(1, sizeof(*s));

	assert(s);
	s->ch = ch;
	s->state = state;
	s->next = w->all;
	w->all = s;
	w->live++;
	return s;
}

static struct shadow *shadow_heard(struct world *w, uint32_t ch)
{
	struct shadow *s = link_cookie(w->l, ch);

	assert(!w->ended && s && s->ch == ch && s->state != SHADOW_OVER);
	return s;
}

static void shadow_over(struct world *w, struct shadow *s)
{
	s->state = SHADOW_OVER;
	w->live--;
}

static void shadow_accept(struct world *w, struct shadow *s)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	fields_put_number(&b, TAG_PID, 1);
	if (link_accept(w->l, s->ch, &b) == 0)
		s->state = SHADOW_OPEN;
}

static void shadow_send(struct world *w, struct shadow *s, unsigned int stream)
{
	static const uint8_t bytes[300];
	size_t credit = link_credit(w->l, s->ch, stream);
	ssize_t n;

	if (s->eof_sent[stream]) {
		assert(credit == 0);
		return;
	}
	assert(credit <= WIRE_CREDIT_MAX);
	n = link_data(w->l, s->ch, stream, bytes, world_draw(w, sizeof(bytes)));
	assert(n <= (ssize_t)credit);
	if (n >= 0)
		assert(link_credit(w->l, s->ch, stream) == credit - (size_t)n);
}

/* One operation that the owner of a link may do at any time. */
static void shadow_act(struct world *w, struct shadow *s)
{
	unsigned int stream = world_draw(w, WIRE_STREAMS), what = world_draw(w, 16);
	uint64_t n = s->heard[stream] - s->consumed[stream];

	if (what == 0 && link_close(w->l, s->ch, WIRE_IO, "enough \xff") == 0)
		shadow_over(w, s);
	else if (s->state == SHADOW_ASKED && what < 8)
		shadow_accept(w, s);
	else if (s->state == SHADOW_OPEN && what == 1 && link_eof(w->l, s->ch, stream) == 0)
		s->eof_sent[stream] = true;
	else if (s->state == SHADOW_OPEN && what < 6)
		shadow_send(w, s, stream);
	else if (s->state == SHADOW_OPEN && what < 12 && link_consumed(w->l, s->ch, stream, n) == 0)
		s->consumed[stream] += n;
}

static void heard_open(struct world *w, uint32_t ch)
{
	struct shadow *s = shadow_new(w, ch, SHADOW_ASKED);

	w->last_heard = ch;
	link_set_cookie(w->l, ch, s);
	shadow_act(w, s);
}

static void on_opened(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
		      void *arg)
{
	struct world *w = arg;
	enum wire_message message;

	assert(!w->ended && ch > w->last_heard && !link_cookie(l, ch));
	if (w->role == LINK_KEEPER) {
		assert(w->asked && ch % 2 == 1 && fields_has(f, TAG_HOST));
		assert(op == WIRE_OP_ASK || (op == WIRE_OP_CONNECT && fields_has(f, TAG_PORT)));
		heard_open(w, ch);
		return;
	}
	assert(ch % 2 == 0 && message_of_open((uint8_t)op, false, &message) == 0);
	assert(op == WIRE_OP_TRACE || fields_has(f, op == WIRE_OP_EXEC	  ? TAG_ARGV
						    : op == WIRE_OP_PORT  ? TAG_PORT
						    : op == WIRE_OP_ADOPT ? TAG_PID
									  : TAG_PATH));
	assert(op != WIRE_OP_PORT || fields_number(f, TAG_PORT, 0) - 1 < UINT16_MAX);
	heard_open(w, ch);
}

static void on_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct shadow *s = shadow_heard(arg, ch);

	assert(s->state == SHADOW_ASKING);
	s->state = SHADOW_OPEN;
	shadow_act(arg, s);
}

static void on_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		    void *arg)
{
	struct shadow *s = shadow_heard(arg, ch);

	assert(s->state == SHADOW_OPEN && stream < WIRE_STREAMS && !s->eof_heard[stream]);
	assert(n > 0 && n <= WIRE_PAYLOAD_MAX);
	s->heard[stream] += n;
	assert(s->heard[stream] - s->consumed[stream] <= WIRE_CREDIT_START);
	for (size_t i = 0; i < n; i++)
		(void)((const volatile uint8_t *)data)[i];
	shadow_act(arg, s);
}

static void on_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct shadow *s = shadow_heard(arg, ch);

	assert(s->state == SHADOW_OPEN && stream < WIRE_STREAMS && !s->eof_heard[stream]);
	s->eof_heard[stream] = true;
	shadow_act(arg, s);
}

static void on_credit(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct shadow *s = shadow_heard(arg, ch);

	assert(s->state == SHADOW_OPEN && stream < WIRE_STREAMS && !s->eof_sent[stream]);
	assert(link_credit(l, ch, stream) > 0);
	shadow_send(arg, s, stream);
	shadow_act(arg, s);
}

static void on_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		   void *arg)
{
	struct world *w = arg;
	struct shadow *s = shadow_heard(w, ch);
	enum wire_message m;

	assert(s->state == SHADOW_OPEN);
	assert(message_of_msg((uint8_t)kind, w->role == LINK_GUEST, &m) == 0);
	shadow_act(w, s);
}

static void on_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct shadow *s = shadow_heard(arg, ch);

	assert(fields_has(f, TAG_CODE) && wire_code_name(fields_number(f, TAG_CODE, 0)));
	shadow_over(arg, s);
	assert(link_close(l, ch, WIRE_DONE, NULL) <= 0 && link_credit(l, ch, 0) == 0);
}

static void shadows_free(struct world *w)
{
	while (w->all) {
		struct shadow *s = w->all;

		w->all = s->next;
		free(s);
	}
	w->live = 0;
}

static void on_sleep(struct link *l, void *arg)
{
	struct world *w = arg;

	assert(!w->ended && w->role == LINK_GUEST && !w->sleeping);
	w->sleeping = true;
	w->said_asleep = world_draw(w, 4) != 0;
	if (w->said_asleep)
		(void)link_asleep(l);
}

static void on_asleep(struct link *l, void *arg)
{
	struct world *w = arg;

	assert(!w->ended && w->role == LINK_KEEPER && w->sleeping && !w->heard_asleep);
	w->heard_asleep = true;
}

static void on_wake(struct link *l, const struct fields *f, void *arg)
{
	struct world *w = arg;

	assert(!w->ended && w->role == LINK_GUEST && (!w->sleeping || w->said_asleep));
	w->sleeping = w->silent = false;
}

static void on_reset(struct link *l, void *arg)
{
	struct world *w = arg;

	assert(!w->ended && w->role == LINK_GUEST && w->sleeping && w->said_asleep &&
	       link_channels(l) == 0);
	shadows_free(w);
	w->last_heard = 0;
	w->sleeping = w->silent = false;
	w->again = true;
}

static void on_hello(struct link *l, const struct fields *f, void *arg)
{
	_cleanup_buf_ struct buf hello = BUF_INIT(256);
	struct world *w = arg;

	if (!w->again)
		return;
	fields_put_number(&hello, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&hello, TAG_AGENT, "fuzz");
	(void)link_hello(l, &hello);
}

static const struct link_ops shadow_ops = {
	.hello = on_hello,
	.sleep = on_sleep,
	.asleep = on_asleep,
	.wake = on_wake,
	.reset = on_reset,
	.opened = on_opened,
	.accepted = on_accepted,
	.data = on_data,
	.eof = on_eof,
	.credit = on_credit,
	.msg = on_msg,
	.closed = on_closed,
};

/* No frame follows CLOSE on a channel, and the peer can parse the CLOSE. */
static void check_frame(struct world *w, uint32_t ch, uint8_t type, const uint8_t *payload,
			size_t n)
{
	struct shadow *s = w->all;
	struct err e = ERR_INIT;
	struct fields f;

	assert((ch == 0) == (type <= WIRE_PONG || type > WIRE_CLOSE));
	assert(!w->silent || type == WIRE_WAKE);
	w->silent = type == WIRE_SLEEP || type == WIRE_ASLEEP;
	if (type == WIRE_CLOSE)
		assert(fields_parse(MESSAGE_CLOSE, payload, n, &f, &e) == 0);
	while (s && s->ch != ch)
		s = s->next;
	if (!s)
		return;
	assert(!s->said_close);
	s->said_close = type == WIRE_CLOSE;
}

/* Takes the output and checks it: whole frames, within the limits. */
static void world_drain(struct world *w)
{
	size_t n;
	const void *data = link_pending(w->l, &n);
	struct reader r = reader_of(data, data ? n : 0);

	assert(n <= LINK_OUT_MAX && (data || n == 0));
	while (reader_left(&r) > 0) {
		size_t len = (size_t)reader_be(&r, 4);
		uint32_t ch = (uint32_t)reader_be(&r, 4);
		uint8_t type = (uint8_t)reader_be(&r, 1), sub = (uint8_t)reader_be(&r, 1);
		uint64_t zero = reader_be(&r, 2);
		const uint8_t *payload = reader_bytes(&r, len);

		assert(!r.err && zero == 0 && len <= WIRE_PAYLOAD_MAX);
		assert(type > 0 && type < WIRE_TYPE_MAX && (sub == 0 || type >= WIRE_OPEN));
		check_frame(w, ch, type, payload, len);
	}
	link_wrote(w->l, n);
}

static void world_feed(struct world *w, const uint8_t *data, size_t n)
{
	struct err e = ERR_INIT;
	int r = link_feed(w->l, data, n, &e);

	assert(r == e.num && (r < 0) == (e.msg[0] != '\0'));
	assert(r == 0 || r == -EPROTO || r == -ENOBUFS);
	if (w->ended)
		assert(r < 0);
	w->ended = r < 0;
	assert(link_channels(w->l) >= w->live || w->ended);
}

static void world_start(struct world *w, enum link_role role, const struct buf *hello,
			const struct buf *first)
{
	*w = (struct world){ .role = role };
	assert(link_new(role, &shadow_ops, w, &w->l) == 0);
	assert(link_hello(w->l, hello) == 0);
	world_feed(w, (const uint8_t *)first->data, first->len);
	assert(!w->ended);
}

/* A header in front of fields. */
static void put_frame(struct buf *b, enum wire_type type, uint32_t ch, uint8_t sub,
		      const struct buf *fields)
{
	(void)buf_put_be(b, fields->len, 4);
	(void)buf_put_be(b, ch, 4);
	(void)buf_put_be(b, type, 1);
	(void)buf_put_be(b, sub, 1);
	(void)buf_put_be(b, 0, 2);
	assert(buf_put(b, fields->data, fields->len) == 0);
}

/* After ASLEEP, the keeper wakes its guest at some point. */
static void world_wake(struct world *w)
{
	if (w->ended || !w->heard_asleep || world_draw(w, 3) == 0)
		return;
	w->sleeping = w->heard_asleep = false;
	assert(link_wake(w->l, NULL) == 0);
}

static void world_run(struct world *w, const uint8_t *data, size_t size)
{
	static const size_t cuts[] = { SIZE_MAX, 1, 5, 13 };
	size_t cut;

	if (size < 2)
		return;
	cut = cuts[data[0] % 4];
	w->seed = (uint32_t)(data[0] / 4 * 256 + data[1]);
	if (w->role == LINK_KEEPER && data[0] / 4 >= 48) {
		w->sleeping = true;
		assert(link_sleep(w->l) == 0);
	}
	for (size_t at = 2; at < size;) {
		size_t n = MIN(cut, size - at);

		world_feed(w, data + at, n);
		world_drain(w);
		world_wake(w);
		at += n;
		if (w->ended && at < size) {
			world_feed(w, data + at, size - at);
			break;
		}
		if (w->all && w->all->state != SHADOW_OVER && !w->ended && world_draw(w, 8) == 0)
			shadow_act(w, w->all);
	}
	world_drain(w);
}

static void world_end(struct world *w)
{
	w->l = link_free(w->l);
	shadows_free(w);
}
