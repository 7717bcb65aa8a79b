/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DNS queries by UDP and TCP. A TCP query is read and its answer sent before the next query is
 * read: a program that sends and does not read blocks itself.
 *
 * The answer whether a name may be resolved may come later. The query then waits in a table, with a
 * copy of the query and the address of its sender. While the table is full, no UDP query is read,
 * and a TCP query fails.
 */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/str.h"
#include "egress/capture-inner.h"

static const uint8_t loopback6[16] = { [15] = 1 };
static const struct name localhost = { .len = 9, .text = "localhost" };

static struct dns_answer denied(const char *reason)
{
	return (struct dns_answer){ .rcode = DNS_NXDOMAIN, .reason = reason };
}

/* RFC 6761: never leaves the sandbox. */
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

/* Answers for a name that may be resolved. */
static struct dns_answer answer_address(struct capture *c, const struct dns_query *q,
					const struct name *name)
{
	struct dns_answer a = { 0 };
	uint32_t addr;
	/* Also for other types: the name exists from now on. */
	int r = pool_add(c->pool, name, &addr);

	if (r == -ENOSPC)
		return denied("too many different names");
	if (r < 0)
		return (struct dns_answer){ .rcode = DNS_SERVFAIL };
	if (q->type == DNS_A || q->type == DNS_ANY)
		a.addr = addr;
	return a;
}

/* ---- queries answered later ---- */

/* Fills in everything but the number, which marks the entry as used. NULL: the table is full. */
static struct question *new_question(struct capture *c, const void *data, size_t n,
				     const struct name *name)
{
	struct question *w = c->questions;

	if (c->n_questions == QUESTIONS_MAX)
		return NULL;
	while (w->number != 0)
		w++;
	w->client = NULL;
	w->name = *name;
	w->n = n;
	memcpy(w->query, data, n);
	return w;
}

void dns_forget(struct question *w)
{
	struct capture *c = w->capture;

	w->number = 0;
	loop_del_timer(&w->deadline);
	if (w->client)
		w->client->question = NULL;
	c->n_questions--;
	listener_full(&c->listeners[CAPTURE_DNS_UDP], false);
}

static void on_no_answer(struct loop_timer *t);

static int wait_on(struct question *w)
{
	return loop_set_timer(w->capture->loop, &w->deadline,
			      clock_mono() + ANSWER_MS / ANSWER_TURNS * NSEC_PER_MSEC);
}

static bool await(struct question *w, uint64_t number)
{
	struct capture *c = w->capture;

	w->deadline = (struct loop_timer){ .cb = on_no_answer, .arg = w };
	w->turns = 0;
	if (wait_on(w) < 0)
		return false;
	w->number = number;
	listener_full(&c->listeners[CAPTURE_DNS_UDP], ++c->n_questions == QUESTIONS_MAX);
	return true;
}

/* ---- one query ---- */

/* A query, and its table entry if the answer comes later. */
struct asked {
	const void *data;
	size_t n;
	struct question *later; /* set if the answer comes later */
};

static struct dns_answer answer_name(struct capture *c, const struct dns_query *q, struct asked *a)
{
	static const struct dns_answer failed = { .rcode = DNS_SERVFAIL };
	const char *reason = "not allowed by the policy of this sandbox";
	uint64_t number = c->asked + 1;
	struct err e = ERR_INIT;
	struct question *w;
	struct name name;

	if (!q->plain || name_parse(q->text, q->len, &name, &e) < 0)
		return denied("not the name of a host");
	w = new_question(c, a->data, a->n, &name);
	if (!w)
		return failed;
	c->asked = number;
	switch (c->ops->ask(&name, number, &reason, c->arg)) {
	case CAPTURE_MAY:
		return answer_address(c, q, &name);
	case CAPTURE_MAY_LATER:
		a->later = await(w, number) ? w : NULL;
		return failed;
	default:
		return denied(reason);
	}
}

static struct dns_answer choose(struct capture *c, const struct dns_query *q, struct asked *asked,
				struct name *scratch)
{
	if (q->plain && q->len == 0)
		return (struct dns_answer){ 0 }; /* the root exists and has no records */
	if (str_eq(q->text, "localhost") || str_has_suffix(q->text, ".localhost"))
		return answer_localhost(q);
	if (str_has_suffix(q->text, ".arpa"))
		return answer_reverse(c, q, scratch);
	return answer_name(c, q, asked);
}

/* Puts the answer to one query into c->out. False: no answer is due, or (asked->later) not yet. */
static bool answer(struct capture *c, struct asked *asked)
{
	struct dns_query q;
	struct dns_answer a;
	struct name scratch;
	int rcode = dns_parse(asked->data, asked->n, &q);

	buf_reset(&c->out);
	if (rcode < 0)
		return false;
	a = rcode == DNS_NOERROR ? choose(c, &q, asked, &scratch)
				 : (struct dns_answer){ .rcode = (enum dns_rcode)rcode };
	if (asked->later)
		return false;
	dns_put_answer(&c->out, &q, &a);
	return c->out.err == 0;
}

/* ---- UDP ---- */

static void send_to(struct capture *c, const struct sockaddr_in *to)
{
	(void)!sendto(c->listeners[CAPTURE_DNS_UDP].src.fd, c->out.data, c->out.len,
		      MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)to, sizeof(*to));
}

void dns_on_udp(struct loop_fd *src, uint32_t events)
{
	struct listener *l = src->arg;
	struct sockaddr_in from = { 0 };
	uint8_t data[DNS_QUERY_MAX + 1];

	for (size_t i = 0; i < QUERIES_MAX && !l->full; i++) {
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(src->fd, data, sizeof(data), MSG_DONTWAIT,
				     (struct sockaddr *)&from, &len);

		struct asked asked = { .data = data, .n = n > 0 ? (size_t)n : 0 };

		/* The error belongs to an earlier answer, or the socket is empty. */
		if (n < 0)
			return;
		if (n <= DNS_QUERY_MAX && answer(l->capture, &asked))
			send_to(l->capture, &from);
		if (asked.later)
			asked.later->from = from;
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
	if (d->question)
		dns_forget(d->question);
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

static int put_out(struct dns_client *d)
{
	const struct capture *c = d->capture;

	(void)buf_put_be(&d->out, c->out.len, 2);
	(void)buf_put(&d->out, c->out.data, c->out.len);
	return d->out.err;
}

/* Handles the first complete query in the buffer. 1: answered; 0: incomplete, or the answer comes
 * later; or -errno. */
static int take_one(struct dns_client *d)
{
	size_t n = d->n < 2 ? 0 : (size_t)d->in[0] << 8 | d->in[1];
	struct asked asked = { .data = d->in + 2, .n = n };
	bool done;

	if (d->n < 2 || d->n < 2 + n)
		return n > DNS_QUERY_MAX ? -EMSGSIZE : 0;
	done = answer(d->capture, &asked);
	if (!done && !asked.later)
		return -EBADMSG;
	d->n -= 2 + n;
	memmove(d->in, d->in + 2 + n, d->n);
	d->question = asked.later;
	if (asked.later) {
		asked.later->client = d;
		return 0;
	}
	return put_out(d) < 0 ? d->out.err : 1;
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
	uint32_t events = d->out.len > 0 ? EPOLLOUT : d->question ? 0 : EPOLLIN;

	return events == d->src.events ? 0 : loop_mod_fd(&d->src, events);
}

/* Answers buffered queries as far as possible. */
static void serve(struct dns_client *d, int r)
{
	/* The buffer holds one query of full size or many small ones, so this loop is short. */
	while (r == 0) {
		r = send_out(d);
		if (r < 0 || d->out.len > 0 || d->question)
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

static void on_client(struct loop_fd *src, uint32_t events)
{
	struct dns_client *d = src->arg;

	if (d->question && events & (EPOLLHUP | EPOLLERR))
		dns_close(d); /* the client has gone, and epoll would report it again and again */
	else
		serve(d, d->out.len == 0 && !d->question && d->n < sizeof(d->in) ? read_in(d) : 0);
}

void dns_accepted(struct capture *c, int fd)
{
	struct dns_client *d = CAPTURE_FREE(c->dns);

	d->src = (struct loop_fd){ .cb = on_client, .arg = d, .fd = -EBADF };
	d->deadline = (struct loop_timer){ .cb = on_deadline, .arg = d };
	if (capture_watch(c, fd, &d->src, &d->deadline) == 0)
		listener_full(&c->listeners[CAPTURE_DNS_TCP], ++c->n_dns == DNS_CLIENTS_MAX);
}

/* ---- late answers ---- */

/* Sends a late answer and frees the table entry. */
static void say_late(struct question *w, enum capture_may may, const char *reason)
{
	struct capture *c = w->capture;
	struct dns_client *d = w->client;
	struct dns_answer a = { .rcode = DNS_SERVFAIL };
	struct dns_query q;

	if (dns_parse(w->query, w->n, &q) != DNS_NOERROR)
		abort(); /* the query was valid when it came */
	if (may == CAPTURE_MAY)
		a = answer_address(c, &q, &w->name);
	else if (may == CAPTURE_MAY_NOT)
		a = denied(reason);
	buf_reset(&c->out);
	dns_put_answer(&c->out, &q, &a);
	dns_forget(w);
	if (!d && c->out.err == 0)
		send_to(c, &w->from);
	else if (d)
		serve(d, c->out.err ? c->out.err : put_out(d));
}

/*
 * Counts turns of this loop, too: while the process or the VM was stopped, the clock ran on, and
 * the answer may already wait to be read.
 */
static void on_no_answer(struct loop_timer *t)
{
	struct question *w = t->arg;

	if (++w->turns < ANSWER_TURNS && wait_on(w) == 0)
		return;
	say_late(w, CAPTURE_MAY_LATER, NULL);
}

void capture_answered(struct capture *c, uint64_t number, bool may, const char *reason)
{
	for (size_t i = 0; i < QUESTIONS_MAX; i++)
		if (number != 0 && c->questions[i].number == number) {
			say_late(&c->questions[i], may ? CAPTURE_MAY : CAPTURE_MAY_NOT, reason);
			return;
		}
}
