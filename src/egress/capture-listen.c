/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listeners. Each is watched while there is room for new connections, and accepts a few at a
 * time: the loop is level-triggered, so the rest follows in the next round, after other sources.
 */
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "egress/capture-inner.h"

void listener_full(struct listener *l, bool full)
{
	if (l->full == full)
		return;
	l->full = full;
	/* Fails only if the source is not in the loop, or the loop ends. */
	if (l->again.slot == 0)
		(void)loop_mod_fd(&l->src, full ? 0 : EPOLLIN);
}

int capture_watch(struct capture *c, int fd, struct loop_fd *src, struct loop_timer *deadline)
{
	int r = loop_add_fd(c->loop, src, fd, EPOLLIN);

	if (r == 0)
		r = loop_set_timer(c->loop, deadline, clock_mono() + CLIENT_MS * NSEC_PER_MSEC);
	if (r < 0) {
		loop_del_fd(src);
		src->fd = -EBADF;
		(void)fd_close(fd);
	}
	return r;
}

static void on_again(struct loop_timer *t)
{
	struct listener *l = t->arg;

	(void)loop_mod_fd(&l->src, l->full ? 0 : EPOLLIN);
}

/* Pauses, because the loop would report a waiting connection again at once. */
static void pause_listener(struct listener *l)
{
	uint64_t when = clock_mono() + PAUSE_MS * NSEC_PER_MSEC;

	if (loop_set_timer(l->capture->loop, &l->again, when) == 0)
		(void)loop_mod_fd(&l->src, 0);
}

void listener_accept(struct loop_fd *src, uint32_t events)
{
	struct listener *l = src->arg;

	for (size_t i = 0; i < ACCEPTS_MAX && !l->full; i++) {
		int fd = accept4(src->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0)
			l->accepted(l->capture, fd);
		else if (errno == EAGAIN)
			return;
		else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			 errno == ENOMEM) {
			pause_listener(l);
			return;
		}
	}
}

void listener_init(struct listener *l, struct capture *c)
{
	l->capture = c;
	l->src.fd = -EBADF;
	l->src.arg = l->again.arg = l;
	l->again.cb = on_again;
}

int capture_target(const struct capture *c, struct target *t)
{
	uint32_t addr;

	if (!t->is_addr)
		return 0;
	if (addr_classify(&t->addr) == ADDR_LOOPBACK)
		return -EACCES;
	if (t->addr.family != 4)
		return 0;
	memcpy(&addr, t->addr.bytes, sizeof(addr));
	addr = ntohl(addr);
	if (!pool_has(addr))
		return 0;
	t->is_addr = false;
	t->addr = (struct addr){ 0 };
	return pool_find(c->pool, addr, &t->name);
}
