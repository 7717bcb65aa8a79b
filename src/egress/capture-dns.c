/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions, by UDP and TCP. One by TCP is read, answered and the answer sent before the next is
 * looked at: a program that sends and does not read stops itself.
 */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "capture-inner.h"
#include "clock.h"
#include "str.h"

static const uint8_t loopback6[16] = { [15] = 1 };
static const struct name localhost = { .len = 9, .text = "localhost" };

static struct dns_answer denied(const char *reason)
{
	return (struct dns_answer){ .rcode = DNS_NXDOMAIN, .reason = reason };
}

/* RFC 6761: it never leaves the machine. */
static struct dns_answer answer_localhost(const struct dns_query *q)
{
	struct dns_answer a = { 0 };

	if (q->type == DNS_A)
		a.addr = INADDR_LOOPBACK;
	else if (q->type == DNS_AAAA)
		a.addr6 = loopback6;
	return a;
}

/* *scratch holds the name that the answer points to. */
static struct dns_answer answer_reverse(const struct capture *c, const struct dns_query *q,
					struct name *scratch)
{
	uint32_t addr;

	if (q->type != DNS_PTR || dns_reverse(q, &addr) < 0)
		return (struct dns_answer){ .rcode = DNS_NXDOMAIN };
	if (addr == INADDR_LOOPBACK)
		return (struct dns_answer){ .name = &localhost };
	if (pool_find(c->pool, addr, scratch) < 0)
		return (struct dns_answer){ .rcode = DNS_NXDOMAIN };
	return (struct dns_answer){ .name = scratch };
}

static struct dns_answer answer_name(struct capture *c, const struct dns_query *q)
{
	const char *reason = "not allowed by the policy of this sandbox";
	struct dns_answer a = { 0 };
	struct err e = ERR_INIT;
	struct name name;
	uint32_t addr;
	int r;

	if (!q->plain || name_parse(q->text, q->len, &name, &e) < 0)
		return denied("not the name of a host");
	if (!c->ops->ask(&name, &reason, c->arg))
		return denied(reason);
	/* Also for other types: that it exists is known from now on. */
	r = pool_add(c->pool, &name, &addr);
	if (r == -ENOSPC)
		return denied("too many different names");
	if (r < 0)
		return (struct dns_answer){ .rcode = DNS_SERVFAIL };
	if (q->type == DNS_A || q->type == DNS_ANY)
		a.addr = addr;
	return a;
}

static struct dns_answer choose(struct capture *c, const struct dns_query *q, struct name *scratch)
{
	if (q->plain && q->len == 0)
		return (struct dns_answer){ 0 }; /* the root is there, and has nothing */
	if (str_eq(q->text, "localhost") || str_has_suffix(q->text, ".localhost"))
		return answer_localhost(q);
	if (str_has_suffix(q->text, ".arpa"))
		return answer_reverse(c, q, scratch);
	return answer_name(c, q);
}

/* Puts the answer to one query into c->out. False: none is due. */
static bool answer(struct capture *c, const void *data, size_t n)
{
	struct dns_query q;
	struct dns_answer a;
	struct name scratch;
	int rcode = dns_parse(data, n, &q);

	buf_reset(&c->out);
	if (rcode < 0)
		return false;
	a = rcode == DNS_NOERROR ? choose(c, &q, &scratch)
				 : (struct dns_answer){ .rcode = (enum dns_rcode)rcode };
	dns_put_answer(&c->out, &q, &a);
	return c->out.err == 0;
}

/* ---- UDP ---- */

void dns_on_udp(struct loop_fd *src, uint32_t events)
{
	struct listener *l = src->arg;
	struct sockaddr_in from;
	uint8_t data[DNS_QUERY_MAX + 1];

	for (size_t i = 0; i < QUERIES_MAX; i++) {
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(src->fd, data, sizeof(data), MSG_DONTWAIT,
				     (struct sockaddr *)&from, &len);

		/* An error is one of an answer that found nobody, or the end of the round. */
		if (n < 0)
			return;
		if (n <= DNS_QUERY_MAX && answer(l->capture, data, (size_t)n))
			(void)!sendto(src->fd, l->capture->out.data, l->capture->out.len,
				      MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&from, len);
	}
}

/* ---- TCP ---- */

void dns_close(struct dns_client *d)
{
	loop_del_fd(&d->src);
	loop_del_timer(&d->deadline);
	d->src.fd = fd_close(d->src.fd);
	buf_reset(&d->out);
	d->n = 0;
	d->capture->n_dns--;
	listener_full(&d->capture->listeners[CAPTURE_DNS_TCP], false);
}

static void on_deadline(struct loop_timer *t)
{
	dns_close(t->arg);
}

static int send_out(struct dns_client *d)
{
	ssize_t k;

	if (d->out.len == 0)
		return 0;
	k = send(d->src.fd, d->out.data, d->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (k < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	buf_consume(&d->out, (size_t)k);
	return 0;
}

/* The first whole question of what came. 1: there was one; 0; or -errno. */
static int take_one(struct dns_client *d)
{
	size_t n = d->n < 2 ? 0 : (size_t)d->in[0] << 8 | d->in[1];
	struct capture *c = d->capture;

	if (d->n < 2 || d->n < 2 + n)
		return n > DNS_QUERY_MAX ? -EMSGSIZE : 0;
	if (!answer(c, d->in + 2, n))
		return -EBADMSG;
	d->n -= 2 + n;
	memmove(d->in, d->in + 2 + n, d->n);
	(void)buf_put_be(&d->out, c->out.len, 2);
	(void)buf_put(&d->out, c->out.data, c->out.len);
	return d->out.err ? d->out.err : 1;
}

static int read_in(struct dns_client *d)
{
	ssize_t k = recv(d->src.fd, d->in + d->n, sizeof(d->in) - d->n, MSG_DONTWAIT);

	if (k < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	d->n += (size_t)k;
	return k == 0 ? -EPIPE : 0;
}

static int want(struct dns_client *d)
{
	uint32_t events = d->out.len > 0 ? EPOLLOUT : EPOLLIN;

	return events == d->src.events ? 0 : loop_mod_fd(&d->src, events);
}

static void on_client(struct loop_fd *src, uint32_t events)
{
	struct dns_client *d = src->arg;
	int r = d->out.len == 0 && d->n < sizeof(d->in) ? read_in(d) : 0;

	/* The buffer holds one question of full size, or many small ones: the round is short. */
	while (r == 0) {
		r = send_out(d);
		if (r < 0 || d->out.len > 0)
			break;
		r = take_one(d);
		if (r == 0)
			break;
		r = r < 0 ? r : 0;
	}
	if (r == 0)
		r = want(d);
	if (r < 0)
		dns_close(d);
}

static struct dns_client *free_client(struct capture *c)
{
	size_t i = 0;

	/* The listener is not watched while all are taken. */
	while (c->dns[i].src.fd >= 0)
		i++;
	assert(i < DNS_CLIENTS_MAX);
	return &c->dns[i];
}

void dns_accepted(struct capture *c, int fd)
{
	struct dns_client *d = free_client(c);

	d->src = (struct loop_fd){ .cb = on_client, .arg = d, .fd = -EBADF };
	d->deadline = (struct loop_timer){ .cb = on_deadline, .arg = d };
	if (loop_add_fd(c->loop, &d->src, fd, EPOLLIN) < 0) {
		(void)fd_close(fd);
		return;
	}
	listener_full(&c->listeners[CAPTURE_DNS_TCP], ++c->n_dns == DNS_CLIENTS_MAX);
	if (loop_set_timer(c->loop, &d->deadline, clock_mono() + CLIENT_MS * NSEC_PER_MSEC) < 0)
		dns_close(d);
}
