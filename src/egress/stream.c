/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of an allowed stream: look up, check, dial, connect. Meanwhile the client's first bytes
 * are inspected; they wait in the pump until the check has passed and the server is connected. A
 * server that speaks first is heard as soon as it is connected. Every failure ends in stream_end(),
 * which undoes what was started, reports and frees the stream; callbacks call it last.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "egress/broker-inner.h"
#include "egress/check.h"

void stream_refuse(const struct request *r, int fd, enum broker_reason reason)
{
	const struct broker_conf *c = &r->broker->conf;
	struct linger reset = { .l_onoff = 1, .l_linger = 0 };

	if (r->proxy)
		c->ops->reply(c->arg, r->cookie, fd, false, reason);
	else
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	(void)fd_close(fd);
}

static void forget(struct stream *s)
{
	struct broker *b = s->req.broker;

	if (s->lookup)
		resolve_cancel(s->lookup);
	if (s->dial) {
		dial_stop(s->dial);
		free(s->dial);
	}
	if (s->upstream) {
		upstream_stop(s->upstream);
		free(s->upstream);
	}
	loop_del_timer(&s->first);
	*s->prev = s->next;
	if (s->next)
		s->next->prev = s->prev;
	budget_close(&b->budget);
	free(s->tap);
	free(s);
}

static int client_of(const struct stream *s)
{
	return s->tap ? s->tap->client : s->pump.side[PUMP_CLIENT].fd;
}

/* As stream_end(), for a stream whose sockets are closed. */
static void ended(struct stream *s, enum broker_reason reason, const char *detail)
{
	broker_report(&s->req, BROKER_END, reason, detail, s);
	forget(s);
}

void stream_end(struct stream *s, enum broker_reason reason, const char *detail)
{
	const struct broker_conf *c = &s->req.broker->conf;
	bool answer = s->req.proxy && !s->connected;

	if (answer)
		c->ops->reply(c->arg, s->req.cookie, client_of(s), false, reason);
	if (s->tap)
		tapped_stop(s, answer || s->tap->over);
	else
		pump_stop(&s->pump, answer);
	ended(s, reason, detail);
}

static void on_pump_end(struct pump *p, enum pump_end why)
{
	struct stream *s = p->arg;

	switch (why) {
	case PUMP_ENDED:
		return ended(s, BROKER_OK, NULL);
	case PUMP_RESET_CLIENT:
		return ended(s, BROKER_RESET_INSIDE, NULL);
	case PUMP_RESET_SERVER:
		return ended(s, BROKER_RESET_OUTSIDE, NULL);
	case PUMP_IDLE:
		return ended(s, BROKER_TIME, "idle");
	case PUMP_LIFE:
		return ended(s, BROKER_TIME, "open for too long");
	case PUMP_SPENT_OUT:
		return ended(s, BROKER_BUDGET, "bytes_out");
	case PUMP_SPENT_IN:
		return ended(s, BROKER_BUDGET, "bytes_in");
	case PUMP_REFUSED:
		return ended(s, BROKER_CONTENT, s->detail);
	case PUMP_FAULT:
		break;
	}
	ended(s, BROKER_FAULT, NULL);
}

/* ---- first bytes ---- */

static void on_first(struct loop_timer *src)
{
	stream_end(src->arg, BROKER_TIME, "first bytes");
}

/* Starts the timeout for the first bytes, once. */
static void await_first(struct stream *s)
{
	const struct broker_conf *c = &s->req.broker->conf;

	if (s->awaited)
		return;
	s->awaited = true;
	(void)loop_set_timer(c->loop, &s->first, clock_mono() + c->peek_ms * NSEC_PER_MSEC);
}

static enum peek_result look_at_first(struct stream *s, const struct buf *b, bool eof)
{
	const struct broker_conf *c = &s->req.broker->conf;

	if (s->req.proto == RULE_PROTO_TCP)
		return peek_around(c->ops->is_name_tapped, c->arg, &s->req.target, &s->http,
				   b->data, b->len, eof, s->detail);
	return peek(s->req.proto, &s->req.target, &s->http, b->data, b->len, eof, s->detail);
}

static int on_filter(struct pump *p, const struct buf *b, bool eof)
{
	struct stream *s = p->arg;

	switch (look_at_first(s, b, eof)) {
	case PEEK_PASS:
		loop_del_timer(&s->first);
		return 1;
	case PEEK_REFUSE:
		return -1;
	case PEEK_MORE:
		break;
	}
	await_first(s);
	return 0;
}

/* ---- look up, check, dial ---- */

/* Connects the client to `fd`. */
static void carry(struct stream *s, int fd)
{
	const struct broker_conf *c = &s->req.broker->conf;
	int r;

	s->connected = true;
	if (s->req.proxy)
		c->ops->reply(c->arg, s->req.cookie, client_of(s), true, BROKER_OK);
	if (s->tap)
		return tapped_connected(s, fd);
	/* With an unknown protocol, the client may wait for the server to speak first. */
	if (!pump_passed(&s->pump) && s->req.proto != RULE_PROTO_ANY &&
	    s->req.proto != RULE_PROTO_TCP)
		await_first(s);
	r = pump_connect(&s->pump, fd);
	if (r < 0) {
		(void)fd_close(fd);
		stream_end(s, BROKER_FAULT, NULL);
	}
}

static void on_upstream(struct upstream *u, int fd)
{
	struct stream *s = u->arg;
	char why[UPSTREAM_WHY_MAX];

	memcpy(why, u->why, sizeof(why));
	s->upstream = NULL;
	free(u);
	if (fd < 0)
		return stream_end(s, BROKER_DIAL, why);
	carry(s, fd);
}

static void ask_upstream(struct stream *s, int fd)
{
	struct broker *b = s->req.broker;
	int r = -ENOMEM;

	s->upstream = calloc(1, sizeof(*s->upstream));
	if (s->upstream) {
		s->upstream->done = on_upstream;
		s->upstream->arg = s;
		r = upstream_start(s->upstream, b->conf.loop, fd, &s->req.target);
	}
	if (r == 0)
		return;
	(void)fd_close(fd);
	stream_end(s, BROKER_FAULT, strerror(-r));
}

static void on_dialled(struct dial *d, int fd, const struct addr *a)
{
	struct stream *s = d->arg;

	s->dial = NULL;
	free(d);
	if (fd < 0)
		return stream_end(s, fd == -EXDEV ? BROKER_ADDRESS : BROKER_DIAL,
				  fd == -EXDEV ? "an address of this host" : strerror(-fd));
	s->addr = *a;
	if (s->req.broker->conf.upstream.port != 0)
		ask_upstream(s, fd);
	else
		carry(s, fd);
}

/* A proxy may be on this host, since the operator named it. */
static void dial(struct stream *s, const struct addr *v, size_t n)
{
	const struct target *via = &s->req.broker->conf.upstream;
	struct broker *b = s->req.broker;
	int r = -ENOMEM;

	s->dial = calloc(1, sizeof(*s->dial));
	if (s->dial) {
		s->dial->done = on_dialled;
		s->dial->arg = s;
		s->dial->not_here = via->port == 0 && !s->req.target.is_addr;
		r = dial_start(s->dial, b->conf.loop, v, n,
			       via->port != 0 ? via->port : s->req.target.port);
	}
	if (r == -EXDEV)
		return stream_end(s, BROKER_ADDRESS, "an address of this host");
	if (r < 0)
		return stream_end(s, r == -ENOMEM || r == -EMFILE ? BROKER_FAULT : BROKER_DIAL,
				  strerror(-r));
	s->addr = s->dial->addrs[0];
	s->dialled = true;
}

static void on_answer(void *arg, const struct answer *a)
{
	struct stream *s = arg;
	const struct broker *b = s->req.broker;
	const char *wrong = NULL;
	struct addr good[ARRAY_SIZE(a->v)];
	size_t n = 0;

	s->lookup = NULL;
	if (a->n == 0)
		return stream_end(s, BROKER_LOOKUP, a->why);
	/* The operator named the proxy, so the sandbox does not choose its address. */
	if (b->conf.upstream.port != 0)
		return dial(s, a->v, a->n);
	for (size_t i = 0; i < a->n; i++) {
		const char *why =
			check_resolved(b->rules, &a->v[i], s->req.target.port, s->req.private);

		if (!why)
			good[n++] = a->v[i];
		else if (!wrong)
			wrong = why;
	}
	if (n == 0)
		return stream_end(s, BROKER_ADDRESS, wrong);
	dial(s, good, n);
}

static void reach(struct stream *s)
{
	struct broker *b = s->req.broker;
	const struct target *t = b->conf.upstream.port != 0 ? &b->conf.upstream : &s->req.target;
	int r;

	if (t->is_addr)
		return dial(s, &t->addr, 1);
	r = resolve_start(b->resolver, &t->name, on_answer, s, &s->lookup);
	if (r < 0)
		stream_end(s, BROKER_FAULT, strerror(-r));
}

/* ---- start ---- */

/* Bytes that came with the request are the first of the stream. */
static enum broker_reason take_early(struct stream *s, const void *early, size_t n)
{
	struct pump_dir *d = &s->pump.dir[PUMP_CLIENT];
	int r;

	if (n == 0)
		return BROKER_OK;
	if (n > *d->budget)
		return BROKER_BUDGET;
	if (buf_put(&d->wait, early, n) < 0)
		return BROKER_FAULT;
	*d->budget -= n;
	r = s->pump.filter ? on_filter(&s->pump, &d->wait, false) : 0;
	if (r > 0)
		s->pump.filter = NULL;
	return r < 0 ? BROKER_CONTENT : BROKER_OK;
}

static void link_stream(struct broker *b, struct stream *s)
{
	s->next = b->streams;
	s->prev = &b->streams;
	if (s->next)
		s->next->prev = &s->next;
	b->streams = s;
}

static bool is_checked(const struct stream *s)
{
	return s->req.proto != RULE_PROTO_TCP || s->req.broker->conf.has_tap;
}

static int start_pump(struct stream *s, int fd)
{
	struct broker *b = s->req.broker;
	int one = 1;

	s->pump.filter = is_checked(s) ? on_filter : NULL;
	s->pump.filter_max = PEEK_MAX;
	s->pump.end = on_pump_end;
	s->pump.arg = s;
	s->pump.dir[PUMP_CLIENT].budget = &b->budget.out;
	s->pump.dir[PUMP_SERVER].budget = &b->budget.in;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return pump_start(&s->pump, b->conf.loop, &b->pool, fd, b->conf.idle_ms * NSEC_PER_MSEC,
			  b->conf.life_ms * NSEC_PER_MSEC);
}

static int begin(struct stream *s, int fd, const void *early, size_t n_early)
{
	const struct broker_conf *c = &s->req.broker->conf;

	if (c->ops->is_tapped && c->ops->is_tapped(c->arg, &s->req.target, s->req.proto))
		return tapped_new(s, fd, early, n_early, stream_end);
	return start_pump(s, fd);
}

void stream_start(const struct request *r, int fd, const void *early, size_t n_early)
{
	struct stream *s = calloc(1, sizeof(*s));
	enum broker_reason reason;

	if (s) {
		s->req = *r;
		s->first.cb = on_first;
		s->first.arg = s;
	}
	if (!s || begin(s, fd, early, n_early) < 0) {
		broker_report(r, BROKER_END, BROKER_FAULT, NULL, NULL);
		budget_close(&r->broker->budget);
		free(s);
		return stream_refuse(r, fd, BROKER_FAULT);
	}
	link_stream(r->broker, s);
	reason = s->tap ? BROKER_OK : take_early(s, early, n_early);
	if (reason != BROKER_OK)
		return stream_end(s, reason, reason == BROKER_BUDGET ? "bytes_out" : s->detail);
	reach(s);
}
