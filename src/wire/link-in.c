/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes arrive in pieces of any size. Whole frames in a piece are read in place; only a frame split
 * over two pieces is assembled in a buffer, which never holds more than one. Limits are checked on
 * the header, before any payload is stored.
 *
 * A table says what each type of frame does in each state of a channel. The rest of this file
 * handles the allowed frames.
 */
#include "wire/link-inside.h"

#include <string.h>

enum action {
	NO, /* an error */
	YES,
	IGNORE,
};

/* The effect of an incoming frame, by state and type. HELLO, PING, PONG, SLEEP, ASLEEP and WAKE are
 * on channel 0 only. */
static const uint8_t table[STATE_MAX][WIRE_TYPE_MAX] = {
	[STATE_NEW] = { [WIRE_OPEN] = YES },
	[STATE_ASKING] = { [WIRE_ACCEPT] = YES, [WIRE_CLOSE] = YES },
	[STATE_ASKED] = { [WIRE_CLOSE] = YES },
	[STATE_OPEN] = { [WIRE_DATA] = YES,
			 [WIRE_EOF] = YES,
			 [WIRE_CREDIT] = YES,
			 [WIRE_MSG] = YES,
			 [WIRE_CLOSE] = YES },
	[STATE_CLOSING] = { [WIRE_DATA] = IGNORE,
			    [WIRE_EOF] = IGNORE,
			    [WIRE_CREDIT] = IGNORE,
			    [WIRE_MSG] = IGNORE,
			    [WIRE_CLOSE] = YES },
	[STATE_CLOSING_ASKING] = { [WIRE_ACCEPT] = IGNORE,
				   [WIRE_DATA] = IGNORE,
				   [WIRE_EOF] = IGNORE,
				   [WIRE_CREDIT] = IGNORE,
				   [WIRE_MSG] = IGNORE,
				   [WIRE_CLOSE] = YES },
};

struct frame {
	uint32_t len, channel;
	uint8_t type, sub;
	const uint8_t *payload;
};

/* Calls a callback if it is set. */
#define CALL(l, name, ...)                                        \
	do {                                                      \
		if ((l)->ops->name)                               \
			(l)->ops->name(l, __VA_ARGS__, (l)->arg); \
	} while (0)

static int bad(struct err *e, const struct frame *f, const char *what)
{
	return err_set(e, -EPROTO, "frame of type %u on channel %u: %s", f->type, f->channel, what);
}

static int parse(enum wire_message m, const struct frame *f, struct fields *ret, struct err *e)
{
	if (fields_parse(m, f->payload, f->len, ret, e) < 0) {
		e->num = -EPROTO;
		return e->num;
	}
	return 0;
}

static int on_hello(struct link *l, const struct frame *f, struct err *e)
{
	bool again = l->role == LINK_GUEST && l->sleep == ASLEEP;
	struct fields fields;

	if (l->got_hello && !again)
		return bad(e, f, "a second HELLO");
	if (parse(l->role == LINK_KEEPER ? MESSAGE_HELLO_GUEST : MESSAGE_HELLO_KEEPER, f, &fields,
		  e) < 0)
		return e->num;
	if (fields_number(&fields, TAG_VERSION, 0) != WIRE_VERSION)
		return bad(e, f, "another version of the protocol");
	if (again) {
		link_forget(l);
		if (l->ops->reset)
			l->ops->reset(l, l->arg);
	}
	l->got_hello = true;
	CALL(l, hello, &fields);
	return 0;
}

static int on_token(struct link *l, const struct frame *f, struct err *e)
{
	struct reader r = reader_of(f->payload, f->len);
	uint64_t token = reader_be(&r, 8);

	if (reader_finish(&r) < 0)
		return bad(e, f, "not 8 bytes");
	if (f->type == WIRE_PING)
		return link_put_token(l, WIRE_PONG, token);
	CALL(l, pong, token);
	return 0;
}

static int on_sleep(struct link *l, const struct frame *f, struct err *e)
{
	bool guest = f->type == WIRE_SLEEP;

	if ((l->role == LINK_GUEST) != guest || l->sleep != (guest ? AWAKE : FALLING) || l->client)
		return bad(e, f, "not in this state");
	if (f->len != 0)
		return bad(e, f, "with a payload");
	l->sleep = guest ? FALLING : ASLEEP;
	if (guest && l->ops->sleep)
		l->ops->sleep(l, l->arg);
	if (!guest && l->ops->asleep)
		l->ops->asleep(l, l->arg);
	return 0;
}

static int on_wake(struct link *l, const struct frame *f, struct err *e)
{
	struct fields fields;
	int r;

	if (l->role != LINK_GUEST || l->client)
		return bad(e, f, "not in this state");
	if (parse(MESSAGE_WAKE, f, &fields, e) < 0)
		return e->num;
	r = link_release(l);
	CALL(l, wake, &fields);
	return r;
}

/*
 * May the other side send this frame? A sleeping guest accepts WAKE or HELLO, and only after its
 * own ASLEEP was sent: otherwise the keeper has not waited for it.
 */
static bool may_speak(const struct link *l, const struct frame *f)
{
	if (l->sleep == AWAKE)
		return true;
	if (l->role == LINK_KEEPER)
		return l->sleep == FALLING;
	return l->sleep == ASLEEP && !link_has_output(l) &&
	       (f->type == WIRE_WAKE || f->type == WIRE_HELLO);
}

/*
 * Nothing is accepted before our own HELLO: an answer would be sent first, which is an error, and a
 * guest that cannot do what HELLO requires would continue without it.
 */
static bool started(const struct link *l)
{
	return l->sent_hello && l->got_hello;
}

/* Channel 0: the link itself. */
static int on_link_frame(struct link *l, const struct frame *f, struct err *e)
{
	if (f->sub != 0)
		return bad(e, f, "sub is not 0");
	if (f->type == WIRE_HELLO)
		return on_hello(l, f, e);
	if (!started(l))
		return bad(e, f, "before HELLO");
	if (f->type == WIRE_PING || f->type == WIRE_PONG)
		return on_token(l, f, e);
	if (f->type == WIRE_SLEEP || f->type == WIRE_ASLEEP)
		return on_sleep(l, f, e);
	if (f->type == WIRE_WAKE)
		return on_wake(l, f, e);
	return bad(e, f, "not on channel 0");
}

static int on_open(struct link *l, const struct frame *f, struct err *e)
{
	enum wire_message m;
	struct fields fields;

	if (link_is_own(l, f->channel) || f->channel < l->next_theirs)
		return bad(e, f, "not theirs to open");
	if (l->role == LINK_KEEPER ? !l->guest_asks || message_of_guest_open(f->sub, &m) < 0
				   : message_of_open(f->sub, l->client, &m) < 0)
		return bad(e, f, "no such operation");
	if (fields_parse_open(m, l->client, f->payload, f->len, &fields, e) < 0)
		return e->num = -EPROTO;
	l->next_theirs = (uint64_t)f->channel + 2;
	if (!link_add(l, f->channel, f->sub, STATE_ASKED))
		return err_oom(e);
	/* Refused channels count until they are acknowledged: a peer that never does so is at
	 * fault. */
	if (l->n_theirs > 2 * WIRE_CHANNELS_MAX)
		return bad(e, f, "too many channels that were refused");
	if (l->n_theirs > WIRE_CHANNELS_MAX)
		return link_close(l, f->channel, WIRE_TOO_MANY, "too many channels are open");
	CALL(l, opened, f->channel, (enum wire_op)f->sub, &fields);
	return 0;
}

static int on_accept(struct link *l, struct channel *c, const struct frame *f, struct err *e)
{
	enum wire_message m = MESSAGE_NONE;
	struct fields fields;

	if (f->sub != 0)
		return bad(e, f, "sub is not 0");
	if (message_of_accept(c->op, l->client, &m) < 0)
		abort(); /* our own operation */
	if (parse(m, f, &fields, e) < 0)
		return e->num;
	c->state = STATE_OPEN;
	CALL(l, accepted, c->id, &fields);
	return 0;
}

static int on_data(struct link *l, struct channel *c, const struct frame *f, struct err *e)
{
	struct stream *s = &c->streams[f->sub];

	if (f->len == 0)
		return bad(e, f, "no bytes");
	if (s->got_eof)
		return bad(e, f, "after EOF");
	if (f->len > s->receive)
		return bad(e, f, "more than there is credit for");
	s->receive -= f->len;
	CALL(l, data, c->id, f->sub, f->payload, f->len);
	return 0;
}

static int on_eof(struct link *l, struct channel *c, const struct frame *f, struct err *e)
{
	if (f->len != 0 || c->streams[f->sub].got_eof)
		return bad(e, f, "after EOF, or with a payload");
	c->streams[f->sub].got_eof = true;
	CALL(l, eof, c->id, f->sub);
	return 0;
}

static int on_credit(struct link *l, struct channel *c, const struct frame *f, struct err *e)
{
	struct reader r = reader_of(f->payload, f->len);
	uint64_t n = reader_be(&r, 4);

	if (reader_finish(&r) < 0 || n == 0 || n > WIRE_CREDIT_MAX - c->streams[f->sub].send)
		return bad(e, f, "a wrong amount");
	c->streams[f->sub].send += (uint32_t)n;
	if (!c->streams[f->sub].sent_eof) /* the frame crossed our EOF */
		CALL(l, credit, c->id, f->sub);
	return 0;
}

static int on_msg(struct link *l, const struct channel *c, const struct frame *f, struct err *e)
{
	enum wire_message m = MESSAGE_NONE;
	struct fields fields;

	if (message_of_msg(f->sub, l->role == LINK_GUEST, &m) < 0)
		return bad(e, f, "no such message");
	if (parse(m, f, &fields, e) < 0)
		return e->num;
	CALL(l, msg, c->id, (enum wire_msg)f->sub, &fields);
	return 0;
}

static int on_close(struct link *l, struct channel *c, const struct frame *f, struct err *e)
{
	uint32_t id = c->id;
	struct fields fields;
	int r = 0;

	if (f->sub != 0)
		return bad(e, f, "sub is not 0");
	if (parse(MESSAGE_CLOSE, f, &fields, e) < 0)
		return e->num;
	if (c->state != STATE_CLOSING && c->state != STATE_CLOSING_ASKING) {
		/* Closed for our side too before the callback, so that it cannot send on the
		 * channel. */
		c->state = STATE_CLOSING;
		r = link_put_close(l, id, WIRE_DONE, NULL);
		CALL(l, closed, id, &fields);
	}
	link_drop(l, c);
	return r;
}

static int on_channel_frame(struct link *l, struct channel *c, const struct frame *f, struct err *e)
{
	bool streams = f->type == WIRE_DATA || f->type == WIRE_EOF || f->type == WIRE_CREDIT;

	if (streams && f->sub >= WIRE_STREAMS)
		return bad(e, f, "no such stream");
	switch (f->type) {
	case WIRE_ACCEPT:
		return on_accept(l, c, f, e);
	case WIRE_DATA:
		return on_data(l, c, f, e);
	case WIRE_EOF:
		return on_eof(l, c, f, e);
	case WIRE_CREDIT:
		return on_credit(l, c, f, e);
	case WIRE_MSG:
		return on_msg(l, c, f, e);
	default:
		return on_close(l, c, f, e);
	}
}

static int on_frame(struct link *l, const struct frame *f, struct err *e)
{
	struct channel *c = link_find(l, f->channel);
	enum action action;

	LINK_TRACE(l, false, f->type, f->channel, f->sub, f->len);
	if (!may_speak(l, f))
		return bad(e, f, "the sender must be silent now");
	if (f->channel == 0)
		return on_link_frame(l, f, e);
	if (!started(l))
		return bad(e, f, "before HELLO");
	action = (enum action)table[c ? c->state : STATE_NEW][f->type];
	if (action == NO)
		return bad(e, f, "not in this state");
	if (action == IGNORE)
		return 0;
	return c ? on_channel_frame(l, c, f, e) : on_open(l, f, e);
}

/* Reads a header and checks it against the limits. */
static int read_header(const struct link *l, const uint8_t *bytes, struct frame *ret, struct err *e)
{
	struct reader r = reader_of(bytes, WIRE_HEADER);
	struct frame f = { .len = (uint32_t)reader_be(&r, 4),
			   .channel = (uint32_t)reader_be(&r, 4) };
	bool large;

	f.type = (uint8_t)reader_be(&r, 1);
	f.sub = (uint8_t)reader_be(&r, 1);
	large = f.type == WIRE_OPEN && l->role == LINK_GUEST;
	if (f.type == 0 || f.type >= WIRE_TYPE_MAX || reader_be(&r, 2) != 0)
		return bad(e, &f, "not a frame");
	if (f.len > (large ? WIRE_OPEN_MAX : WIRE_PAYLOAD_MAX))
		return bad(e, &f, "too long");
	*ret = f;
	return 0;
}

/* The frame at the start of `n` bytes: *ret_n is its total length, 0 if it is incomplete. */
static int whole_frame(const struct link *l, const uint8_t *bytes, size_t n, struct frame *ret,
		       size_t *ret_n, struct err *e)
{
	int r;

	*ret_n = 0;
	if (n < WIRE_HEADER)
		return 0;
	r = read_header(l, bytes, ret, e);
	if (r < 0 || n - WIRE_HEADER < ret->len)
		return r;
	ret->payload = bytes + WIRE_HEADER;
	*ret_n = WIRE_HEADER + ret->len;
	return 0;
}

/* How many bytes the frame being assembled still needs for its header, or in total. */
static int missing(const struct link *l, size_t *ret, struct err *e)
{
	struct frame f = { 0 };
	int r;

	*ret = WIRE_HEADER - MIN(l->in.len, (size_t)WIRE_HEADER);
	if (*ret > 0)
		return 0;
	r = read_header(l, (const uint8_t *)l->in.data, &f, e);
	if (r == 0)
		*ret = WIRE_HEADER + f.len - l->in.len;
	return r;
}

/* Completes the frame in l->in with bytes of the piece; *ret_used says how many. */
static int feed_rest(struct link *l, const uint8_t *bytes, size_t n, size_t *ret_used,
		     struct err *e)
{
	size_t need = 0, used = 0, len;
	struct frame f = { 0 };
	int r;

	while ((r = missing(l, &need, e)) == 0 && need > 0 && used < n) {
		size_t piece = MIN(need, n - used);

		if (buf_put(&l->in, bytes + used, piece) < 0)
			return err_oom(e);
		used += piece;
	}
	*ret_used = used;
	if (r < 0 || need > 0)
		return r;
	r = whole_frame(l, (const uint8_t *)l->in.data, l->in.len, &f, &len, e);
	if (r == 0)
		r = on_frame(l, &f, e);
	buf_reset(&l->in);
	return r;
}

static int feed(struct link *l, const uint8_t *bytes, size_t n, struct err *e)
{
	while (n > 0) {
		struct frame f = { 0 };
		size_t used = 0;
		int r = l->in.len > 0 ? 0 : whole_frame(l, bytes, n, &f, &used, e);

		if (r == 0)
			r = used > 0 ? on_frame(l, &f, e) : feed_rest(l, bytes, n, &used, e);
		if (l->err) /* in a callback, or when we answered */
			r = err_set(e, l->err, "the link cannot continue: %s", strerror(-l->err));
		if (r < 0)
			return r;
		bytes += used;
		n -= used;
	}
	return 0;
}

int link_feed(struct link *l, const void *data, size_t n, struct err *e)
{
	int r;

	if (l->err)
		return err_set(e, l->err, "the link has ended");
	r = feed(l, data, n, e);
	return r < 0 ? link_dead(l, r) : 0;
}
