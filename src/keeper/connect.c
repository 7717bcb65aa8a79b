/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Egress of a guest with its own kernel. The guest captures its programs' traffic itself and asks
 * the keeper two things: may a name be resolved (ask), and a stream to a name or an address
 * (connect). Rules, lookup, dialling, budgets and records are the same as for a container.
 *
 * The broker moves bytes between sockets, so each stream has a socket pair. The broker gets one
 * end, as if it were a program's socket. This file moves bytes between the other end and the
 * channel. Towards the guest it reads only as much as the guest's credit and link allow; the rest
 * stays in the socket, which stops the broker in turn. Bytes from the guest that the socket does
 * not take are held, never more than the guest's initial credit.
 *
 * The broker's report decides how a stream ends. A good end is EOF both ways, then the guest
 * closes; bytes it sent before may still be on their way out. Any other end is CLOSE with a code,
 * which the program sees as a reset. If the guest closes before both EOFs, or with a code, the
 * program has reset the stream.
 *
 * The keeper trusts nothing that the guest says: the name may be invalid, the guest may not have
 * asked before, and may never give credit or close. A guest can make the keeper hold at most one
 * socket for each stream that the policy allows at a time, and one small structure for each
 * channel.
 */
#include <string.h>
#include <sys/socket.h>

#include "egress/pool.h"
#include "keeper/connect.h"
#include "keeper/serve.h"

enum {
	READ_MAX = WIRE_PAYLOAD_MAX, /* bytes read from a stream at once */
	TURN_MAX = 4,		     /* reads before other streams get their turn */
	HOST_MAX = 255,		     /* the protocol's limit */
};

struct connection {
	struct keeper *keeper;
	uint32_t ch;	    /* 0: closed */
	struct loop_fd src; /* our end of the pair; fd -EBADF: closed */
	struct buf held;    /* from the guest, not yet taken by the socket */
	size_t owed;	    /* passed on, but credit not yet returned */
	bool theirs_ended;  /* the guest sent EOF; passed on after `held` */
	bool ours_ended;    /* EOF was sent to the guest */
	bool open;	    /* the broker still uses it */
	bool left;	    /* the guest closed after EOF both ways */
	bool starved;	    /* not read: no credit, or the link is full */
	bool aside;	    /* unlinked; freed after the round */
	struct connection *prev, *next;
};

static uint8_t chunk[READ_MAX];

/* ---- closing ---- */

static void close_socket(struct connection *c)
{
	if (c->src.fd < 0)
		return;
	loop_del_fd(&c->src);
	c->src.fd = fd_close(c->src.fd);
	c->keeper->egress->n_sockets--;
}

/* Unlinks the connection; connections_sweep() frees it after the round. May be called twice:
 * reset_stream() resets the broker's stream, and the broker's report puts the connection aside too.
 */
static void put_aside(struct connection *c)
{
	struct egress *g = c->keeper->egress;

	if (c->aside)
		return;
	c->aside = true;
	close_socket(c);
	g->held -= c->held.len;
	buf_done(&c->held);
	if (c->prev)
		c->prev->next = c->next;
	else
		g->connections = c->next;
	if (c->next)
		c->next->prev = c->prev;
	c->next = g->over;
	g->over = c;
}

/* Closes the channel. The broker must no longer use the connection. */
static void cut(struct connection *c, enum wire_code code, const char *text)
{
	uint32_t ch = c->ch;

	if (ch == 0)
		return;
	c->ch = 0;
	keeper_check(c->keeper, link_close(c->keeper->guest.link, ch, code, text));
	put_aside(c);
}

/* As cut(), but the broker may still use it: the stream counts as reset by the sandbox. */
static void reset_stream(struct connection *c, enum wire_code code, const char *text)
{
	uint32_t ch = c->ch;

	c->ch = 0; /* connection_reported() then sends nothing */
	if (c->open)
		broker_reset(c->keeper->egress->broker, c);
	if (ch != 0)
		keeper_check(c->keeper, link_close(c->keeper->guest.link, ch, code, text));
	put_aside(c);
}

static enum wire_code code_of(enum broker_reason reason)
{
	switch (reason) {
	case BROKER_RULES:
	case BROKER_ADDRESS:
	case BROKER_CONTENT:
	case BROKER_POLICY:
		return WIRE_PERMISSION;
	case BROKER_LOOKUP:
		return WIRE_NOT_FOUND;
	case BROKER_BUDGET:
	case BROKER_FAULT:
	case BROKER_UNRECORDED:
		return WIRE_TOO_MANY;
	case BROKER_TIME:
	case BROKER_STOPPED:
		return WIRE_GONE;
	default:
		return WIRE_IO;
	}
}

/* ---- to the guest ---- */

static uint32_t wanted(const struct connection *c)
{
	return (c->starved || c->ours_ended ? 0 : EPOLLIN) | (c->held.len > 0 ? EPOLLOUT : 0);
}

/* A socket without wanted events leaves the loop: epoll would report its hang-up for ever. */
static void watch(struct connection *c)
{
	uint32_t events = wanted(c);
	int r = 0;

	if (c->src.fd < 0)
		return;
	if (events == 0)
		loop_del_fd(&c->src);
	else if (!c->src.loop)
		r = loop_add_fd(c->keeper->loop, &c->src, c->src.fd, events);
	else if (events != c->src.events)
		r = loop_mod_fd(&c->src, events);
	if (r < 0)
		reset_stream(c, WIRE_TOO_MANY, "no memory");
}

/* How many bytes may be read for the guest now; marks the connection as starved if none. */
static size_t room(struct connection *c)
{
	const struct link *l = c->keeper->guest.link;
	size_t n = MIN(link_credit(l, c->ch, 0), sizeof(chunk));

	if (n > 0 && link_ready(l))
		return n;
	c->starved = true;
	c->keeper->egress->starved |= n > 0;
	return 0;
}

/* Everything that the server sent has reached the guest's link. */
static void end_to_guest(struct connection *c)
{
	c->ours_ended = true;
	keeper_check(c->keeper, link_eof(c->keeper->guest.link, c->ch, 0));
	/* After a good end the guest closes the channel. */
	if (!c->open)
		close_socket(c);
}

static void read_socket(struct connection *c)
{
	struct keeper *k = c->keeper;

	for (unsigned int i = 0; i < TURN_MAX && !c->ours_ended; i++) {
		size_t n = room(c);
		ssize_t got = n == 0 ? 0 : recv(c->src.fd, chunk, n, MSG_DONTWAIT), sent;

		if (n == 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
			break;
		if (got <= 0) { /* an error: the broker closed its end with unread bytes */
			end_to_guest(c);
			break;
		}
		/* There is credit and room for one frame, so the link takes all of it. */
		sent = link_data(k->guest.link, c->ch, 0, chunk, (size_t)got);
		keeper_check(k, sent < 0 ? (int)sent : 0);
		if ((size_t)got < n)
			break;
	}
}

/* ---- from the guest ---- */

static void give_credit(struct connection *c, size_t n)
{
	struct keeper *k = c->keeper;

	c->owed += n;
	if (c->owed < CREDIT_STEP)
		return;
	keeper_check(k, link_consumed(k->guest.link, c->ch, 0, c->owed));
	c->owed = 0;
}

/* Returns how many bytes the socket took: all of them if its reader has closed. */
static size_t write_socket(struct connection *c, const void *data, size_t n)
{
	ssize_t k =
		c->src.fd < 0 ? (ssize_t)n : send(c->src.fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (k < 0)
		k = errno == EAGAIN || errno == EINTR ? 0 : (ssize_t)n;
	give_credit(c, (size_t)k);
	return (size_t)k;
}

static void pass_eof(const struct connection *c)
{
	if (c->theirs_ended && c->held.len == 0 && c->src.fd >= 0)
		(void)shutdown(c->src.fd, SHUT_WR);
}

static void write_held(struct connection *c)
{
	size_t n = c->held.len == 0 ? 0 : write_socket(c, c->held.data, c->held.len);

	c->keeper->egress->held -= n;
	buf_consume(&c->held, n);
	if (n > 0 && c->held.len == 0) {
		buf_done(&c->held);
		pass_eof(c);
	}
}

static void on_socket(struct loop_fd *src, uint32_t events)
{
	struct connection *c = src->arg;

	if (events & EPOLLOUT || c->held.len > 0)
		write_held(c);
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !c->starved && !c->ours_ended)
		read_socket(c);
	watch(c);
}

void connection_data(struct keeper *k, uint32_t ch, unsigned int stream, const void *data, size_t n)
{
	struct connection *c = link_cookie(k->guest.link, ch);
	size_t took;

	if (!c || stream != 0) {
		keeper_check(k, link_consumed(k->guest.link, ch, stream, n));
		return;
	}
	took = c->held.len == 0 ? write_socket(c, data, n) : 0;
	if (took == n)
		return;
	if (k->egress->held + n > HELD_MAX ||
	    buf_put(&c->held, (const char *)data + took, n - took) < 0) {
		reset_stream(c, WIRE_TOO_MANY, "too much waits to be sent");
		return;
	}
	k->egress->held += n - took;
	watch(c);
}

void connection_eof(struct keeper *k, uint32_t ch, unsigned int stream)
{
	struct connection *c = link_cookie(k->guest.link, ch);

	if (!c || stream != 0)
		return;
	c->theirs_ended = true;
	pass_eof(c);
}

void connection_credit(struct keeper *k, uint32_t ch, unsigned int stream)
{
	struct connection *c = link_cookie(k->guest.link, ch);

	if (!c || stream != 0 || !c->starved)
		return;
	c->starved = false;
	watch(c);
}

void connection_closed(struct keeper *k, uint32_t ch, const struct fields *f)
{
	struct connection *c = link_cookie(k->guest.link, ch);

	if (!c)
		return;
	c->ch = 0; /* closed by the guest */
	c->left = c->theirs_ended && c->ours_ended &&
		  fields_number(f, TAG_CODE, WIRE_IO) == WIRE_DONE;
	if (!c->left || !c->open)
		reset_stream(c, WIRE_DONE, NULL);
}

/* ---- callbacks of the broker ---- */

void connection_reported(const struct broker_event *ev)
{
	struct connection *c = ev->cookie;

	if (ev->what == BROKER_ALLOW)
		return;
	c->open = false;
	if (c->left) {
		put_aside(c);
		return;
	}
	/* Good end: on_socket() still passes on the remaining bytes, then EOF. */
	if (ev->what == BROKER_END && ev->reason == BROKER_OK && c->ch != 0) {
		if (c->ours_ended)
			close_socket(c);
		return;
	}
	cut(c, code_of(ev->reason), broker_reason_text(ev->reason));
}

void connection_reply(void *arg, void *cookie, int fd, bool ok, enum broker_reason reason)
{
	struct connection *c = cookie;

	if (ok && c->ch != 0)
		keeper_check(c->keeper, link_accept(c->keeper->guest.link, c->ch, NULL));
}

/* ---- opening ---- */

/* Parses the target as a rule would write it: a name or an address, IPv6 in brackets. Refuses
 * addresses inside the sandbox: its loopback, and the pool of addresses that stand for names. */
static int parse_target(const struct fields *f, struct target *ret)
{
	char text[HOST_MAX + sizeof(":65535")];
	struct err e = ERR_INIT;
	const char *host = "";
	size_t pos = 0, n = 0;
	uint32_t v4;
	int len, r;

	(void)fields_next(f, TAG_HOST, &pos, &host, &n);
	len = snprintf(text, sizeof(text), "%.*s:%u", (int)n, host,
		       (unsigned int)fields_number(f, TAG_PORT, 0));
	r = target_parse(text, (size_t)len, ret, &e);
	if (r < 0 || !ret->is_addr)
		return r;
	memcpy(&v4, ret->addr.bytes, sizeof(v4));
	if (addr_classify(&ret->addr) == ADDR_LOOPBACK ||
	    (ret->addr.family == 4 && pool_has(be32toh(v4))))
		return -EACCES;
	return 0;
}

/* Ended streams whose last bytes the guest does not read must not block new ones: cuts them. */
static void make_place(struct keeper *k)
{
	struct egress *g = k->egress;

	for (struct connection *c = g->connections, *next;
	     c && g->n_sockets >= k->spec->egress.streams; c = next) {
		next = c->next;
		if (!c->open && c->src.fd >= 0)
			cut(c, WIRE_GONE, "its end was not read in time");
	}
}

static struct connection *connection_new(struct keeper *k, uint32_t ch, int *ret_theirs)
{
	struct connection *c = calloc(1, sizeof(*c));
	struct egress *g = k->egress;
	int pair[2];

	if (!c || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
		free(c);
		return NULL;
	}
	*c = (struct connection){ .keeper = k, .ch = ch, .open = true, .next = g->connections };
	c->src = (struct loop_fd){ .cb = on_socket, .arg = c, .fd = pair[0] };
	c->held.max = WIRE_CREDIT_START;
	if (g->connections)
		g->connections->prev = c;
	g->connections = c;
	g->n_sockets++;
	link_set_cookie(k->guest.link, ch, c);
	*ret_theirs = pair[1];
	return c;
}

static void refuse(struct keeper *k, uint32_t ch, enum wire_code code, const char *text)
{
	keeper_check(k, link_close(k->guest.link, ch, code, text));
}

static void open_connect(struct keeper *k, uint32_t ch, const struct fields *f)
{
	struct broker_request req = { .fd = -EBADF, .proxy = true };
	struct connection *c;

	if (parse_target(f, &req.target) < 0) {
		refuse(k, ch, WIRE_PERMISSION, "neither the name of a host nor an address of one");
		return;
	}
	if (!journal_works(k)) {
		refuse(k, ch, WIRE_TOO_MANY, "the audit log cannot be written");
		return;
	}
	make_place(k);
	c = connection_new(k, ch, &req.fd);
	if (!c) {
		refuse(k, ch, WIRE_TOO_MANY, "out of memory or descriptors");
		return;
	}
	req.cookie = c;
	broker_open(k->egress->broker, &req);
	watch(c);
}

static void open_ask(struct keeper *k, uint32_t ch, const struct fields *f)
{
	struct err e = ERR_INIT;
	const char *host = "";
	size_t pos = 0, n = 0;
	struct name name;

	(void)fields_next(f, TAG_HOST, &pos, &host, &n);
	if (name_parse(host, n, &name, &e) < 0) {
		refuse(k, ch, WIRE_PERMISSION, "not the name of a host");
	} else if (!egress_may_resolve(k, &name)) {
		refuse(k, ch, WIRE_PERMISSION, "not allowed by the policy of this sandbox");
	} else {
		keeper_check(k, link_accept(k->guest.link, ch, NULL));
		refuse(k, ch, WIRE_DONE, NULL);
	}
}

void connection_opened(struct keeper *k, uint32_t ch, enum wire_op op, const struct fields *f)
{
	if (op == WIRE_OP_CONNECT)
		open_connect(k, ch, f);
	else
		open_ask(k, ch, f);
}

/* ---- all connections ---- */

void connections_wake(struct keeper *k)
{
	struct egress *g = k->egress;

	if (!g || !g->starved || !link_ready(k->guest.link))
		return;
	g->starved = false;
	for (struct connection *c = g->connections, *next; c; c = next) {
		next = c->next;
		if (!c->starved || link_credit(k->guest.link, c->ch, 0) == 0)
			continue;
		c->starved = false;
		watch(c);
	}
}

void connections_sweep(struct keeper *k)
{
	struct egress *g = k->egress;

	while (g && g->over) {
		struct connection *c = g->over;

		g->over = c->next;
		free(c);
	}
}

void connections_done(struct keeper *k)
{
	while (k->egress && k->egress->connections)
		reset_stream(k->egress->connections, WIRE_GONE, "the sandbox has ended");
	connections_sweep(k);
}
