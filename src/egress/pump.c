/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each direction holds bytes that it has read and not yet written in one of two places: a buffer
 * (first bytes, and the rest of a small read) or a pipe borrowed from the pool. While it holds
 * bytes it reads no others, so a receiver that does not read stops its sender, and an idle stream
 * holds neither buffer nor pipe.
 *
 * A small read goes through memory: one read(2), one write(2). A read that fills the chunk means
 * that there is more, and the following bytes are spliced from socket to pipe to socket without a
 * copy here. The pipe is empty before each splice into it, so EAGAIN can only come from the socket.
 *
 * End of file is passed on as a shutdown after all bytes before it were written. A socket closed in
 * both directions leaves the loop: epoll would report EPOLLHUP again and again.
 */
#include "egress/pump.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"

/* ---- pipes ---- */

void pump_pool_done(struct pump_pool *pool)
{
	while (pool->n > 0) {
		pool->n--;
		(void)fd_close(pool->pipes[pool->n][0]);
		(void)fd_close(pool->pipes[pool->n][1]);
	}
}

static bool borrow_pipe(struct pump_pool *pool, struct pump_dir *d)
{
	if (d->pipe[0] >= 0)
		return true;
	if (pool->no_pipes)
		return false;
	if (pool->n > 0) {
		pool->n--;
		d->pipe[0] = pool->pipes[pool->n][0];
		d->pipe[1] = pool->pipes[pool->n][1];
	} else {
		/* Out of descriptors: go through memory. */
		if (fd_pipe(O_NONBLOCK, &d->pipe[0], &d->pipe[1]) < 0) {
			d->pipe[0] = d->pipe[1] = -EBADF;
			return false;
		}
		(void)fcntl(d->pipe[1], F_SETPIPE_SZ, PUMP_PIPE);
	}
	pool->lent++;
	return true;
}

/* A pipe that still holds bytes is closed, not reused. */
static void return_pipe(struct pump_pool *pool, struct pump_dir *d)
{
	if (d->pipe[0] < 0)
		return;
	pool->lent--;
	if (d->piped == 0 && pool->n < PUMP_POOL_MAX) {
		pool->pipes[pool->n][0] = d->pipe[0];
		pool->pipes[pool->n][1] = d->pipe[1];
		pool->n++;
	} else {
		(void)fd_close(d->pipe[0]);
		(void)fd_close(d->pipe[1]);
	}
	d->pipe[0] = d->pipe[1] = -EBADF;
}

/* ---- one direction ---- */

static bool filtered(const struct pump *p, unsigned int from)
{
	return from == PUMP_CLIENT && p->filter;
}

static bool connected(const struct pump *p)
{
	return p->side[PUMP_SERVER].fd >= 0;
}

static bool holds(const struct pump_dir *d)
{
	return d->wait.len > 0 || d->piped > 0;
}

static void handed(struct pump *p, struct pump_dir *d, size_t n)
{
	d->bytes += n;
	p->last = clock_mono();
}

/* Writes held bytes: 0 when none is left, else -errno (-EAGAIN: the receiver is full). */
static int drain(struct pump *p, unsigned int from)
{
	struct pump_dir *d = &p->dir[from];
	int to = p->side[!from].fd;

	while (holds(d)) {
		ssize_t n;

		if (d->piped > 0)
			n = splice(d->pipe[0], NULL, to, NULL, d->piped,
				   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
		else
			n = send(to, d->wait.data, d->wait.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		handed(p, d, (size_t)n);
		if (d->piped > 0)
			d->piped -= (size_t)n;
		else
			buf_consume(&d->wait, (size_t)n);
	}
	buf_done(&d->wait);
	return 0;
}

/* How many bytes may be read now; -EDQUOT if the budget is spent and bytes are waiting. */
static ssize_t may_take(const struct pump *p, unsigned int from, size_t n)
{
	uint64_t left = *p->dir[from].budget;
	ssize_t r;
	char c;

	if (left > 0)
		return (ssize_t)MIN(left, (uint64_t)n);
	r = RETRY_EINTR(recv(p->side[from].fd, &c, 1, MSG_PEEK));
	if (r < 0)
		return -errno;
	return r > 0 ? -EDQUOT : 0;
}

/* Collects first bytes for the filter. Returns the number read, 0 at end of file, or -errno. */
static ssize_t take_first(struct pump *p, size_t n)
{
	struct pump_dir *d = &p->dir[PUMP_CLIENT];
	char *room;
	ssize_t k;

	n = MIN(n, p->filter_max - MIN(d->wait.len, p->filter_max));
	room = n > 0 ? buf_reserve(&d->wait, n) : NULL;
	if (n > 0 && !room)
		return -ENOMEM;
	k = n > 0 ? read(p->side[PUMP_CLIENT].fd, room, n) : 0;
	if (k > 0)
		buf_commit(&d->wait, (size_t)k);
	return k < 0 ? -errno : k;
}

static ssize_t take_small(struct pump *p, unsigned int from, size_t n)
{
	struct pump_dir *d = &p->dir[from];
	ssize_t k = read(p->side[from].fd, p->pool->scratch, MIN(n, (size_t)PUMP_CHUNK)), sent = 0;

	if (k <= 0)
		return k < 0 ? -errno : 0;
	d->bulk = k == PUMP_CHUNK;
	sent = send(p->side[!from].fd, p->pool->scratch, (size_t)k, MSG_NOSIGNAL);
	if (sent > 0)
		handed(p, d, (size_t)sent);
	/* drain() meets the error again. */
	if (sent < k &&
	    buf_put(&d->wait, p->pool->scratch + MAX(sent, 0), (size_t)(k - MAX(sent, 0))) < 0)
		return -ENOMEM;
	return k;
}

static ssize_t take_bulk(struct pump *p, unsigned int from, size_t n)
{
	struct pump_dir *d = &p->dir[from];
	ssize_t k = splice(p->side[from].fd, NULL, d->pipe[1], NULL, MIN(n, (size_t)PUMP_PIPE),
			   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

	if (k > 0)
		d->piped = (size_t)k;
	d->bulk = k >= PUMP_CHUNK;
	return k < 0 ? -errno : k;
}

/* Reads some bytes and returns how many, 0 at end of file, or -errno. */
static ssize_t take(struct pump *p, unsigned int from)
{
	struct pump_dir *d = &p->dir[from];
	ssize_t n = may_take(p, from, PUMP_PIPE);

	if (n <= 0)
		return n;
	if (filtered(p, from))
		n = take_first(p, (size_t)n);
	else if (d->bulk && borrow_pipe(p->pool, d))
		n = take_bulk(p, from, (size_t)n);
	else
		n = take_small(p, from, (size_t)n);
	if (n > 0)
		*d->budget -= (uint64_t)n;
	return n == -EINTR ? -EAGAIN : n;
}

/* Calls the filter: 0, or -EACCES. */
static int ask_filter(struct pump *p)
{
	struct pump_dir *d = &p->dir[PUMP_CLIENT];
	int r = p->filter(p, &d->wait, d->eof);

	if (r > 0)
		p->filter = NULL;
	return r < 0 ? -EACCES : 0;
}

static int pass_eof(struct pump *p, unsigned int from)
{
	struct pump_dir *d = &p->dir[from];

	if (!d->eof || d->shut || holds(d) || filtered(p, from) || !connected(p))
		return 0;
	d->shut = true;
	/* ENOTCONN: the other side was reset; its own event reports that. */
	if (shutdown(p->side[!from].fd, SHUT_WR) < 0 && errno != ENOTCONN)
		return -errno;
	return 0;
}

/* May this direction read now? */
static bool takes(const struct pump *p, unsigned int from)
{
	const struct pump_dir *d = &p->dir[from];

	if (d->eof || d->shut)
		return false;
	return filtered(p, from) || (connected(p) && !holds(d));
}

/* 0 to wait for the next event, or -errno. */
static int step(struct pump *p, unsigned int from, bool *ret_more)
{
	ssize_t n;
	int r;

	*ret_more = false;
	if (!filtered(p, from) && connected(p)) {
		r = drain(p, from);
		if (r < 0)
			return r == -EAGAIN ? 0 : r;
	}
	if (!takes(p, from))
		return pass_eof(p, from);
	n = take(p, from);
	if (n < 0)
		return n == -EAGAIN ? 0 : (int)n;
	p->dir[from].eof = n == 0;
	p->last = clock_mono();
	if (filtered(p, from)) {
		r = ask_filter(p);
		if (r < 0)
			return r;
		*ret_more = !p->filter;
		return *ret_more ? 0 : pass_eof(p, from);
	}
	/* Bulk data, or bytes left to write: continue at once, without waiting for an event. */
	*ret_more = p->dir[from].bulk || holds(&p->dir[from]) || n == 0;
	return 0;
}

static int move(struct pump *p, unsigned int from)
{
	uint64_t limit = p->dir[from].bytes + PUMP_TURN;
	bool more = true;
	int r = 0;

	while (r == 0 && more && p->dir[from].bytes < limit)
		r = step(p, from, &more);
	if (!holds(&p->dir[from]))
		return_pipe(p->pool, &p->dir[from]);
	return r;
}

/* ---- both directions ---- */

bool pump_passed(const struct pump *p)
{
	return !p->filter;
}

static uint32_t wanted(const struct pump *p, unsigned int side)
{
	const struct pump_dir *into = &p->dir[!side];
	bool out = holds(into) && !filtered(p, !side) && connected(p);

	return (takes(p, side) ? EPOLLIN : 0) | (out ? EPOLLOUT : 0);
}

static int watch(struct pump *p, unsigned int side)
{
	struct loop_fd *s = &p->side[side];
	uint32_t events = wanted(p, side);

	if (s->fd < 0)
		return 0;
	if (p->dir[side].eof && p->dir[!side].shut) {
		loop_del_fd(s);
		return 0;
	}
	if (!s->loop) /* on_socket() removed it */
		return events == 0 ? 0 : loop_add_fd(p->loop, s, s->fd, events);
	return events == s->events ? 0 : loop_mod_fd(s, events);
}

static enum pump_end why(unsigned int from, int r)
{
	switch (r) {
	case -EDQUOT:
		return from == PUMP_CLIENT ? PUMP_SPENT_OUT : PUMP_SPENT_IN;
	case -EACCES:
		return PUMP_REFUSED;
	case -ENOMEM:
	case -ENOSPC:
		return PUMP_FAULT;
	case -EPIPE:
		/* The receiver has gone. */
		return from == PUMP_CLIENT ? PUMP_RESET_SERVER : PUMP_RESET_CLIENT;
	default:
		return from == PUMP_CLIENT ? PUMP_RESET_CLIENT : PUMP_RESET_SERVER;
	}
}

static void finish(struct pump *p, enum pump_end end)
{
	pump_stop(p, end == PUMP_ENDED);
	p->end(p, end);
}

/* Moves bytes in the directions of the mask. May free the pump, so callbacks call it last. */
static void run(struct pump *p, unsigned int mask)
{
	for (unsigned int from = 0; from < 2; from++) {
		int r = mask >> from & 1 ? move(p, from) : 0;

		if (r < 0)
			return finish(p, why(from, r));
	}
	if (p->dir[0].shut && p->dir[1].shut)
		return finish(p, PUMP_ENDED);
	if (watch(p, PUMP_CLIENT) < 0 || watch(p, PUMP_SERVER) < 0)
		finish(p, PUMP_FAULT);
}

static void on_socket(struct loop_fd *src, uint32_t events)
{
	struct pump *p = src->arg;
	unsigned int side = src == &p->side[PUMP_SERVER];

	if (events & EPOLLERR)
		return finish(p, side == PUMP_CLIENT ? PUMP_RESET_CLIENT : PUMP_RESET_SERVER);
	/* Closed in both directions while its last bytes cannot be read yet: epoll would report it
	 * again and again. */
	if (events == EPOLLHUP)
		return loop_del_fd(src);
	run(p, (events & (EPOLLIN | EPOLLHUP) ? 1U << side : 0) |
		       (events & EPOLLOUT ? 1U << !side : 0));
}

static int set_timer(struct pump *p)
{
	return loop_set_timer(p->loop, &p->timer, MIN(p->last + p->idle, p->until));
}

static void on_timer(struct loop_timer *src)
{
	struct pump *p = src->arg;
	uint64_t now = clock_mono();

	if (now >= p->until)
		finish(p, PUMP_LIFE);
	else if (now >= p->last + p->idle)
		finish(p, PUMP_IDLE);
	else if (set_timer(p) < 0)
		finish(p, PUMP_FAULT);
}

int pump_start(struct pump *p, struct loop *l, struct pump_pool *pool, int client, uint64_t idle,
	       uint64_t life)
{
	int r;

	p->loop = l;
	p->pool = pool;
	p->last = clock_mono();
	p->idle = idle;
	p->until = p->last + life;
	for (unsigned int i = 0; i < 2; i++) {
		p->dir[i].wait.max = MAX(p->filter_max, (size_t)PUMP_CHUNK);
		p->dir[i].pipe[0] = p->dir[i].pipe[1] = -EBADF;
		p->side[i].cb = on_socket;
		p->side[i].arg = p;
		p->side[i].fd = -EBADF;
	}
	p->timer.cb = on_timer;
	p->timer.arg = p;
	r = loop_add_fd(l, &p->side[PUMP_CLIENT], client, p->filter ? EPOLLIN : 0);
	if (r == 0)
		r = set_timer(p);
	if (r < 0) {
		loop_del_fd(&p->side[PUMP_CLIENT]);
		p->side[PUMP_CLIENT].fd = -EBADF;
	}
	return r;
}

int pump_connect(struct pump *p, int server)
{
	int r = loop_add_fd(p->loop, &p->side[PUMP_SERVER], server, EPOLLIN);

	if (r < 0) {
		p->side[PUMP_SERVER].fd = -EBADF;
		return r;
	}
	p->last = clock_mono();
	r = set_timer(p);
	/* The next event reports an error again. */
	if (pump_passed(p))
		(void)drain(p, PUMP_CLIENT);
	if (r == 0)
		r = watch(p, PUMP_CLIENT);
	if (r == 0)
		r = watch(p, PUMP_SERVER);
	if (r < 0) {
		loop_del_fd(&p->side[PUMP_SERVER]);
		p->side[PUMP_SERVER].fd = -EBADF;
	}
	return r;
}

static void close_side(struct pump *p, unsigned int side, bool gently)
{
	struct linger reset = { .l_onoff = 1, .l_linger = 0 };
	int fd = p->side[side].fd;

	if (fd < 0)
		return;
	loop_del_fd(&p->side[side]);
	if (!gently)
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	p->side[side].fd = fd_close(fd);
}

void pump_stop(struct pump *p, bool gently)
{
	loop_del_timer(&p->timer);
	for (unsigned int i = 0; i < 2; i++) {
		struct pump_dir *d = &p->dir[i];

		*d->budget += d->wait.len + d->piped;
		buf_done(&d->wait);
		return_pipe(p->pool, d);
		d->piped = 0;
		close_side(p, i, gently);
	}
}
