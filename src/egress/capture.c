/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The capture as a whole, and streams that came directly.
 *
 * A direct stream's socket has the address that the program connected to as its own address:
 * transparent sockets do this. An address of our range stands for a name; any other is the
 * destination itself.
 */
#include "egress/capture-inner.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static int address_of(int fd, struct target *ret)
{
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} a = { .any.sa_family = AF_UNSPEC };
	socklen_t n = sizeof(a);
	bool v4;

	if (getsockname(fd, &a.any, &n) < 0)
		return -errno;
	v4 = a.any.sa_family == AF_INET;
	if (!v4 && a.any.sa_family != AF_INET6)
		return -EAFNOSUPPORT;
	ret->is_addr = true;
	ret->port = ntohs(v4 ? a.in.sin_port : a.in6.sin6_port);
	ret->addr = (struct addr){ .family = v4 ? 4 : 6, .prefix = v4 ? 32 : 128 };
	memcpy(ret->addr.bytes, v4 ? (void *)&a.in.sin_addr : (void *)&a.in6.sin6_addr,
	       v4 ? 4 : 16);
	return 0;
}

/* The resolver of containers in a sandbox, by TCP. */
static bool is_resolver(const struct target *t)
{
	uint32_t addr;

	memcpy(&addr, t->addr.bytes, sizeof(addr));
	return t->addr.family == 4 && ntohl(addr) == CAPTURE_ADDR && t->port == CAPTURE_DNS_PORT;
}

static void take_query(struct capture *c, int fd)
{
	if (c->n_dns < DNS_CLIENTS_MAX)
		dns_accepted(c, fd);
	else
		capture_refuse(fd, CAPTURE_DIRECT, FRONT_BUSY, NULL);
}

static void stream_accepted(struct capture *c, int fd)
{
	struct target t = { 0 };

	if (address_of(fd, &t) < 0)
		capture_refuse(fd, CAPTURE_DIRECT, FRONT_DENIED, NULL);
	else if (is_resolver(&t))
		take_query(c, fd);
	else if (capture_target(c, &t) < 0)
		capture_refuse(fd, CAPTURE_DIRECT, FRONT_DENIED, NULL);
	else
		c->ops->connect(fd, &t, CAPTURE_DIRECT, c->arg);
}

/* ---- the capture ---- */

static int add_listeners(struct capture *c, struct capture_sockets *s)
{
	static void (*const accepted[CAPTURE_SOCKETS])(struct capture * c, int fd) = {
		[CAPTURE_TCP] = stream_accepted,
		[CAPTURE_TCP6] = stream_accepted,
		[CAPTURE_DNS_TCP] = dns_accepted,
		[CAPTURE_PROXY] = head_accepted,
	};
	int r = 0;

	for (size_t i = 0; i < CAPTURE_SOCKETS && r == 0; i++) {
		struct listener *l = &c->listeners[i];

		l->src.cb = i == CAPTURE_DNS_UDP ? dns_on_udp : listener_accept;
		l->accepted = accepted[i];
		if (s->fds[i] < 0)
			continue;
		r = loop_add_fd(c->loop, &l->src, s->fds[i], EPOLLIN);
		if (r == 0)
			(void)TAKE_FD(s->fds[i]);
	}
	return r;
}

static void init(struct capture *c)
{
	for (size_t i = 0; i < CAPTURE_SOCKETS; i++)
		listener_init(&c->listeners[i], c);
	for (size_t i = 0; i < DNS_CLIENTS_MAX; i++) {
		c->dns[i].capture = c;
		c->dns[i].src.fd = -EBADF;
		c->dns[i].out.max = DNS_OUT_MAX;
	}
	for (size_t i = 0; i < QUESTIONS_MAX; i++)
		c->questions[i].capture = c;
	for (size_t i = 0; i < HEADS_MAX; i++) {
		c->heads[i].capture = c;
		c->heads[i].src.fd = -EBADF;
	}
	c->out.max = MAX((size_t)DNS_ANSWER_MAX, (size_t)FRONT_REPLY_MAX);
}

int capture_new(struct loop *loop, struct capture_sockets *s, size_t names,
		const uint8_t key[static SIPHASH_KEY], const struct capture_ops *ops, void *arg,
		struct capture **ret)
{
	_cleanup_capture_sockets_ struct capture_sockets own = *s;
	_cleanup_capture_ struct capture *c = calloc(1, sizeof(*c));
	int r;

	*s = (struct capture_sockets)CAPTURE_SOCKETS_INIT;
	if (!c)
		return -ENOMEM;
	c->loop = loop;
	c->ops = ops;
	c->arg = arg;
	init(c);
	r = pool_new(MIN(MAX(names, (size_t)1), (size_t)POOL_MAX), key, &c->pool);
	if (r == 0)
		r = add_listeners(c, &own);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(c);
	return 0;
}

struct capture *capture_free(struct capture *c)
{
	if (!c)
		return NULL;
	for (size_t i = 0; i < DNS_CLIENTS_MAX; i++) {
		if (c->dns[i].src.fd >= 0)
			dns_close(&c->dns[i]);
		buf_done(&c->dns[i].out);
	}
	for (size_t i = 0; i < HEADS_MAX; i++)
		if (c->heads[i].src.fd >= 0)
			head_close(&c->heads[i]);
	for (size_t i = 0; i < QUESTIONS_MAX; i++)
		if (c->questions[i].number != 0)
			dns_forget(&c->questions[i]);
	for (size_t i = 0; i < CAPTURE_SOCKETS; i++) {
		loop_del_timer(&c->listeners[i].again);
		loop_del_fd(&c->listeners[i].src);
		(void)fd_close(c->listeners[i].src.fd);
	}
	buf_done(&c->out);
	(void)pool_free(c->pool);
	free(c);
	return NULL;
}
