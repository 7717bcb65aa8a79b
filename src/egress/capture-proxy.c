/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients of the HTTP and SOCKS5 proxy. Their request is read with MSG_PEEK and only the request
 * itself is taken from the socket: the bytes behind it are for the destination and stay in the
 * socket.
 */
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "egress/capture-inner.h"

enum {
	PEEK_MAX = 2048
};

/* Removes the client from the loop; the descriptor stays open. */
static int release(struct head *h)
{
	int fd = h->src.fd;

	loop_del_fd(&h->src);
	loop_del_timer(&h->deadline);
	h->src.fd = -EBADF;
	h->capture->n_heads--;
	listener_full(&h->capture->listeners[CAPTURE_PROXY], false);
	return fd;
}

void head_close(struct head *h)
{
	(void)fd_close(release(h));
}

static void on_deadline(struct loop_timer *t)
{
	head_close(t->arg);
}

static enum capture_how how_of(const struct front *f)
{
	return f->kind == FRONT_SOCKS5 ? CAPTURE_BY_SOCKS5 : CAPTURE_BY_CONNECT;
}

/* Sends a short message to a waiting client. If even that does not fit, the client is not reading:
 * an error. */
static int say(int fd, const struct buf *b)
{
	ssize_t k;

	if (b->err)
		return b->err;
	k = b->len == 0 ? 0 : send(fd, b->data, b->len, MSG_DONTWAIT | MSG_NOSIGNAL);
	return k < 0 ? -errno : k < (ssize_t)b->len ? -EAGAIN : 0;
}

/* Reads from the client. 0, or -errno if the client has gone or must be dropped. */
static int hear(struct head *h)
{
	struct buf *out = &h->capture->out;
	uint8_t data[PEEK_MAX];
	ssize_t k = recv(h->src.fd, data, sizeof(data), MSG_PEEK | MSG_DONTWAIT);
	size_t used;

	if (k <= 0)
		return k < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -EPIPE;
	buf_reset(out);
	used = front_feed(&h->front, data, (size_t)k, out);
	if (recv(h->src.fd, data, used, MSG_DONTWAIT) != (ssize_t)used)
		return -EPIPE;
	return say(h->src.fd, out);
}

static void on_head(struct loop_fd *src, uint32_t events)
{
	struct head *h = src->arg;
	struct front *f = &h->front;
	struct capture *c = h->capture;

	if (hear(h) < 0)
		head_close(h);
	else if (f->state == FRONT_DONE && capture_target(c, &f->target) < 0)
		capture_refuse(release(h), how_of(f), FRONT_DENIED, "an address of the sandbox");
	else if (f->state == FRONT_DONE)
		c->ops->connect(release(h), &f->target, how_of(f), c->arg);
	else if (f->state == FRONT_BAD && f->reason)
		capture_refuse(release(h), how_of(f), f->result, f->reason);
	else if (f->state == FRONT_BAD)
		head_close(h);
}

void head_accepted(struct capture *c, int fd)
{
	struct head *h = CAPTURE_FREE(c->heads);

	h->src = (struct loop_fd){ .cb = on_head, .arg = h, .fd = -EBADF };
	h->deadline = (struct loop_timer){ .cb = on_deadline, .arg = h };
	h->front = (struct front){ 0 };
	if (capture_watch(c, fd, &h->src, &h->deadline) == 0)
		listener_full(&c->listeners[CAPTURE_PROXY], ++c->n_heads == HEADS_MAX);
}

int capture_reply(int fd, enum capture_how how, enum front_result result, const char *reason)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FRONT_REPLY_MAX);

	if (how == CAPTURE_DIRECT)
		return 0;
	front_put_reply(&b, how == CAPTURE_BY_SOCKS5 ? FRONT_SOCKS5 : FRONT_CONNECT, result,
			reason);
	return say(fd, &b);
}

void capture_refuse(int fd, enum capture_how how, enum front_result result, const char *reason)
{
	const struct linger reset = { .l_onoff = 1 };

	(void)capture_reply(fd, how, result, reason);
	if (how == CAPTURE_DIRECT)
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	(void)fd_close(fd);
}
