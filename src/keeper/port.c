/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes a link on its descriptor. */
#include "keeper/port.h"
#include "base/fd.h"

static ssize_t write_now(void *arg, const struct iovec pieces[static 2])
{
	const struct port *p = arg;
	ssize_t k;

	if (!p->src.loop)
		return -EAGAIN;
	k = writev(p->src.fd, pieces, 2);
	return k < 0 ? -errno : k;
}

int port_init(struct port *p, enum link_role role, const struct link_ops *ops, void *arg, int fd,
	      void (*cb)(struct loop_fd *src, uint32_t events))
{
	int r;

	p->src = (struct loop_fd){ .cb = cb, .arg = arg, .fd = fd };
	r = link_new(role, ops, arg, &p->link);
	if (r == 0)
		link_set_output(p->link, write_now, p);
	return r;
}

int port_watch(struct port *p, struct loop *loop)
{
	return loop_add_fd(loop, &p->src, p->src.fd, EPOLLIN);
}

void port_done(struct port *p)
{
	loop_del_fd(&p->src);
	p->src.fd = fd_close(p->src.fd);
	p->link = link_free(p->link);
}

int port_read(struct port *p, struct err *e)
{
	/* Shared by all ports: the link copies the bytes that it still needs after the call. */
	static char input[INPUT_MAX];
	ssize_t n = read(p->src.fd, input, sizeof(input));

	if (n > 0)
		return link_feed(p->link, input, (size_t)n, e);
	if (n == 0)
		return err_set(e, -EPIPE, "the connection has ended");
	return errno == EAGAIN || errno == EINTR ? 0 : err_set(e, -EPIPE, "cannot read");
}

int port_flush(struct port *p)
{
	return link_flush(p->link);
}

int port_want(struct port *p, bool input)
{
	uint32_t events = (input ? EPOLLIN : 0U) | (port_waiting(p) > 0 ? EPOLLOUT : 0U);

	return p->src.loop && p->src.events != events ? loop_mod_fd(&p->src, events) : 0;
}

size_t port_waiting(const struct port *p)
{
	size_t n;

	(void)link_pending(p->link, &n);
	return n;
}
