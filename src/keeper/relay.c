/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A relay joins a channel of a client's link to one of the guest's link. What one side says is said
 * to the other; the numbers of channels differ, the bytes do not.
 *
 * Flow control goes from end to end. DATA is passed on as far as the other link takes it, which is
 * the usual case and costs no copy here. The rest is held, and credit for it is given back only
 * when it has gone on; so no more is held of a stream than the credit that its sender started with.
 * All relays together hold at most HELD_MAX: the one that would exceed it is closed (too many).
 * What is held moves on when the receiver gives credit, or when a full link has been written out
 * (keeper->starved, relays_wake()). Streams that an operation does not use are thrown away, as the
 * protocol has it.
 *
 * MSG has no credit. An exit is sent once and behind all output, as are the guest's CLOSE and the
 * end of a time limit: they wait in the relay until its flows are empty. Entries and events go at
 * once; where the client's link is full, the channel is closed (too many): to wait would mean to
 * stop reading the guest, for everybody.
 *
 * A relay has two ends. The guest's is over (guest_ch is 0) when the guest closed, or we did, and
 * then the client may still have to read. The client's is over (client_ch is 0) when the client
 * closed or has gone: then the guest's is closed at once, and the relay with it. Numbers of
 * channels are never used again and the link forgets the cookie of what is closed, so nothing that
 * comes late finds a relay that is over.
 *
 * Callbacks of one link call functions of the other, but these call nobody back: bytes are only
 * taken in by link_feed(), in the round of their own port. So callbacks are never nested.
 */
#include <string.h>

#include "clock.h"
#include "serve.h"

/* A bit for each stream that an operation uses, by direction. */
static const uint8_t used[WIRE_OP_MAX][WAYS] = {
	[WIRE_OP_EXEC] = { [TO_CLIENT] = 1 << 1 | 1 << 2, [TO_GUEST] = 1 << 0 },
	[WIRE_OP_READ] = { [TO_CLIENT] = 1 << 0 },
	[WIRE_OP_WRITE] = { [TO_GUEST] = 1 << 0 },
};

/* ---- the two ends ---- */

static struct link *link_to(const struct relay *r, enum way way)
{
	return way == TO_CLIENT ? r->client->port.link : r->keeper->guest.link;
}

static uint32_t channel_to(const struct relay *r, enum way way)
{
	return way == TO_CLIENT ? r->client_ch : r->guest_ch;
}

static enum way other(enum way way)
{
	return way == TO_CLIENT ? TO_GUEST : TO_CLIENT;
}

static void check(struct relay *r, enum way way, int result)
{
	if (way == TO_CLIENT)
		client_check(r->client, result);
	else
		keeper_check(r->keeper, result);
}

static void forget(struct relay *r, struct flow *f)
{
	r->keeper->held -= f->held.len - f->done;
	buf_done(&f->held);
	f->done = 0;
}

static void forget_way(struct relay *r, enum way way)
{
	for (unsigned int i = 0; i < WIRE_STREAMS; i++)
		forget(r, &r->flows[way][i]);
}

static void unlink_relay(struct relay *r)
{
	if (r->prev)
		r->prev->next = r->next;
	else
		r->keeper->relays = r->next;
	if (r->next)
		r->next->prev = r->prev;
	r->prev = r->next = NULL;
}

/* Both ends are closed. Freed after the round: a caller may still look at it. */
static void put_aside(struct relay *r)
{
	struct keeper *k = r->keeper;

	loop_del_timer(&r->timer);
	forget_way(r, TO_CLIENT);
	forget_way(r, TO_GUEST);
	unlink_relay(r);
	r->next = k->over;
	k->over = r;
}

static void close_guest(struct relay *r)
{
	uint32_t ch = r->guest_ch;

	r->guest_ch = 0;
	loop_del_timer(&r->timer);
	forget_way(r, TO_GUEST);
	if (ch != 0)
		keeper_check(r->keeper, link_close(r->keeper->guest.link, ch, WIRE_DONE, NULL));
}

/* Ends a relay at both ends, without regard to what is held. */
static void cut(struct relay *r, enum wire_code code, const char *text)
{
	uint32_t ch = r->client_ch;

	close_guest(r);
	r->client_ch = 0;
	if (ch != 0)
		client_check(r->client, link_close(r->client->port.link, ch, code, text));
	put_aside(r);
}

static bool is_empty(const struct relay *r, enum way way)
{
	for (unsigned int i = 0; i < WIRE_STREAMS; i++)
		if (r->flows[way][i].held.len > 0)
			return false;
	return true;
}

/* What goes behind the output, once that has gone. May put the relay aside. */
static void settle(struct relay *r)
{
	struct buf b = { .data = (char *)r->exit, .len = r->exit_len, .max = sizeof(r->exit) };
	struct link *l = r->client->port.link;

	if (r->client_ch == 0 || !is_empty(r, TO_CLIENT))
		return;
	if (r->has_exit && !r->sent_exit) {
		r->sent_exit = true;
		client_check(r->client, link_msg(l, r->client_ch, WIRE_MSG_EXIT, &b));
	}
	if (r->closing)
		cut(r, r->code, r->text[0] != '\0' ? r->text : NULL);
}

/* The guest's end is over. The client hears it after everything else. */
static void finish(struct relay *r, enum wire_code code, const char *text, size_t n)
{
	close_guest(r);
	r->closing = true;
	r->code = code;
	n = MIN(n, (size_t)WIRE_TEXT_MAX);
	memcpy(r->text, text, n);
	r->text[n] = '\0';
	settle(r);
}

/* ---- streams ---- */

/* The sender has three quarters of its credit left when it gets the fourth back. */
static void give_credit(struct relay *r, enum way from, unsigned int stream, size_t n)
{
	struct flow *f = &r->flows[other(from)][stream];
	size_t all = f->owed + n;

	f->owed = all >= CREDIT_STEP ? 0 : all;
	if (all >= CREDIT_STEP && channel_to(r, from) != 0)
		check(r, from, link_consumed(link_to(r, from), channel_to(r, from), stream, all));
}

/* Sends to one end, for credit to the other. How much is taken; all, where nobody listens. */
static size_t pass_on(struct relay *r, enum way way, unsigned int stream, const void *data,
		      size_t n)
{
	uint32_t to = channel_to(r, way);
	ssize_t sent = to == 0 ? (ssize_t)n : link_data(link_to(r, way), to, stream, data, n);

	if (sent < 0) {
		check(r, way, (int)sent);
		sent = (ssize_t)n;
	}
	give_credit(r, other(way), stream, (size_t)sent);
	return (size_t)sent;
}

static void hold(struct relay *r, struct flow *f, enum way way, const void *data, size_t n)
{
	struct keeper *k = r->keeper;

	k->starved |= !link_ready(link_to(r, way));
	f->held.max = 2 * WIRE_CREDIT_START; /* what has gone on is in front of it */
	if (f->done >= f->held.len / 2) {
		buf_consume(&f->held, f->done);
		f->done = 0;
	}
	if (k->held + n > HELD_MAX || buf_put(&f->held, data, n) < 0) {
		cut(r, WIRE_TOO_MANY, "too much waits to be read");
		return;
	}
	k->held += n;
}

static void on_data(struct relay *r, enum way way, unsigned int stream, const void *data, size_t n)
{
	struct flow *f = &r->flows[way][stream];
	size_t sent = f->held.len == 0 ? pass_on(r, way, stream, data, n) : 0;

	if (sent < n)
		hold(r, f, way, (const char *)data + sent, n - sent);
}

static void send_eof(struct relay *r, enum way way, unsigned int stream)
{
	if (channel_to(r, way) != 0)
		check(r, way, link_eof(link_to(r, way), channel_to(r, way), stream));
}

static void on_eof(struct relay *r, enum way way, unsigned int stream)
{
	struct flow *f = &r->flows[way][stream];

	f->eof = true;
	if (f->held.len == 0)
		send_eof(r, way, stream);
}

/* Moves on what is held. True if something moved. May put the relay aside. */
static bool pump(struct relay *r, enum way way, unsigned int stream)
{
	struct flow *f = &r->flows[way][stream];
	size_t n = f->held.len - f->done, sent;

	if (f->held.len == 0)
		return false;
	sent = pass_on(r, way, stream, f->held.data + f->done, n);
	f->done += sent;
	r->keeper->held -= sent;
	if (sent < n) {
		r->keeper->starved |= !link_ready(link_to(r, way));
		return sent > 0;
	}
	forget(r, f);
	if (f->eof)
		send_eof(r, way, stream);
	if (way == TO_CLIENT)
		settle(r);
	return true;
}

bool relays_wake(struct keeper *k)
{
	struct relay *r = k->relays, *next;
	bool moved = false;

	if (!k->starved)
		return false;
	k->starved = false;
	for (; r; r = next) {
		next = r->next;
		for (unsigned int i = 0; i < WIRE_STREAMS; i++) {
			moved |= pump(r, TO_GUEST, i);
			moved |= pump(r, TO_CLIENT, i);
			if (r->client_ch == 0)
				break;
		}
	}
	/* Another one is the first to fill the link the next time. */
	r = k->relays;
	if (r && r->next) {
		struct relay *last = r->next;

		unlink_relay(r);
		while (last->next)
			last = last->next;
		last->next = r;
		r->prev = last;
	}
	return moved;
}

/* ---- the guest's end ---- */

static void guest_hello(struct link *l, const struct fields *f, void *arg)
{
	keeper_ready(arg, (uint32_t)fields_number(f, TAG_LANDLOCK, 0));
}

/* A view of a payload that was checked, to be sent as it came. */
static struct buf raw(const struct fields *f)
{
	return (struct buf){ .data = (char *)f->data, .len = f->len, .max = f->len };
}

static void guest_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct relay *r = link_cookie(l, ch);
	struct buf b = raw(f);

	if (r)
		client_check(r->client, link_accept(r->client->port.link, r->client_ch, &b));
}

static void guest_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		       void *arg)
{
	struct relay *r = link_cookie(l, ch);

	if (r && used[r->op][TO_CLIENT] >> stream & 1)
		on_data(r, TO_CLIENT, stream, data, n);
	else
		keeper_check(arg, link_consumed(l, ch, stream, n));
}

static void guest_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct relay *r = link_cookie(l, ch);

	if (r)
		on_eof(r, TO_CLIENT, stream);
}

static void guest_credit(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct relay *r = link_cookie(l, ch);

	if (r)
		(void)pump(r, TO_GUEST, stream);
}

static void on_exit_msg(struct relay *r, const struct fields *f)
{
	if (r->has_exit || f->len > sizeof(r->exit))
		return;
	memcpy(r->exit, f->data, f->len);
	r->exit_len = f->len;
	r->has_exit = true;
	settle(r);
}

static void guest_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		      void *arg)
{
	struct relay *r = link_cookie(l, ch);
	struct buf b = raw(f);

	if (!r)
		return;
	if (kind == WIRE_MSG_EXIT)
		on_exit_msg(r, f);
	else if (port_waiting(&r->client->port) > LINK_OUT_SOFT)
		cut(r, WIRE_TOO_MANY, "too many entries or events wait to be read");
	else
		client_check(r->client, link_msg(r->client->port.link, r->client_ch, kind, &b));
}

static void guest_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct relay *r = link_cookie(l, ch);
	uint64_t code = fields_number(f, TAG_CODE, WIRE_IO);
	const char *text = "";
	size_t pos = 0, n = 0;

	if (!r)
		return;
	r->guest_ch = 0; /* gone already */
	(void)fields_next(f, TAG_TEXT, &pos, &text, &n);
	/* What only we may say, and numbers that nobody knows. */
	finish(r, code >= WIRE_TIMEOUT ? WIRE_IO : (enum wire_code)code, text, n);
}

const struct link_ops relay_guest_ops = {
	.hello = guest_hello,
	.accepted = guest_accepted,
	.data = guest_data,
	.eof = guest_eof,
	.credit = guest_credit,
	.msg = guest_msg,
	.closed = guest_closed,
};

/* ---- the client's end ---- */

static void on_time(struct loop_timer *t)
{
	static const struct {
		uint64_t ms;
		const char *name;
	} units[] = { { 3600000, "h" }, { 60000, "m" }, { 1000, "s" }, { 1, "ms" } };
	struct relay *r = t->arg;
	char text[64];
	size_t i = 0;

	while (r->limit % units[i].ms != 0)
		i++;
	(void)snprintf(text, sizeof(text), "time limit of %llu%s reached",
		       (unsigned long long)(r->limit / units[i].ms), units[i].name);
	finish(r, WIRE_TIMEOUT, text, strlen(text));
}

/* The client may only shorten what the policy says. 0 or -errno. */
static int start_timer(struct relay *r, const struct fields *f)
{
	uint64_t most = r->keeper->spec->limits.timeout;
	uint64_t wish = fields_number(f, TAG_TIMEOUT, UINT64_MAX);

	r->timer = (struct loop_timer){ .cb = on_time, .arg = r };
	r->limit = MIN(most > 0 ? most : UINT64_MAX, wish);
	if (r->op != WIRE_OP_EXEC || r->limit >= UINT64_MAX / NSEC_PER_MSEC / 2)
		return 0;
	return loop_set_timer(r->keeper->loop, &r->timer, clock_mono() + r->limit * NSEC_PER_MSEC);
}

static void add(struct relay *r)
{
	struct keeper *k = r->keeper;

	r->next = k->relays;
	if (k->relays)
		k->relays->prev = r;
	k->relays = r;
	k->n_relays++;
}

/* Asks the guest. 0, or -errno: then the guest was not asked. */
static int ask(struct relay *r, const struct fields *f)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);
	struct keeper *k = r->keeper;
	int err;

	merge_open(k, r->op, f, &b);
	if (b.err)
		return b.err;
	/* A short OPEN becomes a long one with the policy's environment. */
	if (port_waiting(&k->guest) + b.len > OUTPUT_STOPS_INPUT)
		keeper_check(k, port_flush(&k->guest));
	if (port_waiting(&k->guest) + b.len > OUTPUT_STOPS_INPUT)
		return -EAGAIN;
	err = start_timer(r, f);
	if (err < 0)
		return err;
	err = link_open(k->guest.link, r->op, &b, r, &r->guest_ch);
	if (err < 0)
		loop_del_timer(&r->timer);
	if (err < 0 && err != -EAGAIN)
		keeper_check(k, err);
	return err;
}

void relay_opened(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f, void *arg)
{
	struct client *c = arg;
	struct keeper *k = c->keeper;
	struct relay *r = k->n_relays < RELAYS_MAX ? calloc(1, sizeof(*r)) : NULL;
	int err = -EAGAIN;

	if (r) {
		*r = (struct relay){ .keeper = k, .client = c, .client_ch = ch, .op = op };
		err = ask(r, f);
	}
	if (err == 0) {
		link_set_cookie(l, ch, r);
		add(r);
		return;
	}
	free(r);
	client_check(c, err == -ENOBUFS
				? link_close(l, ch, WIRE_INVALID,
					     "arguments and environment are too long together")
				: link_close(l, ch, WIRE_TOO_MANY,
					     "too many commands and file operations at once"));
}

void relay_client_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		       void *arg)
{
	struct relay *r = link_cookie(l, ch);

	if (r && used[r->op][TO_GUEST] >> stream & 1)
		on_data(r, TO_GUEST, stream, data, n);
	else
		client_check(arg, link_consumed(l, ch, stream, n));
}

void relay_client_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct relay *r = link_cookie(l, ch);

	if (r)
		on_eof(r, TO_GUEST, stream);
}

void relay_client_credit(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct relay *r = link_cookie(l, ch);

	if (r)
		(void)pump(r, TO_CLIENT, stream);
}

void relay_client_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		      void *arg)
{
	struct relay *r = link_cookie(l, ch);
	struct buf b = raw(f);

	if (r && r->guest_ch != 0)
		keeper_check(r->keeper, link_msg(r->keeper->guest.link, r->guest_ch, kind, &b));
}

void relay_client_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct relay *r = link_cookie(l, ch);

	if (!r)
		return;
	r->client_ch = 0; /* gone already */
	cut(r, WIRE_DONE, NULL);
}

/* ---- all of them ---- */

void relays_drop(struct keeper *k, const struct client *c)
{
	for (struct relay *r = k->relays, *next; r; r = next) {
		next = r->next;
		if (r->client != c)
			continue;
		r->client_ch = 0;
		cut(r, WIRE_DONE, NULL);
	}
}

void relays_guest_gone(struct keeper *k)
{
	const char *text = k->end == KEEPER_GUEST_BROKE
				   ? "the sandbox was ended: its first process broke the protocol"
				   : "the sandbox has ended";

	for (struct relay *r = k->relays, *next; r; r = next) {
		next = r->next;
		if (r->closing)
			continue;
		r->guest_ch = 0;
		finish(r, WIRE_GONE, text, strlen(text));
	}
}

void relays_sweep(struct keeper *k)
{
	while (k->over) {
		struct relay *r = k->over;

		k->over = r->next;
		k->n_relays--;
		free(r);
	}
}
