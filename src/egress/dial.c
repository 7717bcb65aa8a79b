/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/dial.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"

union sock {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static socklen_t sock_of(const struct addr *a, uint16_t port, union sock *s)
{
	*s = (union sock){ 0 };
	if (a->family == 4) {
		s->v4.sin_family = AF_INET;
		s->v4.sin_port = htons(port);
		memcpy(&s->v4.sin_addr, a->bytes, sizeof(s->v4.sin_addr));
		return sizeof(s->v4);
	}
	s->v6.sin6_family = AF_INET6;
	s->v6.sin6_port = htons(port);
	memcpy(&s->v6.sin6_addr, a->bytes, sizeof(s->v6.sin6_addr));
	return sizeof(s->v6);
}

/*
 * connect(2) chooses the source address. If it equals the destination, the destination is this
 * host, whatever address it has outside.
 */
static bool has_own_source(int fd, const struct addr *a)
{
	union sock s = { 0 };
	socklen_t n = sizeof(s);

	if (getsockname(fd, &s.any, &n) < 0)
		return true;
	if (a->family == 4)
		return memcmp(&s.v4.sin_addr, a->bytes, sizeof(s.v4.sin_addr)) == 0;
	return memcmp(&s.v6.sin6_addr, a->bytes, sizeof(s.v6.sin6_addr)) == 0;
}

/* Connecting a UDP socket chooses the source without sending a packet. */
static int check_not_here(const struct addr *a, const union sock *s, socklen_t n)
{
	_cleanup_close_ int fd = socket(s->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP);

	if (fd < 0 || connect(fd, &s->any, n) < 0)
		return -errno;
	return has_own_source(fd, a) ? -EXDEV : 0;
}

static int try_connect(const struct dial *d, const struct addr *a, int *ret_fd)
{
	_cleanup_close_ int fd = -EBADF;
	union sock s;
	socklen_t n = sock_of(a, d->port, &s);
	int one = 1, r = d->not_here ? check_not_here(a, &s, n) : 0;

	if (r < 0)
		return r;
	fd = socket(s.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, &s.any, n) < 0 && errno != EINPROGRESS && errno != EINTR)
		return -errno;
	/* Again: the host may have gained the address meanwhile. */
	if (d->not_here && has_own_source(fd, a))
		return -EXDEV;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static void drop(struct dial_attempt *a)
{
	if (!a->src.loop)
		return;
	loop_del_fd(&a->src);
	a->src.fd = fd_close(a->src.fd);
}

void dial_stop(struct dial *d)
{
	for (size_t i = 0; i < DIAL_AT_ONCE; i++)
		drop(&d->attempts[i]);
	loop_del_timer(&d->stagger);
	loop_del_timer(&d->timeout);
}

static size_t running(const struct dial *d)
{
	size_t n = 0;

	for (size_t i = 0; i < DIAL_AT_ONCE; i++)
		n += d->attempts[i].src.loop != NULL;
	return n;
}

static struct dial_attempt *free_attempt(struct dial *d)
{
	for (size_t i = 0; i < DIAL_AT_ONCE; i++)
		if (!d->attempts[i].src.loop)
			return &d->attempts[i];
	return NULL;
}

static void on_connect(struct loop_fd *src, uint32_t events);

/* Starts the next attempt that can be started. */
static void next_attempt(struct dial *d)
{
	struct dial_attempt *a = free_attempt(d);

	while (a && d->next < d->n) {
		_cleanup_close_ int fd = -EBADF;
		int r = try_connect(d, &d->addrs[d->next], &fd);

		a->addr = (uint8_t)d->next++;
		a->src.cb = on_connect;
		a->src.arg = d;
		if (r == 0)
			r = loop_add_fd(d->loop, &a->src, fd, EPOLLOUT);
		if (r == 0) {
			(void)TAKE_FD(fd);
			break;
		}
		d->last_err = r;
	}
	if (d->next < d->n)
		(void)loop_set_timer(d->loop, &d->stagger,
				     clock_mono() + DIAL_STAGGER_MS * NSEC_PER_MSEC);
}

static void fail(struct dial *d, int r)
{
	dial_stop(d);
	d->done(d, r, NULL);
}

static void on_stagger(struct loop_timer *src)
{
	struct dial *d = src->arg;

	next_attempt(d);
	if (running(d) == 0)
		fail(d, d->last_err);
}

static void on_timeout(struct loop_timer *src)
{
	fail(src->arg, -ETIMEDOUT);
}

static void on_connect(struct loop_fd *src, uint32_t events)
{
	struct dial *d = src->arg;
	struct dial_attempt *a = NULL;
	socklen_t n = sizeof(int);
	int error = 0, fd = src->fd;

	for (size_t i = 0; i < DIAL_AT_ONCE; i++)
		if (&d->attempts[i].src == src)
			a = &d->attempts[i];
	assert(a);
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
		error = errno;
	if (error == 0) {
		struct addr which = d->addrs[a->addr];

		loop_del_fd(src);
		dial_stop(d);
		return d->done(d, fd, &which);
	}
	d->last_err = -error;
	drop(a);
	next_attempt(d);
	if (running(d) == 0)
		fail(d, d->last_err);
}

/* Alternates IPv6 and IPv4, each in the given order. */
static void interleave(struct dial *d, const struct addr *v, size_t n)
{
	size_t at[2] = { 0, 0 };

	for (unsigned int v4 = 0; d->n < DIAL_ADDRS_MAX && (at[0] < n || at[1] < n); v4 = !v4) {
		while (at[v4] < n && (v[at[v4]].family == 4) != v4)
			at[v4]++;
		if (at[v4] < n)
			d->addrs[d->n++] = v[at[v4]++];
	}
}

int dial_start(struct dial *d, struct loop *l, const struct addr *v, size_t n, uint16_t port)
{
	int r;

	d->loop = l;
	d->port = port;
	d->n = d->next = 0;
	d->last_err = -EHOSTUNREACH;
	d->stagger.cb = on_stagger;
	d->timeout.cb = on_timeout;
	d->stagger.arg = d->timeout.arg = d;
	interleave(d, v, n);
	r = loop_set_timer(l, &d->timeout, clock_mono() + DIAL_TIMEOUT_MS * NSEC_PER_MSEC);
	if (r == 0)
		next_attempt(d);
	if (r == 0 && running(d) == 0)
		r = d->last_err;
	if (r < 0)
		dial_stop(d);
	return r;
}
