/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel table, and output. Frames wait in one buffer until the owner has written them; its
 * size is limited. Large DATA bypasses the buffer if nothing waits (put_data()). While this side
 * must be silent (SLEEP, ASLEEP), frames wait in a second buffer under the same limit.
 */
#include "wire/link-inside.h"

#include <string.h>

#include "base/str.h"

enum {
	DIRECT_MIN = 4096, /* from this size on, a system call costs less than a copy */
};

/* Resets the channel numbers: no channel was opened yet. */
static void first_numbers(struct link *l)
{
	l->next_own = l->role == LINK_KEEPER ? 2 : 1;
	l->next_theirs = l->role == LINK_KEEPER ? 1 : 2;
}

int link_new(enum link_role role, const struct link_ops *ops, void *arg, struct link **ret)
{
	struct link *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->role = role;
	l->ops = ops;
	l->arg = arg;
	l->in.max = WIRE_HEADER + WIRE_OPEN_MAX;
	l->out.max = 2 * LINK_OUT_MAX; /* written bytes are removed when they are half of it */
	l->held.max = LINK_OUT_MAX;
	first_numbers(l);
	*ret = l;
	return 0;
}

void link_with_client(struct link *l)
{
	l->client = true;
}

void link_guest_asks(struct link *l)
{
	l->guest_asks = true;
}

static void drop_all(struct link *l)
{
	for (size_t i = 0; i < SLOTS; i++)
		while (l->slots[i]) {
			struct channel *c = l->slots[i];

			l->slots[i] = c->next;
			free(c);
		}
	l->n_own = l->n_theirs = 0;
}

void link_forget(struct link *l)
{
	drop_all(l);
	first_numbers(l);
	buf_reset(&l->held);
	l->sent_hello = l->got_hello = false;
	l->sleep = AWAKE;
}

struct link *link_free(struct link *l)
{
	if (!l)
		return NULL;
	drop_all(l);
	buf_done(&l->in);
	buf_done(&l->out);
	buf_done(&l->held);
	free(l);
	return NULL;
}

/* ---- channels ---- */

struct channel *link_add(struct link *l, uint32_t id, uint8_t op, enum state state)
{
	struct channel *c = calloc(1, sizeof(*c)), **slot = link_slot(l, id);

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
	*(link_is_own(l, id) ? &l->n_own : &l->n_theirs) += 1;
	return c;
}

void link_drop(struct link *l, struct channel *c)
{
	struct channel **p = link_slot(l, c->id);

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	*(link_is_own(l, c->id) ? &l->n_own : &l->n_theirs) -= 1;
	free(c);
}

/* ---- output ---- */

int link_dead(struct link *l, int err)
{
	if (l->err == 0)
		l->err = err;
	return l->err;
}

/* Must this side be silent? The keeper from SLEEP on, the guest from ASLEEP on. */
static bool silent(const struct link *l)
{
	return l->sleep == ASLEEP || (l->sleep == FALLING && l->role == LINK_KEEPER);
}

/* All waiting bytes: to be written, and held until WAKE. */
static size_t waiting(const struct link *l)
{
	return l->out.len - l->out_done + l->held.len;
}

bool link_has_output(const struct link *l)
{
	return l->out.len > l->out_done;
}

/* Removes written bytes when they are half of the buffer. */
static void tidy(struct link *l)
{
	if (l->out_done == 0 || l->out_done < l->out.len / 2)
		return;
	buf_consume(&l->out, l->out_done);
	l->out_done = 0;
}

static int put_frame(struct link *l, enum wire_type type, uint32_t ch, uint8_t sub,
		     const void *payload, size_t n)
{
	struct buf *b = silent(l) ? &l->held : &l->out;

	if (l->err)
		return l->err;
	assert(l->sent_hello); /* HELLO is the first frame */
	tidy(l);
	if (WIRE_HEADER + n > LINK_OUT_MAX - waiting(l))
		return link_dead(l, -ENOBUFS);
	if (!buf_reserve(b, WIRE_HEADER + n))
		return link_dead(l, b->err); /* and no partial frame */
	(void)buf_put_be(b, n, 4);
	(void)buf_put_be(b, ch, 4);
	(void)buf_put_be(b, type, 1);
	(void)buf_put_be(b, sub, 1);
	(void)buf_put_be(b, 0, 2);
	(void)buf_put(b, payload, n);
	LINK_TRACE(l, true, type, ch, sub, n);
	return b->err;
}

int link_release(struct link *l)
{
	l->sleep = AWAKE;
	tidy(l);
	if (buf_put(&l->out, l->held.data, l->held.len) < 0)
		return link_dead(l, l->out.err);
	buf_reset(&l->held);
	return 0;
}

/* Sends a DATA frame, directly if it is large and no output waits. */
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
	ssize_t took;
	size_t done;

	if (!l->write || n < DIRECT_MIN || link_has_output(l) || silent(l))
		return put_frame(l, WIRE_DATA, ch, stream, payload, n);
	took = l->write(l->write_arg, pieces);
	done = took > 0 ? (size_t)took : 0; /* link_flush() fails in the same way */
	assert(done <= sizeof(head) + n);
	if (done < sizeof(head)) {
		(void)buf_put(&l->out, head + done, sizeof(head) - done);
		done = sizeof(head);
	}
	if (buf_put(&l->out, (const char *)payload + (done - sizeof(head)),
		    n - (done - sizeof(head))) < 0)
		return link_dead(l, l->out.err); /* half a frame was written: cannot be undone */
	LINK_TRACE(l, true, WIRE_DATA, ch, stream, n); /* may send, so after the whole frame */
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

int link_flush(struct link *l)
{
	while (link_has_output(l)) {
		const struct iovec pieces[2] = {
			{ l->out.data + l->out_done, l->out.len - l->out_done },
		};
		ssize_t k = l->write(l->write_arg, pieces);

		if (k == -EAGAIN)
			break;
		if (k < 0 && k != -EINTR)
			return (int)k;
		link_wrote(l, k > 0 ? (size_t)k : 0);
	}
	return 0;
}

bool link_ready(const struct link *l)
{
	return !l->err && waiting(l) < LINK_OUT_SOFT;
}

int link_hello(struct link *l, const struct buf *fields)
{
	assert(!l->sent_hello);
	l->sent_hello = true;
	return put_fields(l, WIRE_HELLO, 0, 0, fields, WIRE_PAYLOAD_MAX);
}

int link_sleep(struct link *l)
{
	int r;

	assert(l->role == LINK_KEEPER && l->got_hello && l->sleep == AWAKE);
	r = put_frame(l, WIRE_SLEEP, 0, 0, NULL, 0);
	l->sleep = FALLING;
	return r;
}

int link_asleep(struct link *l)
{
	int r;

	assert(l->role == LINK_GUEST && l->sleep == FALLING);
	r = put_frame(l, WIRE_ASLEEP, 0, 0, NULL, 0);
	l->sleep = ASLEEP;
	return r;
}

int link_wake(struct link *l, const struct buf *fields)
{
	int r;

	assert(l->role == LINK_KEEPER && l->got_hello && l->sleep != FALLING);
	l->sleep = AWAKE; /* WAKE goes before held frames */
	r = put_fields(l, WIRE_WAKE, 0, 0, fields, WIRE_PAYLOAD_MAX);
	return r < 0 ? r : link_release(l);
}

int link_put_token(struct link *l, enum wire_type type, uint64_t token)
{
	uint8_t bytes[8];

	for (unsigned int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(token >> (56 - 8 * i));
	return put_frame(l, type, 0, 0, bytes, sizeof(bytes));
}

int link_ping(struct link *l, uint64_t token)
{
	return link_put_token(l, WIRE_PING, token);
}

int link_open(struct link *l, enum wire_op op, const struct buf *fields, void *cookie,
	      uint32_t *ret_ch)
{
	size_t max = l->role == LINK_KEEPER ? WIRE_OPEN_MAX : WIRE_PAYLOAD_MAX;
	struct channel *c;
	int r;

	if (l->err)
		return l->err;
	/* Numbers are not reused; no sandbox runs two billion commands. */
	if (l->n_own >= WIRE_CHANNELS_MAX || l->next_own > UINT32_MAX - 2)
		return -EAGAIN;
	r = put_fields(l, WIRE_OPEN, l->next_own, (uint8_t)op, fields, max);
	if (r < 0)
		return r;
	c = link_add(l, l->next_own, (uint8_t)op, STATE_ASKING);
	if (!c)
		return link_dead(l, -ENOMEM); /* the other side knows a channel that we do not */
	c->cookie = cookie;
	l->next_own += 2;
	*ret_ch = c->id;
	return 0;
}

int link_accept(struct link *l, uint32_t ch, const struct buf *fields)
{
	struct channel *c = link_find(l, ch);
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
	const struct channel *c = link_find(l, ch);

	if (l->err)
		return l->err;
	if (!c || c->state != STATE_OPEN)
		return -ESTALE;
	return put_fields(l, WIRE_MSG, ch, (uint8_t)kind, fields, WIRE_PAYLOAD_MAX);
}

ssize_t link_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n)
{
	const uint8_t *p = data;
	struct channel *c = link_find(l, ch);
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
	struct channel *c = link_find(l, ch);

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
	struct channel *c = link_find(l, ch);
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
 * Makes the text acceptable to the other side: valid UTF-8 (it may contain bytes of a path) and cut
 * between characters if too long.
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

int link_put_close(struct link *l, uint32_t ch, enum wire_code code, const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_TEXT_MAX + 64);

	fields_put_number(&b, TAG_CODE, code);
	if (text)
		put_text(&b, text);
	return b.err ? link_dead(l, b.err) : put_fields(l, WIRE_CLOSE, ch, 0, &b, WIRE_PAYLOAD_MAX);
}

int link_close(struct link *l, uint32_t ch, enum wire_code code, const char *text)
{
	struct channel *c = link_find(l, ch);

	if (l->err)
		return l->err;
	if (!c || c->state == STATE_CLOSING || c->state == STATE_CLOSING_ASKING)
		return 0;
	c->state = c->state == STATE_ASKING ? STATE_CLOSING_ASKING : STATE_CLOSING;
	c->cookie = NULL;
	return link_put_close(l, ch, code, text);
}

size_t link_credit(const struct link *l, uint32_t ch, unsigned int stream)
{
	const struct channel *c = link_find(l, ch);

	assert(stream < WIRE_STREAMS);
	if (!c || c->state != STATE_OPEN || c->streams[stream].sent_eof)
		return 0;
	return c->streams[stream].send;
}

void *link_cookie(const struct link *l, uint32_t ch)
{
	const struct channel *c = link_find(l, ch);

	return c ? c->cookie : NULL;
}

void link_set_cookie(struct link *l, uint32_t ch, void *cookie)
{
	struct channel *c = link_find(l, ch);

	if (c)
		c->cookie = cookie;
}

size_t link_channels(const struct link *l)
{
	return l->n_own + l->n_theirs;
}
