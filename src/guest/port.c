/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to a port on the sandbox's loopback. It opens no path and needs no user's
 * permissions, so there is no worker: PID 1 connects itself, without blocking, to 127.0.0.1 and, if
 * nothing listens there, to ::1. Then it is a tunnel.
 */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "guest/child.h"
#include "guest/tunnel.h"

enum {
	CONNECT_SEC = 10, /* a listener with a full queue never answers */
};

struct connection {
	struct tunnel tunnel;
	uint16_t port;
	sa_family_t family; /* tried now */
	struct loop_fd socket;
	struct loop_timer limit;
};

static struct connection *connection_of(struct job *j)
{
	return (struct connection *)j;
}

static void stop_connecting(struct connection *c)
{
	loop_del_timer(&c->limit);
	loop_del_fd(&c->socket);
	c->socket.fd = fd_close(c->socket.fd);
}

static void connection_closed(struct job *j)
{
	struct connection *c = connection_of(j);

	stop_connecting(c);
	tunnel_done(&c->tunnel);
}

static const struct job_ops ops = {
	.data = tunnel_data,
	.eof = tunnel_eof,
	.wake = tunnel_wake,
	.closed = connection_closed,
	.done = connection_closed,
};

/* ---- connecting ---- */

static void refuse(struct connection *c, int err)
{
	char text[WIRE_TEXT_MAX];
	bool not_listening = err == ECONNREFUSED;

	if (not_listening)
		(void)snprintf(text, sizeof(text), "nothing listens on port %u", c->port);
	else
		(void)snprintf(text, sizeof(text), "cannot connect to port %u: %s", c->port,
			       strerror(err));
	job_close(&c->tunnel.job, not_listening ? WIRE_NOT_FOUND : code_of_errno(err), text);
}

/* 0, or -errno if the address cannot be tried. */
static int try_address(struct connection *c, sa_family_t family)
{
	const struct sockaddr_in v4 = { .sin_family = AF_INET,
					.sin_port = htons(c->port),
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
					 .sin6_port = htons(c->port),
					 .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	_cleanup_close_ int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = family == AF_INET ? connect(fd, (const struct sockaddr *)&v4, sizeof(v4))
			      : connect(fd, (const struct sockaddr *)&v6, sizeof(v6));
	if (r < 0 && errno != EINPROGRESS)
		return -errno;
	c->family = family;
	r = loop_add_fd(c->tunnel.job.guest->loop, &c->socket, fd, EPOLLOUT);
	if (r == 0)
		(void)TAKE_FD(fd);
	return r;
}

/* The connection to c->family failed. The other family may not even exist. May free. */
static void try_next(struct connection *c, int err)
{
	int r;

	loop_del_fd(&c->socket);
	c->socket.fd = fd_close(c->socket.fd);
	if (c->family == AF_INET && err == ECONNREFUSED) {
		r = try_address(c, AF_INET6);
		if (r == 0)
			return;
		err = r == -EMFILE || r == -ENFILE || r == -ENOMEM ? -r : ECONNREFUSED;
	}
	refuse(c, err);
}

/*
 * If nothing listens, the kernel may have assigned the same port to our end and connected the
 * socket to itself: a simultaneous open, see RFC 9293, 3.5.
 */
static bool is_own(int fd)
{
	struct sockaddr_in6 ours = { 0 }, theirs = { 0 };
	socklen_t n = sizeof(ours), m = sizeof(theirs);

	/* Both families have the port at the same offset. */
	static_assert(offsetof(struct sockaddr_in, sin_port) ==
			      offsetof(struct sockaddr_in6, sin6_port),
		      "one structure for both");
	return getsockname(fd, (struct sockaddr *)&ours, &n) == 0 &&
	       getpeername(fd, (struct sockaddr *)&theirs, &m) == 0 &&
	       ours.sin6_port == theirs.sin6_port;
}

static void connected(struct connection *c)
{
	struct guest *g = c->tunnel.job.guest;
	int r;

	loop_del_timer(&c->limit);
	loop_del_fd(&c->socket);
	r = tunnel_begin(&c->tunnel, &c->socket.fd);
	if (r < 0) {
		refuse(c, -r);
		return;
	}
	guest_check(g, link_accept(g->link, c->tunnel.job.ch, NULL));
	outflow_wake(&c->tunnel.out);
}

static void on_connected(struct loop_fd *src, uint32_t events)
{
	struct connection *c = src->arg;
	socklen_t n = sizeof(int);
	int err = 0;

	if (getsockopt(src->fd, SOL_SOCKET, SO_ERROR, &err, &n) < 0)
		err = errno;
	if (err == 0 && is_own(src->fd))
		err = ECONNREFUSED;
	if (err == 0)
		connected(c);
	else
		try_next(c, err);
}

static void on_limit(struct loop_timer *t)
{
	refuse(t->arg, ETIMEDOUT);
}

void port_open(struct guest *g, uint32_t ch, const struct fields *f)
{
	struct connection *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		guest_refuse(g, ch, WIRE_TOO_MANY, "no memory");
		return;
	}
	job_add(g, &c->tunnel.job, &ops, 0, ch);
	c->port = (uint16_t)fields_number(f, TAG_PORT, 0);
	c->socket = (struct loop_fd){ .cb = on_connected, .arg = c, .fd = -EBADF };
	c->limit = (struct loop_timer){ .cb = on_limit, .arg = c };
	tunnel_init(&c->tunnel, false);
	r = loop_set_timer(g->loop, &c->limit, clock_mono() + CONNECT_SEC * NSEC_PER_SEC);
	if (r == 0)
		r = try_address(c, AF_INET);
	if (r < 0)
		refuse(c, -r);
}
