/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the link tests: frames made by hand, and an end that logs what it hears. */
#pragma once

#include "unit.h"

#include <string.h>

#include "wire/link.h"

/* A header with arbitrary values. */
static inline void frame_header(struct buf *b, uint32_t len, uint32_t ch, unsigned int type,
				unsigned int sub, unsigned int zero)
{
	(void)buf_put_be(b, len, 4);
	(void)buf_put_be(b, ch, 4);
	(void)buf_put_be(b, type, 1);
	(void)buf_put_be(b, sub, 1);
	(void)buf_put_be(b, zero, 2);
	assert_int_equal(b->err, 0);
}

static inline void frame(struct buf *b, unsigned int type, uint32_t ch, unsigned int sub,
			 const void *payload, size_t n)
{
	frame_header(b, (uint32_t)n, ch, type, sub, 0);
	assert_int_equal(buf_put(b, payload, n), 0);
}

/* The minimal payload of each message that the tests send. */
static inline void sample(enum wire_message m, struct buf *b)
{
	switch (m) {
	case MESSAGE_HELLO_KEEPER:
		fields_put_number(b, TAG_VERSION, WIRE_VERSION);
		break;
	case MESSAGE_HELLO_GUEST:
		fields_put_number(b, TAG_VERSION, WIRE_VERSION);
		fields_put_text(b, TAG_AGENT, "test");
		break;
	case MESSAGE_EXEC:
		fields_put_text(b, TAG_ARGV, "true");
		break;
	case MESSAGE_STARTED:
		fields_put_number(b, TAG_PID, 7);
		break;
	case MESSAGE_SIGNAL:
		fields_put_number(b, TAG_NUMBER, 15);
		break;
	case MESSAGE_EXIT:
		fields_put_number(b, TAG_CODE, 0);
		fields_put_number(b, TAG_USER_US, 1);
		fields_put_number(b, TAG_SYSTEM_US, 2);
		fields_put_number(b, TAG_MAX_RSS, 3);
		break;
	case MESSAGE_CLOSE:
		fields_put_number(b, TAG_CODE, WIRE_DONE);
		break;
	case MESSAGE_WAKE:
		fields_put_number(b, TAG_TIME, 1);
		break;
	default:
		fail_msg("no sample of message %d", (int)m);
	}
}

static inline void frame_of(struct buf *b, unsigned int type, uint32_t ch, unsigned int sub,
			    enum wire_message m)
{
	_cleanup_buf_ struct buf fields = BUF_INIT(4096);

	sample(m, &fields);
	frame(b, type, ch, sub, fields.data, fields.len);
}

/* The kind of MSG that a role receives. */
static inline unsigned int msg_kind(enum link_role role)
{
	return role == LINK_KEEPER ? WIRE_MSG_EXIT : WIRE_MSG_SIGNAL;
}

/* A valid frame of a type, as the peer of `role` would send it. */
static inline void frame_to(struct buf *b, enum link_role role, unsigned int type, uint32_t ch)
{
	bool keeper = role == LINK_KEEPER;

	switch (type) {
	case WIRE_HELLO:
		frame_of(b, type, ch, 0, keeper ? MESSAGE_HELLO_GUEST : MESSAGE_HELLO_KEEPER);
		break;
	case WIRE_PING:
	case WIRE_PONG:
		frame(b, type, ch, 0, "token8by", 8);
		break;
	case WIRE_OPEN:
		frame_of(b, type, ch, WIRE_OP_EXEC, MESSAGE_EXEC);
		break;
	case WIRE_ACCEPT:
		frame_of(b, type, ch, 0, MESSAGE_STARTED);
		break;
	case WIRE_DATA:
		frame(b, type, ch, 0, "x", 1);
		break;
	case WIRE_EOF:
	case WIRE_SLEEP:
	case WIRE_ASLEEP:
		frame(b, type, ch, 0, NULL, 0);
		break;
	case WIRE_WAKE:
		frame_of(b, type, ch, 0, MESSAGE_WAKE);
		break;
	case WIRE_CREDIT:
		frame(b, type, ch, 0, "\0\0\0\1", 4);
		break;
	case WIRE_MSG:
		frame_of(b, type, ch, msg_kind(role), keeper ? MESSAGE_EXIT : MESSAGE_SIGNAL);
		break;
	default:
		frame_of(b, type, ch, 0, MESSAGE_CLOSE);
	}
}

/* One end under test. */
struct end {
	enum link_role role;
	struct link *l;
	struct buf log;	      /* a line for each callback */
	bool hello, accept;   /* answer HELLO, OPEN */
	const char *close_in; /* the callback that closes its channel ... */
	uint32_t close_ch;    /* ... or this one, if it has none */
	struct err e;
};

static inline void end_note(struct end *x, const char *name, uint32_t ch, const char *rest)
{
	assert_int_equal(buf_printf(&x->log, "%s %u%s\n", name, ch, rest), 0);
	if (x->close_in && strcmp(x->close_in, name) == 0)
		(void)link_close(x->l, ch ? ch : x->close_ch, WIRE_GONE, name);
}

static inline void end_send_hello(struct end *x)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	sample(x->role == LINK_KEEPER ? MESSAGE_HELLO_KEEPER : MESSAGE_HELLO_GUEST, &b);
	assert_int_equal(link_hello(x->l, &b), 0);
}

static inline void end_accept(struct end *x, uint32_t ch)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	sample(MESSAGE_STARTED, &b);
	assert_int_equal(link_accept(x->l, ch, &b), 0);
}

static inline void on_hello_(struct link *l, const struct fields *f, void *arg)
{
	struct end *x = arg;

	assert_true(fields_has(f, TAG_VERSION));
	end_note(x, "hello", 0, "");
	if (x->hello)
		end_send_hello(x);
}

static inline void on_opened_(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
			      void *arg)
{
	struct end *x = arg;

	end_note(x, "opened", ch, "");
	if (x->accept)
		end_accept(x, ch);
}

static inline void on_accepted_(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	assert_int_equal(fields_number(f, TAG_PID, 0), 7);
	end_note(arg, "accepted", ch, "");
}

static inline void on_data_(struct link *l, uint32_t ch, unsigned int stream, const void *data,
			    size_t n, void *arg)
{
	char text[64];

	(void)snprintf(text, sizeof(text), ".%u %zu %.8s", stream, n,
		       n < 8 ? (const char *)"" : (const char *)data);
	end_note(arg, "data", ch, text);
}

static inline void on_eof_(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	end_note(arg, "eof", ch, stream == 0 ? ".0" : stream == 1 ? ".1" : ".2");
}

static inline void on_credit_(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	end_note(arg, "credit", ch, stream == 0 ? ".0" : stream == 1 ? ".1" : ".2");
}

static inline void on_msg_(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
			   void *arg)
{
	assert_int_equal(kind, msg_kind(((struct end *)arg)->role));
	end_note(arg, "msg", ch, "");
}

static inline void on_closed_(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	assert_true(fields_has(f, TAG_CODE));
	end_note(arg, "closed", ch, "");
}

static inline void on_pong_(struct link *l, uint64_t token, void *arg)
{
	assert_int_equal(token, 0x746f6b656e386279); /* "token8by" */
	end_note(arg, "pong", 0, "");
}

static inline void on_sleep_(struct link *l, void *arg)
{
	end_note(arg, "sleep", 0, "");
}

static inline void on_asleep_(struct link *l, void *arg)
{
	end_note(arg, "asleep", 0, "");
}

static inline void on_wake_(struct link *l, const struct fields *f, void *arg)
{
	assert_int_equal(fields_number(f, TAG_TIME, 1), 1);
	end_note(arg, "wake", 0, "");
}

static inline void on_reset_(struct link *l, void *arg)
{
	assert_int_equal(link_channels(l), 0);
	end_note(arg, "reset", 0, "");
}

static const struct link_ops end_ops = {
	.hello = on_hello_,
	.opened = on_opened_,
	.accepted = on_accepted_,
	.data = on_data_,
	.eof = on_eof_,
	.credit = on_credit_,
	.msg = on_msg_,
	.closed = on_closed_,
	.pong = on_pong_,
	.sleep = on_sleep_,
	.asleep = on_asleep_,
	.wake = on_wake_,
	.reset = on_reset_,
};

static inline void end_init(struct end *x, enum link_role role)
{
	*x = (struct end){ .role = role, .log = BUF_INIT(16 * 1024 * 1024) };
	assert_int_equal(link_new(role, &end_ops, x, &x->l), 0);
}

static inline void end_done(struct end *x)
{
	x->l = link_free(x->l);
	buf_done(&x->log);
}

#define _cleanup_end_ _cleanup_(end_done)

/* Feeds an exact copy, so that the sanitizer detects overreads. */
static inline int end_feed(struct end *x, const void *data, size_t n)
{
	_cleanup_free_ char *copy = unit_copy(data, n);
	int r;

	x->e = (struct err)ERR_INIT;
	r = link_feed(x->l, copy, n, &x->e);
	assert_int_equal(x->e.num, r);
	assert_true((r < 0) == (x->e.msg[0] != '\0'));
	return r;
}

static inline int end_feed_frame(struct end *x, unsigned int type, uint32_t ch)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	frame_to(&b, x->role, type, ch);
	return end_feed(x, b.data, b.len);
}

static inline int end_feed_raw(struct end *x, unsigned int type, uint32_t ch, unsigned int sub,
			       const void *payload, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2 * 1024 * 1024);

	frame(&b, type, ch, sub, payload, n);
	return end_feed(x, b.data, b.len);
}

/* Takes the pending output and renders it: "CLOSE 2\n" for each frame. */
static inline void end_output(struct end *x, struct buf *ret)
{
	static const char *const names[WIRE_TYPE_MAX] = { "?",	    "HELLO",  "PING",  "PONG",
							  "OPEN",   "ACCEPT", "DATA",  "EOF",
							  "CREDIT", "MSG",    "CLOSE", "SLEEP",
							  "ASLEEP", "WAKE" };
	size_t n;
	struct reader r = reader_of(link_pending(x->l, &n), 0);

	r.end = r.pos + n;
	while (reader_left(&r) > 0) {
		size_t len = (size_t)reader_be(&r, 4);
		uint32_t ch = (uint32_t)reader_be(&r, 4);
		uint8_t type = (uint8_t)reader_be(&r, 1);
		unsigned int sub = (unsigned int)reader_be(&r, 1);

		assert_int_equal(reader_be(&r, 2), 0);
		(void)reader_bytes(&r, len);
		assert_int_equal(r.err, 0);
		assert_true(type > 0 && type < WIRE_TYPE_MAX);
		assert_int_equal(buf_printf(ret, "%s %u", names[type], ch), 0);
		if (type == WIRE_DATA || type == WIRE_EOF || type == WIRE_CREDIT)
			assert_int_equal(buf_printf(ret, ".%u", sub), 0);
		assert_int_equal(buf_putc(ret, '\n'), 0);
	}
	link_wrote(x->l, n);
}

static inline void end_drain(struct end *x)
{
	_cleanup_buf_ struct buf out = BUF_INIT(16 * 1024 * 1024);

	end_output(x, &out);
	buf_reset(&x->log);
}

/* Compares the events and frames since the last call with "heard\n|SAID\n". */
static inline void end_expect(struct end *x, const char *want)
{
	_cleanup_buf_ struct buf all = BUF_INIT(32 * 1024 * 1024);

	(void)buf_puts(&all, buf_text(&x->log));
	(void)buf_putc(&all, '|');
	end_output(x, &all);
	buf_reset(&x->log);
	assert_string_equal(buf_text(&all), want);
}

/* An end that has sent and received HELLO. */
static inline void end_start(struct end *x, enum link_role role)
{
	end_init(x, role);
	end_send_hello(x);
	assert_int_equal(end_feed_frame(x, WIRE_HELLO, 0), 0);
	end_drain(x);
}

static inline uint32_t end_open(struct end *x)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	uint32_t ch = 0;

	sample(MESSAGE_EXEC, &b);
	assert_int_equal(link_open(x->l, WIRE_OP_EXEC, &b, x, &ch), 0);
	return ch;
}

/* The first channel of an end, open. */
static inline uint32_t end_start_open(struct end *x, enum link_role role)
{
	uint32_t ch = 2;

	end_start(x, role);
	if (role == LINK_KEEPER) {
		ch = end_open(x);
		assert_int_equal(end_feed_frame(x, WIRE_ACCEPT, ch), 0);
	} else {
		assert_int_equal(end_feed_frame(x, WIRE_OPEN, ch), 0);
		end_accept(x, ch);
	}
	end_drain(x);
	return ch;
}
