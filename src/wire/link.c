/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes come in pieces of any size. A piece that holds whole frames is read in place; only a frame
 * that is split over two pieces is put together in a buffer, which never holds more than one.
 * Limits are checked on the header, before a byte of payload is kept.
 *
 * A table says what each type of frame does in each state of a channel. Everything else here is
 * what happens when the table says yes.
 */
#include "link.h"

#include <string.h>

#include "str.h"

enum state {
	STATE_NEW, /* not in the table of channels: never opened, or gone */
	STATE_ASKING,
	STATE_ASKED,
	STATE_OPEN,
	STATE_CLOSING,	      /* we closed an open channel, or one that we were asked for */
	STATE_CLOSING_ASKING, /* we closed what was not answered yet: an ACCEPT may be on its way */
	STATE_MAX,
};

enum action {
	NO, /* an error */
	YES,
	IGNORE,
};

/* By state, what a frame of each type that comes in does. HELLO, PING and PONG are on channel 0
 * only. */
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

struct stream {
	uint32_t send;	  /* bytes that we may send */
	uint32_t receive; /* bytes that they may send */
	bool sent_eof, got_eof;
};

struct channel {
	uint32_t id;
	uint8_t op;
	uint8_t state;
	struct stream streams[WIRE_STREAMS];
	void *cookie;
	struct channel *next; /* in its slot */
};

enum {
	SLOTS = 256,
	DIRECT_MIN = 4096, /* from here on a system call of its own costs less than a copy */
};

struct frame {
	uint32_t len, channel;
	uint8_t type, sub;
	const uint8_t *payload;
};

struct link {
	enum link_role role;
	const struct link_ops *ops;
	void *arg;
	int err;	/* sticky */
	struct buf in;	/* part of one frame */
	struct buf out; /* what waits, from out_done on */
	size_t out_done;
	link_write_fn *write;
	void *write_arg;
	bool sent_hello, got_hello;
	bool client;	      /* the other side is a client of the keeper */
	uint32_t next_own;    /* the least number that may be opened next */
	uint64_t next_theirs; /* the same, and after the last one there is none */
	size_t n_own, n_theirs;
	struct channel *slots[SLOTS];
};

int link_new(enum link_role role, const struct link_ops *ops, void *arg, struct link **ret)
{
	struct link *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->role = role;
	l->ops = ops;
	l->arg = arg;
	l->in.max = WIRE_HEADER + WIRE_OPEN_MAX;
	l->out.max = 2 * LINK_OUT_MAX; /* what was written is taken away when it is half */
	l->next_own = role == LINK_KEEPER ? 2 : 1;
	l->next_theirs = role == LINK_KEEPER ? 1 : 2;
	*ret = l;
	return 0;
}

void link_serve_client(struct link *l)
{
	assert(l->role == LINK_GUEST);
	l->client = true;
}

struct link *link_free(struct link *l)
{
	if (!l)
		return NULL;
	for (size_t i = 0; i < SLOTS; i++)
		while (l->slots[i]) {
			struct channel *c = l->slots[i];

			l->slots[i] = c->next;
			free(c);
		}
	buf_done(&l->in);
	buf_done(&l->out);
	free(l);
	return NULL;
}

/* ---- channels ---- */

/* Numbers of one opener differ by two. */
static struct channel **slot_of(struct link *l, uint32_t id)
{
	return &l->slots[id / 2 % SLOTS];
}

static struct channel *find(const struct link *l, uint32_t id)
{
	struct channel *c = *slot_of((struct link *)l, id);

	while (c && c->id != id)
		c = c->next;
	return c;
}

static bool is_own(const struct link *l, uint32_t id)
{
	return (id % 2 == 0) == (l->role == LINK_KEEPER);
}

static struct channel *add(struct link *l, uint32_t id, uint8_t op, enum state state)
{
	struct channel *c = calloc(1, sizeof(*c)), **slot = slot_of(l, id);

	if (!c)
		return NULL;
	c->id = id;
	c->op = op;
	c->state = (uint8_t)state;
	for (unsigned int i = 0; i < WIRE_STREAMS; i++)
		c->streams[i] =
			(struct stream){ .send = WIRE_CREDIT_START, .receive = WIRE_CREDIT_START };
	c->next = *slot;
	*slot = c;
	*(is_own(l, id) ? &l->n_own : &l->n_theirs) += 1;
	return c;
}

static void drop(struct link *l, struct channel *c)
{
	struct channel **p = slot_of(l, c->id);

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	*(is_own(l, c->id) ? &l->n_own : &l->n_theirs) -= 1;
	free(c);
}

/* ---- out ---- */

static int dead(struct link *l, int err)
{
	if (l->err == 0)
		l->err = err;
	return l->err;
}

/* Puts a frame into the output. What was written is moved away when it is half of what there is. */
static int put_frame(struct link *l, enum wire_type type, uint32_t ch, uint8_t sub,
		     const void *payload, size_t n)
{
	if (l->err)
		return l->err;
	assert(l->sent_hello); /* the first frame */
	if (l->out_done > 0 && l->out_done >= l->out.len / 2) {
		buf_consume(&l->out, l->out_done);
		l->out_done = 0;
	}
	if (WIRE_HEADER + n > LINK_OUT_MAX - (l->out.len - l->out_done))
		return dead(l, -ENOBUFS);
	if (!buf_reserve(&l->out, WIRE_HEADER + n))
		return dead(l, l->out.err); /* and no half of a frame */
	(void)buf_put_be(&l->out, n, 4);
	(void)buf_put_be(&l->out, ch, 4);
	(void)buf_put_be(&l->out, type, 1);
	(void)buf_put_be(&l->out, sub, 1);
	(void)buf_put_be(&l->out, 0, 2);
	return buf_put(&l->out, payload, n);
}

/* A frame of DATA: straight to the other side if it is large and nothing is before it. */
static int put_data(struct link *l, uint32_t ch, uint8_t stream, const void *payload, size_t n)
{
	uint8_t head[WIRE_HEADER] = {
		(uint8_t)(n >> 24),  (uint8_t)(n >> 16),
		(uint8_t)(n >> 8),   (uint8_t)n,
		(uint8_t)(ch >> 24), (uint8_t)(ch >> 16),
		(uint8_t)(ch >> 8),  (uint8_t)ch,
		WIRE_DATA,	     stream,
	};
	const struct iovec pieces[2] = { { head, sizeof(head) }, { (void *)payload, n } };
	size_t done;

	if (!l->write || n < DIRECT_MIN || l->out.len > l->out_done)
		return put_frame(l, WIRE_DATA, ch, stream, payload, n);
	done = l->write(l->write_arg, pieces);
	assert(done <= sizeof(head) + n);
	if (done < sizeof(head)) {
		(void)buf_put(&l->out, head + done, sizeof(head) - done);
		done = sizeof(head);
	}
	if (buf_put(&l->out, (const char *)payload + (done - sizeof(head)),
		    n - (done - sizeof(head))) < 0)
		return dead(l, l->out.err); /* half a frame is out: there is no way back */
	return 0;
}

static int put_fields(struct link *l, enum wire_type type, uint32_t ch, uint8_t sub,
		      const struct buf *fields, size_t max)
{
	size_t n = fields ? fields->len : 0;

	if (l->err)
		return l->err;
	if (fields && fields->err)
		return fields->err;
	if (n > max)
		return -EMSGSIZE;
	return put_frame(l, type, ch, sub, n > 0 ? fields->data : NULL, n);
}

void link_set_output(struct link *l, link_write_fn *write, void *arg)
{
	l->write = write;
	l->write_arg = arg;
}

const void *link_pending(const struct link *l, size_t *ret_n)
{
	*ret_n = l->out.len - l->out_done;
	return l->out.data ? l->out.data + l->out_done : NULL;
}

void link_wrote(struct link *l, size_t n)
{
	assert(n <= l->out.len - l->out_done);
	l->out_done += n;
	if (l->out_done == l->out.len) {
		buf_reset(&l->out);
		l->out_done = 0;
	}
}

bool link_ready(const struct link *l)
{
	return !l->err && l->out.len - l->out_done < LINK_OUT_SOFT;
}

int link_hello(struct link *l, const struct buf *fields)
{
	assert(!l->sent_hello);
	l->sent_hello = true;
	return put_fields(l, WIRE_HELLO, 0, 0, fields, WIRE_PAYLOAD_MAX);
}

static int put_token(struct link *l, enum wire_type type, uint64_t token)
{
	uint8_t bytes[8];

	for (unsigned int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(token >> (56 - 8 * i));
	return put_frame(l, type, 0, 0, bytes, sizeof(bytes));
}

int link_ping(struct link *l, uint64_t token)
{
	return put_token(l, WIRE_PING, token);
}

int link_open(struct link *l, enum wire_op op, const struct buf *fields, void *cookie,
	      uint32_t *ret_ch)
{
	size_t max = l->role == LINK_KEEPER ? WIRE_OPEN_MAX : WIRE_PAYLOAD_MAX;
	struct channel *c;
	int r;

	if (l->err)
		return l->err;
	/* Numbers are not used again; two thousand million commands are not run by one sandbox. */
	if (l->n_own >= WIRE_CHANNELS_MAX || l->next_own > UINT32_MAX - 2)
		return -EAGAIN;
	r = put_fields(l, WIRE_OPEN, l->next_own, (uint8_t)op, fields, max);
	if (r < 0)
		return r;
	c = add(l, l->next_own, (uint8_t)op, STATE_ASKING);
	if (!c)
		return dead(l, -ENOMEM); /* they know of a channel that we do not */
	c->cookie = cookie;
	l->next_own += 2;
	*ret_ch = c->id;
	return 0;
}

int link_accept(struct link *l, uint32_t ch, const struct buf *fields)
{
	struct channel *c = find(l, ch);
	int r;

	if (l->err)
		return l->err;
	assert(c && c->state == STATE_ASKED);
	r = put_fields(l, WIRE_ACCEPT, ch, 0, fields, WIRE_PAYLOAD_MAX);
	if (r == 0)
		c->state = STATE_OPEN;
	return r;
}

int link_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct buf *fields)
{
	const struct channel *c = find(l, ch);

	if (l->err)
		return l->err;
	if (!c || c->state != STATE_OPEN)
		return -ESTALE;
	return put_fields(l, WIRE_MSG, ch, (uint8_t)kind, fields, WIRE_PAYLOAD_MAX);
}

ssize_t link_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n)
{
	const uint8_t *p = data;
	struct channel *c = find(l, ch);
	struct stream *s;
	size_t sent = 0;

	assert(stream < WIRE_STREAMS);
	if (l->err)
		return l->err;
	if (!c || c->state != STATE_OPEN)
		return -ESTALE;
	s = &c->streams[stream];
	assert(!s->sent_eof);
	while (sent < n && s->send > 0 && link_ready(l)) {
		size_t piece = MIN(MIN(n - sent, (size_t)s->send), (size_t)WIRE_PAYLOAD_MAX);
		int r = put_data(l, ch, (uint8_t)stream, p + sent, piece);

		if (r < 0)
			return r;
		s->send -= (uint32_t)piece;
		sent += piece;
	}
	return (ssize_t)sent;
}

int link_eof(struct link *l, uint32_t ch, unsigned int stream)
{
	struct channel *c = find(l, ch);

	assert(stream < WIRE_STREAMS);
	if (l->err)
		return l->err;
	if (!c || c->state != STATE_OPEN)
		return -ESTALE;
	if (c->streams[stream].sent_eof)
		return 0;
	c->streams[stream].sent_eof = true;
	return put_frame(l, WIRE_EOF, ch, (uint8_t)stream, NULL, 0);
}

int link_consumed(struct link *l, uint32_t ch, unsigned int stream, size_t n)
{
	struct channel *c = find(l, ch);
	uint8_t bytes[4];

	assert(stream < WIRE_STREAMS);
	if (l->err)
		return l->err;
	if (!c || c->state != STATE_OPEN || n == 0 || c->streams[stream].got_eof)
		return 0;
	assert(n <= WIRE_CREDIT_START - c->streams[stream].receive);
	c->streams[stream].receive += (uint32_t)n;
	for (unsigned int i = 0; i < 4; i++)
		bytes[i] = (uint8_t)(n >> (24 - 8 * i));
	return put_frame(l, WIRE_CREDIT, ch, (uint8_t)stream, bytes, sizeof(bytes));
}

/*
 * Text may have bytes of a path in it, and may be too long; the other side would take neither. Cut
 * before a character, not in it.
 */
static void put_text(struct buf *b, const char *text)
{
	char copy[WIRE_TEXT_MAX + 1];
	size_t n = strnlen(text, sizeof(copy));

	if (n > WIRE_TEXT_MAX)
		for (n = WIRE_TEXT_MAX; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
			n--;
	memcpy(copy, text, n);
	copy[n] = '\0';
	str_make_utf8(copy);
	fields_put_text(b, TAG_TEXT, copy);
}

static int put_close(struct link *l, uint32_t ch, enum wire_code code, const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_TEXT_MAX + 64);

	fields_put_number(&b, TAG_CODE, code);
	if (text)
		put_text(&b, text);
	return b.err ? dead(l, b.err) : put_fields(l, WIRE_CLOSE, ch, 0, &b, WIRE_PAYLOAD_MAX);
}

int link_close(struct link *l, uint32_t ch, enum wire_code code, const char *text)
{
	struct channel *c = find(l, ch);

	if (l->err)
		return l->err;
	if (!c || c->state == STATE_CLOSING || c->state == STATE_CLOSING_ASKING)
		return 0;
	c->state = c->state == STATE_ASKING ? STATE_CLOSING_ASKING : STATE_CLOSING;
	c->cookie = NULL;
	return put_close(l, ch, code, text);
}

size_t link_credit(const struct link *l, uint32_t ch, unsigned int stream)
{
	const struct channel *c = find(l, ch);

	assert(stream < WIRE_STREAMS);
	if (!c || c->state != STATE_OPEN || c->streams[stream].sent_eof)
		return 0;
	return c->streams[stream].send;
}

void *link_cookie(const struct link *l, uint32_t ch)
{
	const struct channel *c = find(l, ch);

	return c ? c->cookie : NULL;
}

void link_set_cookie(struct link *l, uint32_t ch, void *cookie)
{
	struct channel *c = find(l, ch);

	if (c)
		c->cookie = cookie;
}

size_t link_channels(const struct link *l)
{
	return l->n_own + l->n_theirs;
}

/* ---- in ---- */

/* Calls a callback if there is one. */
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
	struct fields fields;

	if (l->got_hello)
		return bad(e, f, "a second HELLO");
	if (parse(l->role == LINK_KEEPER ? MESSAGE_HELLO_GUEST : MESSAGE_HELLO_KEEPER, f, &fields,
		  e) < 0)
		return e->num;
	if (fields_number(&fields, TAG_VERSION, 0) != WIRE_VERSION)
		return bad(e, f, "another version of the protocol");
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
		return put_token(l, WIRE_PONG, token);
	CALL(l, pong, token);
	return 0;
}

/*
 * Nothing is taken before our own HELLO: an answer to it would come first and be our error, and a
 * guest that could not do what HELLO asks for would go on without.
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
	return bad(e, f, "not on channel 0");
}

static int on_open(struct link *l, const struct frame *f, struct err *e)
{
	enum wire_message m;
	struct fields fields;

	if (is_own(l, f->channel) || f->channel < l->next_theirs)
		return bad(e, f, "not theirs to open");
	/* The keeper is asked for nothing yet: a guest has no operations. */
	if (l->role == LINK_KEEPER || message_of_open(f->sub, &m) < 0)
		return bad(e, f, "no such operation");
	if (l->client && m == MESSAGE_EXEC)
		m = MESSAGE_EXEC_CLIENT;
	if (parse(m, f, &fields, e) < 0)
		return e->num;
	l->next_theirs = (uint64_t)f->channel + 2;
	if (!add(l, f->channel, f->sub, STATE_ASKED))
		return err_oom(e);
	/* Refused ones count until they are acknowledged: a peer that never does is at fault. */
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
	if (message_of_accept(c->op, &m) < 0)
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
	if (!c->streams[f->sub].sent_eof) /* it was on its way */
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
		/* Closed for our side too before the callback, so that it cannot send on it. */
		c->state = STATE_CLOSING;
		r = put_close(l, id, WIRE_DONE, NULL);
		CALL(l, closed, id, &fields);
	}
	drop(l, c);
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
	struct channel *c = find(l, f->channel);
	enum action action;

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

/* The frame at the beginning of `n` bytes: its whole length in *ret_n, 0 if it is not all there. */
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

/* How many bytes the frame that is being put together still needs: of its header, or all. */
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

/* Completes the frame in l->in with bytes of the piece; *ret_used says how many it took. */
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
			r = err_set(e, l->err, "the link cannot go on: %s", strerror(-l->err));
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
	return r < 0 ? dead(l, r) : 0;
}
