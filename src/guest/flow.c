/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves bytes under flow control. The loop watches an outflow only while it may send: without
 * credit, or with a full link, its descriptor is removed from the loop (epoll always reports
 * EPOLLHUP), and the program blocks on its own pipe. An inflow queues the bytes that the pipe does
 * not take. The keeper gets credit back when bytes are in the pipe, so the queue never exceeds
 * WIRE_CREDIT_START (twice that after an adoption).
 */
#include "guest/flow.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>

enum {
	PIPE_LARGE = 1024 * 1024,
	CTRL_D = 4,
};

static void out_end(struct outflow *o)
{
	struct guest *g = o->job->guest;

	outflow_done(o);
	guest_check(g, link_eof(g->link, o->job->ch, o->stream));
	guest_hold(g, true);
	o->ended(o->job);
}

/* Returns how many bytes may be read now; 0 removes the flow from the loop until outflow_wake(). */
static size_t out_room(struct outflow *o)
{
	struct guest *g = o->job->guest;
	size_t n = MIN(link_credit(g->link, o->job->ch, o->stream), (size_t)CHUNK);

	if (n > 0 && link_ready(g->link))
		return n;
	if (n > 0)
		g->starved = true;
	loop_del_fd(&o->src);
	return 0;
}

static void on_readable(struct loop_fd *src, uint32_t events)
{
	struct outflow *o = src->arg;
	struct guest *g = o->job->guest;
	size_t room = out_room(o);
	ssize_t k, sent;

	if (room == 0)
		return;
	if (o->limited)
		room = MIN(room, o->left);
	k = room > 0 ? read(o->fd, g->chunk, room) : 0;
	if (k < 0 && (errno == EINTR || (errno == EAGAIN && !o->limited)))
		return;
	if (k <= 0) { /* a terminal without a slave returns EIO */
		out_end(o);
		return;
	}
	/* One frame, with credit and room: link_data() takes all of it. */
	sent = link_data(g->link, o->job->ch, o->stream, g->chunk, (size_t)k);
	guest_check(g, sent < 0 ? (int)sent : 0);
	if (o->limited)
		o->left -= (size_t)k;
	if (k == CHUNK && !o->large) {
		/* A program with much output. May fail harmlessly at the user's pipe limit. */
		o->large = true;
		(void)fcntl(o->fd, F_SETPIPE_SZ, PIPE_LARGE);
	}
}

void outflow_init(struct outflow *o, struct job *j, unsigned int stream, int fd,
		  void (*ended)(struct job *j))
{
	*o = (struct outflow){ .job = j, .stream = stream, .ended = ended, .fd = fd };
	o->src.cb = on_readable;
	o->src.arg = o;
}

void outflow_done(struct outflow *o)
{
	loop_del_fd(&o->src);
	o->fd = fd_close(o->fd);
}

void outflow_wake(struct outflow *o)
{
	struct guest *g = o->job->guest;

	if (o->fd < 0 || o->src.loop || out_room(o) == 0)
		return;
	/* Only memory can be short; the program then waits for the next credit. */
	if (loop_add_fd(g->loop, &o->src, o->fd, EPOLLIN) < 0)
		g->starved = true;
}

void outflow_pause(struct outflow *o)
{
	loop_del_fd(&o->src);
}

bool outflow_running(const struct outflow *o)
{
	return o->fd >= 0;
}

void outflow_limit(struct outflow *o)
{
	int n = 0;

	if (o->fd < 0)
		return;
	o->limited = true;
	o->left = ioctl(o->fd, FIONREAD, &n) == 0 && n > 0 ? (size_t)n : 0;
	if (o->left == 0)
		out_end(o);
}

static void in_close(struct inflow *i)
{
	loop_del_fd(&i->src);
	i->fd = fd_close(i->fd);
}

/* Returns credit for `n` bytes that left the queue, but only for bytes of the current channel. */
static void in_credit(struct inflow *i, size_t n)
{
	struct guest *g = i->job->guest;
	size_t old = MIN(n, i->old);

	i->old -= old;
	guest_check(g, link_consumed(g->link, i->job->ch, i->stream, n - old));
}

/* The reader is gone: drops queued bytes and returns their credit to the keeper. */
static void in_drop(struct inflow *i)
{
	in_close(i);
	in_credit(i, i->queue.len);
	buf_done(&i->queue);
	if (i->dropped)
		i->dropped(i->job);
}

/* All bytes up to EOF are in the pipe. */
static void in_finish(struct inflow *i)
{
	if (i->terminal) {
		static const char end = CTRL_D;

		(void)!write(i->fd, &end, 1);
	}
	in_close(i);
	if (i->drained)
		i->drained(i->job);
}

/* Returns the number of bytes written, or -errno if the reader is gone. */
static ssize_t in_write(struct inflow *i, const void *data, size_t n)
{
	ssize_t k = RETRY_EINTR(write(i->fd, data, n));

	if (k < 0)
		return errno == EAGAIN ? 0 : -errno;
	in_credit(i, (size_t)k);
	return k;
}

static void on_writable(struct loop_fd *src, uint32_t events)
{
	struct inflow *i = src->arg;
	ssize_t k = in_write(i, i->queue.data, i->queue.len);

	if (k < 0) {
		in_drop(i);
		return;
	}
	buf_consume(&i->queue, (size_t)k);
	if (i->queue.len > 0)
		return;
	loop_del_fd(src);
	if (i->eof)
		in_finish(i);
}

void inflow_init(struct inflow *i, struct job *j, unsigned int stream, int fd)
{
	*i = (struct inflow){ .job = j, .stream = stream, .fd = fd };
	i->queue.max = 2 * WIRE_CREDIT_START; /* an earlier channel's and this one's */
	i->src.cb = on_writable;
	i->src.arg = i;
}

void inflow_done(struct inflow *i)
{
	in_close(i);
	buf_done(&i->queue);
}

void inflow_data(struct inflow *i, const void *data, size_t n)
{
	struct guest *g = i->job->guest;
	ssize_t k = 0;

	if (i->fd < 0) {
		guest_check(g, link_consumed(g->link, i->job->ch, i->stream, n));
		return;
	}
	if (i->queue.len == 0)
		k = in_write(i, data, n);
	if (k == (ssize_t)n)
		return;
	if (k >= 0 && buf_put(&i->queue, (const char *)data + k, n - (size_t)k) == 0 &&
	    (i->src.loop || loop_add_fd(g->loop, &i->src, i->fd, EPOLLOUT) == 0))
		return;
	/* The reader is gone or memory is short: then the program's input ends. */
	if (k < 0 || i->queue.err) {
		size_t lost = n - (k > 0 ? (size_t)k : 0);

		guest_check(g, link_consumed(g->link, i->job->ch, i->stream, lost));
	}
	in_drop(i);
}

void inflow_eof(struct inflow *i)
{
	i->eof = true;
	if (i->fd >= 0 && i->queue.len == 0)
		in_finish(i);
}

void inflow_orphan(struct inflow *i)
{
	i->old = i->queue.len;
}
