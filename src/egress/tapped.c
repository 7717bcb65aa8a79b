/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams whose bytes hutch-tap moves. The broker decides, resolves and dials as for any stream,
 * then passes duplicates of both sockets, and keeps its own descriptors for three things:
 *
 * - to cut the stream, although another process holds the sockets, too;
 * - to count its bytes, which the kernel reports (TCP_INFO), so that hutch-tap, which parses what
 *   the sandbox and the server send, cannot lie about them. The broker looks a few times a second,
 *   so a stream can exceed its byte budget by what it moves in that time;
 * - to hold the client's connection while hutch-tap starts.
 *
 * The stream ends when hutch-tap reports it, when hutch-tap ends, or when the broker cuts it.
 */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

/* After the headers of the C library, whose struct tcp_info lacks the byte counts. */
#include <linux/tcp.h>

#include "base/clock.h"
#include "base/fd.h"
#include "egress/broker-inner.h"

/* States of a connection that can send, as the kernel numbers them. */
enum {
	STATE_ESTABLISHED = 1,
	STATE_CLOSE_WAIT = 8,
};

/* Bytes of user data sent and received on the server's socket since its connection. */
static void count(int fd, uint64_t *ret_out, uint64_t *ret_in)
{
	struct tcp_info info = { 0 };
	socklen_t n = sizeof(info);

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0)
		return;
	*ret_out = info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
	*ret_in = info.tcpi_bytes_received;
}

static bool spend(uint64_t *budget, uint64_t *so_far, uint64_t now)
{
	const uint64_t more = now - *so_far;

	*so_far = now;
	if (more > *budget) {
		*budget = 0;
		return false;
	}
	*budget -= more;
	return true;
}

/* Counts the stream's new bytes. BROKER_OK, or why it has to end. */
static enum broker_reason look_at(struct stream *s, uint64_t now, const char **ret_detail)
{
	struct broker *b = s->req.broker;
	struct tapped *t = s->tap;
	uint64_t out = t->base_out + t->out, in = t->base_in + t->in;

	if (!t->given) {
		*ret_detail = "hutch-tap did not take it in time";
		return now - t->since > BROKER_TAP_MS * NSEC_PER_MSEC ? BROKER_TAP : BROKER_OK;
	}
	count(t->server, &out, &in);
	out -= MIN(out, t->base_out);
	in -= MIN(in, t->base_in);
	if (out != t->out || in != t->in)
		t->moved = now;
	out = MAX(out, t->out);
	in = MAX(in, t->in);
	*ret_detail = "bytes_out";
	if (!spend(&b->budget.out, &t->out, out))
		return BROKER_BUDGET;
	*ret_detail = "bytes_in";
	if (!spend(&b->budget.in, &t->in, in))
		return BROKER_BUDGET;
	*ret_detail = "idle";
	if (now - t->moved > b->conf.idle_ms * NSEC_PER_MSEC)
		return BROKER_TIME;
	*ret_detail = "open for too long";
	return now - t->since > b->conf.life_ms * NSEC_PER_MSEC ? BROKER_TIME : BROKER_OK;
}

static void look_later(struct broker *b)
{
	const unsigned int times = b->n_tapped > BROKER_FEW_TAPPED ? 4 : 1;

	(void)loop_set_timer(b->conf.loop, &b->look,
			     clock_mono() + times * BROKER_LOOK_MS * NSEC_PER_MSEC);
}

static void on_look(struct loop_timer *src)
{
	struct broker *b = src->arg;
	const uint64_t now = clock_mono();

	for (struct stream *s = b->streams, *next; s; s = next) {
		const char *detail = NULL;
		enum broker_reason reason;

		next = s->next;
		if (!s->tap || s->tap->server < 0)
			continue;
		reason = look_at(s, now, &detail);
		if (reason != BROKER_OK)
			s->tap->end(s, reason, detail);
	}
	if (b->n_tapped > 0)
		look_later(b);
}

/* ---- the table: each record of hutch-tap names its stream by number ---- */

static struct stream **list_of(const struct broker *b, uint64_t number)
{
	return &b->tapped[number % BROKER_TAPPED_SETS];
}

static struct stream *find(const struct broker *b, uint64_t number)
{
	struct stream *s = b->tapped ? *list_of(b, number) : NULL;

	while (s && s->req.number != number)
		s = s->tap->next;
	return s;
}

static void enter(struct stream *s)
{
	struct stream **list = list_of(s->req.broker, s->req.number);

	s->tap->next = *list;
	*list = s;
	s->req.broker->n_tapped++;
}

static void leave(struct stream *s)
{
	struct stream **at = list_of(s->req.broker, s->req.number);

	while (*at != s)
		at = &(*at)->tap->next;
	*at = s->tap->next;
	s->req.broker->n_tapped--;
}

/* ---- the life of a stream ---- */

int tapped_new(struct stream *s, int fd, const void *early, size_t n_early, tapped_end_fn *end)
{
	struct broker *b = s->req.broker;
	struct tapped *t;

	if (!b->tapped)
		b->tapped = calloc(BROKER_TAPPED_SETS, sizeof(*b->tapped));
	t = b->tapped ? calloc(1, sizeof(*t)) : NULL;
	if (!t)
		return -ENOMEM;
	t->early = (struct buf)BUF_INIT(BROKER_EARLY_MAX);
	if (n_early > 0 && buf_put(&t->early, early, n_early) < 0) {
		free(t);
		return -ENOMEM;
	}
	t->end = end;
	t->client = fd;
	t->server = -EBADF;
	s->tap = t;
	enter(s);
	return 0;
}

/* Offers the stream to hutch-tap. False: the stream has ended. */
static bool offer(struct stream *s)
{
	const struct broker_conf *c = &s->req.broker->conf;
	struct tapped *t = s->tap;
	const struct broker_handover h = {
		.stream = s->req.number,
		.target = &s->req.target,
		.proto = s->req.proto,
		.client = t->client,
		.server = t->server,
		.early = t->early.data,
		.n_early = t->early.len,
	};
	int r = c->ops->hand_over(c->arg, &h);

	if (r == -EAGAIN)
		return true;
	if (r < 0) {
		s->tap->end(s, BROKER_TAP, strerror(-r));
		return false;
	}
	t->given = true;
	t->moved = clock_mono();
	buf_done(&t->early);
	return true;
}

void tapped_connected(struct stream *s, int fd)
{
	struct broker *b = s->req.broker;
	struct tapped *t = s->tap;

	t->server = fd;
	t->since = clock_mono();
	count(fd, &t->base_out, &t->base_in);
	if (b->look.slot == 0) {
		b->look = (struct loop_timer){ .cb = on_look, .arg = b };
		look_later(b);
	}
	(void)offer(s);
}

/* Dissolving the association resets a TCP connection, also if another process holds the socket.
 * shutdown(2) would look like an orderly end. The sockets of a VM's streams are pairs, which have
 * only that. */
static void end_of(int *fd, bool gently)
{
	const struct sockaddr none = { .sa_family = AF_UNSPEC };

	if (*fd < 0)
		return;
	if (!gently && connect(*fd, &none, sizeof(none)) < 0)
		(void)shutdown(*fd, SHUT_RDWR);
	*fd = fd_close(*fd);
}

/*
 * hutch-tap says that it has closed its ends. If the connection could still send, that is not so:
 * it is reset, because nothing would count its bytes from now on, and the log says that it has
 * ended.
 */
static void end_closed(int *fd)
{
	struct tcp_info info = { 0 };
	socklen_t n = sizeof(info);
	bool open;

	if (*fd < 0)
		return;
	open = getsockopt(*fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0 ||
	       info.tcpi_state == STATE_ESTABLISHED || info.tcpi_state == STATE_CLOSE_WAIT;
	if (!open)
		(void)shutdown(*fd, SHUT_RDWR);
	end_of(fd, !open);
}

void tapped_stop(struct stream *s, bool gently)
{
	struct tapped *t = s->tap;
	const char *ignored;

	if (t->given)
		(void)look_at(s, clock_mono(), &ignored);
	end_of(&t->client, gently);
	if (t->over)
		end_closed(&t->server);
	end_of(&t->server, gently);
	buf_done(&t->early);
	leave(s);
}

void broker_offer(struct broker *b)
{
	for (struct stream *s = b->streams, *next; s; s = next) {
		next = s->next;
		if (s->tap && s->tap->server >= 0 && !s->tap->given)
			(void)offer(s);
	}
}

void broker_tap_ended(struct broker *b, uint64_t stream, enum broker_reason reason,
		      const char *detail)
{
	struct stream *s = find(b, stream);

	if (!s)
		return;
	s->tap->over = true;
	s->tap->end(s, reason, detail);
}

void broker_tap_lost(struct broker *b, const char *detail)
{
	for (struct stream *s = b->streams, *next; s; s = next) {
		next = s->next;
		if (s->tap && s->tap->server >= 0)
			s->tap->end(s, BROKER_TAP, detail);
	}
}

const struct target *broker_tapped(const struct broker *b, uint64_t stream)
{
	const struct stream *s = find(b, stream);

	return s ? &s->req.target : NULL;
}
