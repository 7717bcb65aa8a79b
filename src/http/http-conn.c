/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a connection. The loop calls conn_run() for an event, the deadline or a kick. It
 * makes one small step after another until none is left, then sets what to wait for. Only these
 * steps call the handler. Functions that the handler calls change the state, write bytes and kick,
 * so steps never nest, and a connection is freed in one place only, at the end of conn_run().
 *
 * While a request is answered, only its body is read, and only if it is wanted: further requests
 * stay in the kernel's buffer. A client that closes its end still shows as EPOLLRDHUP, and counts
 * as gone, as in nginx: a client that cancels does nothing else, and a client that shuts down its
 * half and waits for the response looks the same. A response that is sent at once, before the loop
 * continues, still reaches it.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/http-inner.h"

/* ---- list of idle connections ---- */

static void idle_leave(struct conn *c)
{
	struct http_server *s = c->server;

	if (!c->idle)
		return;
	*(c->older ? &c->older->newer : &s->idle_first) = c->newer;
	*(c->newer ? &c->newer->older : &s->idle_last) = c->older;
	c->older = c->newer = NULL;
	c->idle = false;
}

static void idle_enter(struct conn *c)
{
	struct http_server *s = c->server;

	c->older = s->idle_last;
	*(s->idle_last ? &s->idle_last->newer : &s->idle_first) = c;
	s->idle_last = c;
	c->idle = true;
}

/* ---- end of a connection ---- */

void http_conn_close(struct conn *c)
{
	http_io_close(c);
	c->phase = CONN_DEAD;
}

static void conn_free(struct conn *c)
{
	struct http_server *s = c->server;

	assert(!c->held);
	idle_leave(c);
	http_io_close(c);
	loop_del_timer(&c->timer);
	*(c->prev ? &c->prev->next : &s->conns) = c->next;
	if (c->next)
		c->next->prev = c->prev;
	s->n_conns--;
	http_head_done(&c->head);
	buf_done(&c->in);
	buf_done(&c->out);
	buf_done(&c->body);
	buf_done(&c->fields);
	free(c);
}

/* The client is lost, and with it a response that is not complete. */
static void lose(struct conn *c)
{
	bool held = c->held;

	c->held = false;
	http_conn_close(c);
	if (held)
		c->server->config.gone(&c->x, c->server->config.arg);
}

void http_conn_end(struct conn *c)
{
	lose(c);
	conn_free(c);
}

void http_conn_kick(struct conn *c)
{
	int r = loop_set_timer(c->server->config.loop, &c->timer, 0);

	assert(r == 0); /* it is armed already, and only moves */
}

/* ---- heads ---- */

static void enter(struct conn *c, enum conn_phase phase)
{
	c->phase = phase;
	c->began = clock_mono();
}

/* Answers instead of the handler, and ends the connection. */
static void refuse(struct conn *c, const struct http_refusal *why)
{
	enter(c, CONN_EXCHANGE);
	http_answer_reset(c);
	http_answer_refusal(c, why);
}

static void next_request(struct conn *c)
{
	http_head_done(&c->head);
	http_body_reset(c);
	http_answer_reset(c);
	c->scan = (struct http_scan){ 0 };
	enter(c, CONN_HEAD);
}

static void hand_over(struct conn *c)
{
	static const struct http_refusal busy = { 503, "too many connections, try again later" };

	c->x.method = c->head.method;
	c->x.target = c->head.target;
	c->x.path = c->head.path;
	c->x.query = c->head.query;
	c->x.host = c->head.host;
	c->x.length = c->head.length;
	c->x.cookie = NULL;
	if (c->surplus) {
		refuse(c, &busy);
		return;
	}
	enter(c, CONN_EXCHANGE);
	c->held = true;
	c->server->config.handle(&c->x, c->server->config.arg);
}

static bool head_step(struct conn *c)
{
	struct http_refusal why = { 503, "no memory for the request" };
	int r;

	if (c->in.len == 0 || c->scan.pos == c->in.len) {
		if (c->eof)
			http_conn_close(c);
		return false;
	}
	if (c->scan.pos == 0)
		c->began = clock_mono();
	r = http_head_scan(&c->scan, c->in.data, c->in.len, &why);
	if (r == 0)
		return true;
	if (r == 1)
		r = http_head_parse(c->in.data, c->scan.pos, &c->head, &why);
	if (r < 0) {
		refuse(c, &why);
		return true;
	}
	buf_consume(&c->in, c->scan.pos);
	if (c->in.len == 0)
		buf_done(&c->in);
	http_body_begin(c);
	hand_over(c);
	return true;
}

/* ---- exchanges ---- */

/* Ends the exchange after an error of the client. */
static bool fault_step(struct conn *c)
{
	struct http_refusal why = c->fault;

	c->fault.status = 0;
	if (c->held && c->answer == ANSWER_NONE) {
		http_answer_refusal(c, &why);
		c->server->config.gone(&c->x, c->server->config.arg);
	} else if (c->held) {
		lose(c);
	}
	c->keep = false;
	return true;
}

static bool room_step(struct conn *c, void (*room)(struct exchange *x))
{
	if (!c->full || http_io_waiting(c) > HTTP_SERVER_AHEAD / 4)
		return false;
	c->full = false;
	if (room)
		room(&c->x);
	return true;
}

static bool drop_input(struct conn *c)
{
	bool some = c->in.len > 0;

	c->dropped += c->in.len;
	buf_done(&c->in);
	return some;
}

static bool drop_more(const struct conn *c)
{
	return !c->eof && c->dropped <= HTTP_LINGER_MAX;
}

/* After the handler has answered: drops the rest of the body, sends the rest of the response, and
 * decides how the connection continues. */
static bool answered_step(struct conn *c)
{
	if (c->keep && !c->body_done) {
		c->keep = !c->eof && c->dropped <= HTTP_SERVER_DRAIN;
		return http_body_step(c) || !c->keep;
	}
	if (!c->keep && drop_input(c))
		return true;
	if (http_io_waiting(c) > 0)
		return false;
	if (c->keep) {
		next_request(c);
		return true;
	}
	http_io_fin(c);
	enter(c, CONN_LINGER);
	return true;
}

static bool exchange_step(struct conn *c)
{
	if (c->fault.status > 0)
		return fault_step(c);
	if (!c->held)
		return answered_step(c);
	if (room_step(c, c->room) || http_body_step(c))
		return true;
	if (c->eof && http_body_wanted(c)) /* in the middle of the body */
		lose(c);
	return false;
}

static bool linger_step(struct conn *c)
{
	if (drop_input(c))
		return true;
	if (!drop_more(c))
		http_conn_close(c);
	return false;
}

static bool tunnel_reads(const struct conn *c)
{
	/* After a hang-up a pause would never end; few bytes are left to read. */
	return !c->paused || c->hup;
}

static bool tunnel_step(struct conn *c)
{
	if (c->in.len > 0 && tunnel_reads(c)) {
		_cleanup_buf_ struct buf in = c->in;

		c->in = (struct buf)BUF_INIT(in.max);
		c->tunnel.data(&c->x, in.data, in.len);
		return true;
	}
	if (c->eof && !c->eof_told && c->in.len == 0) {
		c->eof_told = true;
		c->tunnel.eof(&c->x);
		return true;
	}
	if (room_step(c, c->tunnel.room))
		return true;
	if (c->tunnel_eof && http_io_waiting(c) == 0)
		http_io_fin(c);
	if (c->eof_told && c->fin_sent)
		lose(c);
	return false;
}

static bool handshake_step(struct conn *c)
{
	int r = http_io_handshake(c);

	if (r < 0)
		http_conn_close(c);
	else if (r == 1)
		enter(c, CONN_HEAD);
	return r == 1;
}

/* ---- dispatch ---- */

static bool step(struct conn *c)
{
	if (c->broken) {
		lose(c);
		return false;
	}
	switch (c->phase) {
	case CONN_HANDSHAKE:
		return handshake_step(c);
	case CONN_HEAD:
		return head_step(c);
	case CONN_EXCHANGE:
		return exchange_step(c);
	case CONN_TUNNEL:
		return tunnel_step(c);
	case CONN_LINGER:
		return linger_step(c);
	case CONN_DEAD:
		break;
	}
	return false;
}

static bool wants_input(const struct conn *c)
{
	if (c->eof)
		return false;
	switch (c->phase) {
	case CONN_HANDSHAKE:
	case CONN_HEAD:
		return true;
	case CONN_EXCHANGE:
		if (c->held || (c->keep && !c->body_done))
			return http_body_wanted(c) && c->in.len == 0;
		return !c->keep && drop_more(c);
	case CONN_TUNNEL:
		return tunnel_reads(c) && c->in.len == 0;
	case CONN_LINGER:
		return drop_more(c);
	case CONN_DEAD:
		break;
	}
	return false;
}

static bool read_more(struct conn *c, unsigned int *reads)
{
	if (c->phase == CONN_HANDSHAKE || !wants_input(c) || *reads >= HTTP_READS || !c->readable)
		return false;
	++*reads;
	return http_io_fill(c, c->phase == CONN_HEAD ? HTTP_READ_HEAD : HTTP_READ_BODY);
}

/* Uses epoll's report to notice that the client has gone while nothing is read. */
static void look_for_client(struct conn *c)
{
	bool waits = c->phase == CONN_EXCHANGE || c->phase == CONN_TUNNEL;

	if (waits && !wants_input(c) &&
	    (c->hup || (c->rdhup && c->held && c->phase == CONN_EXCHANGE)))
		lose(c);
}

static uint64_t after(uint64_t when, uint64_t ms)
{
	return when + ms * NSEC_PER_MSEC;
}

/* A collected body is small, and must arrive at 1000 bytes per second or more. */
static uint64_t body_deadline(const struct conn *c)
{
	uint64_t body_ms = c->server->config.body_ms, when = after(c->read_at, body_ms);

	if (c->use == BODY_COLLECT)
		when = MIN(when, after(c->asked_at, body_ms + c->body.len));
	return when;
}

static uint64_t deadline(const struct conn *c)
{
	const struct http_config *f = &c->server->config;

	if (http_io_waiting(c) > 0)
		return after(c->sent_at, f->body_ms);
	switch (c->phase) {
	case CONN_HANDSHAKE:
		return after(c->began, f->head_ms);
	case CONN_HEAD:
		return after(c->began, c->in.len > 0 ? f->head_ms : f->idle_ms);
	case CONN_EXCHANGE:
		if (c->held)
			return http_body_wanted(c) ? body_deadline(c) : UINT64_MAX;
		return after(c->began, f->head_ms);
	case CONN_LINGER:
		return after(c->began, MIN((uint64_t)HTTP_LINGER_MS, f->head_ms));
	case CONN_TUNNEL:
	case CONN_DEAD:
		break;
	}
	return UINT64_MAX;
}

static void expire(struct conn *c)
{
	static const struct http_refusal slow = { 408, "the request came too slowly" };

	if (http_io_waiting(c) > 0)
		c->broken = true;
	else if (c->phase == CONN_HEAD && c->in.len > 0)
		refuse(c, &slow);
	else if (c->phase == CONN_EXCHANGE && c->held)
		c->fault = slow;
	else
		lose(c);
}

static uint32_t events_of(const struct conn *c)
{
	uint32_t events = 0;

	if (wants_input(c))
		events |= EPOLLIN;
	if (http_io_waiting(c) > 0 || c->tls_wants_out)
		events |= EPOLLOUT;
	if (c->phase == CONN_EXCHANGE && c->held)
		events |= EPOLLRDHUP;
	return events;
}

/* Sets what to wait for; if that fails, the connection is treated as broken. */
static void wait_for(struct conn *c)
{
	uint32_t events = events_of(c);

	if (events != c->src.events && loop_mod_fd(&c->src, events) < 0)
		c->broken = true;
	/* A partial head counts as idle, so that heads that never end cannot lock out other
	 * clients. */
	if (c->phase == CONN_HEAD || c->phase == CONN_HANDSHAKE)
		idle_enter(c);
	if (c->broken || (wants_input(c) && http_io_pending(c)))
		http_conn_kick(c);
	else
		(void)loop_set_timer(c->server->config.loop, &c->timer, deadline(c));
}

static void work(struct conn *c)
{
	unsigned int reads = 0;

	idle_leave(c);
	while (step(c) || read_more(c, &reads))
		;
}

static void conn_run(struct conn *c)
{
	work(c);
	look_for_client(c);
	if (c->phase == CONN_DEAD)
		conn_free(c);
	else
		wait_for(c);
}

static void on_fd(struct loop_fd *src, uint32_t events)
{
	struct conn *c = src->arg;

	if (events & (EPOLLHUP | EPOLLERR))
		c->hup = true;
	if (events & EPOLLRDHUP)
		c->rdhup = true;
	if ((events & ~(uint32_t)EPOLLOUT) || c->ssl)
		c->readable = true;
	if (c->phase != CONN_HANDSHAKE)
		http_io_flush(c);
	conn_run(c);
}

static bool is_due(const struct conn *c)
{
	return c->phase != CONN_DEAD && clock_mono() >= deadline(c);
}

static void on_timer(struct loop_timer *src)
{
	struct conn *c = src->arg;

	/* Rearm first, into the slot that was just freed, so that it cannot fail. */
	(void)loop_set_timer(c->server->config.loop, src, UINT64_MAX);
	/* If we were not scheduled for a while, there may be input to read or room to write. */
	if (is_due(c)) {
		c->readable = true;
		if (c->phase != CONN_HANDSHAKE)
			http_io_flush(c);
		work(c);
	}
	if (is_due(c))
		expire(c);
	conn_run(c);
}

/* ---- start of a connection ---- */

static int know_peer(struct conn *c, const struct http_listener *l)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);
	int on = 1;

	c->x.listener = l->number;
	c->x.local = l->local;
	c->x.tls = l->tls != NULL;
	if (!l->local)
		return setsockopt(c->src.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ? -errno
											    : 0;
	if (getsockopt(c->src.fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
		return -errno;
	c->x.uid = cred.uid;
	return 0;
}

static void enlist(struct conn *c)
{
	struct http_server *s = c->server;

	c->next = s->conns;
	if (s->conns)
		s->conns->prev = c;
	s->conns = c;
	s->n_conns++;
}

static int start(struct conn *c, struct http_listener *l)
{
	struct loop *loop = c->server->config.loop;
	int r = know_peer(c, l);

	if (r == 0 && l->tls)
		r = http_io_open_tls(c, l->tls);
	if (r == 0)
		r = loop_set_timer(loop, &c->timer, 0);
	if (r == 0)
		r = loop_add_fd(loop, &c->src, c->src.fd, EPOLLIN);
	return r;
}

int http_conn_new(struct http_listener *l, int fd, bool surplus)
{
	struct conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		(void)fd_close(fd);
		return -ENOMEM;
	}
	c->server = l->server;
	c->src = (struct loop_fd){ .cb = on_fd, .arg = c, .fd = fd };
	c->timer = (struct loop_timer){ .cb = on_timer, .arg = c };
	c->in.max = HTTP_SERVER_HEAD_MAX + HTTP_READ_BODY;
	c->out.max = HTTP_OUT_MAX;
	c->fields.max = HTTP_FIELDS_OUT_MAX;
	c->surplus = surplus;
	http_answer_reset(c);
	enter(c, l->tls ? CONN_HANDSHAKE : CONN_HEAD);
	enlist(c);
	r = start(c, l);
	if (r < 0)
		conn_free(c);
	else
		wait_for(c);
	return r;
}
