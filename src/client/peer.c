/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link calls back from inside link_feed(), where a peer cannot be freed. So peer_free() only
 * sets `dead` during a feed, and feed() frees the peer afterwards. Calls that we closed are freed
 * at once: the link makes no further callback for them.
 *
 * Frames are sent at once if the socket accepts them (link_set_output()); the rest waits for
 * EPOLLOUT. One read(2) of up to 64 KiB may carry frames of many calls.
 */
#include "client/peer.h"

#include <string.h>
#include <sys/socket.h>

#include "base/trace.h"

enum {
	CHUNK = 64 * 1024,
	HELLO_MAX = 64,
	LAST_READS = 64, /* more than a socket buffer holds */
};

struct call {
	struct peer *peer;
	const struct call_ops *ops;
	void *arg;
	uint32_t ch;
	struct call *prev, *next;
};

struct peer {
	struct loop *loop;
	struct link *link;
	struct loop_fd socket;
	struct loop_timer end; /* after a failed write: reports the end from the loop */
	struct call *calls;
	void (*ended)(struct peer *p, void *arg);
	void *arg;
	bool feeding, dead, broken;
	bool full; /* a send was cut short because the link was full, not for lack of credit */
};

/* ---- the list of calls ---- */

static void call_unlink(struct call *c)
{
	struct peer *p = c->peer;

	if (c->prev)
		c->prev->next = c->next;
	else
		p->calls = c->next;
	if (c->next)
		c->next->prev = c->prev;
	free(c);
}

static void call_end(struct call *c, enum wire_code code, const char *text)
{
	const struct call_ops *ops = c->ops;
	void *arg = c->arg;
	struct peer *p = c->peer;

	link_set_cookie(p->link, c->ch, NULL);
	if (ops->closed)
		ops->closed(c, code, text, arg);
	call_unlink(c);
}

/* ---- link callbacks ---- */

static struct call *call_of(struct link *l, uint32_t ch, const struct peer *p)
{
	return p->dead ? NULL : link_cookie(l, ch);
}

static void on_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct call *c = call_of(l, ch, arg);

	if (c && c->ops->accepted)
		c->ops->accepted(c, f, c->arg);
}

static void on_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		    void *arg)
{
	struct call *c = call_of(l, ch, arg);

	if (c && c->ops->data)
		c->ops->data(c, stream, data, n, c->arg);
	else if (c)
		(void)link_consumed(l, ch, stream, n);
}

static void on_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct call *c = call_of(l, ch, arg);

	if (c && c->ops->eof)
		c->ops->eof(c, stream, c->arg);
}

static void on_credit(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct call *c = call_of(l, ch, arg);

	if (c && c->ops->credit)
		c->ops->credit(c, stream, c->arg);
}

static void on_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		   void *arg)
{
	struct call *c = call_of(l, ch, arg);

	if (c && c->ops->msg)
		c->ops->msg(c, kind, f, c->arg);
}

static void on_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct call *c = call_of(l, ch, arg);
	char copy[WIRE_TEXT_MAX + 1];
	const char *text = "";
	size_t pos = 0, n = 0;

	if (!c)
		return;
	(void)fields_next(f, TAG_TEXT, &pos, &text, &n);
	n = MIN(n, sizeof(copy) - 1);
	memcpy(copy, text, n);
	copy[n] = '\0';
	call_end(c, (enum wire_code)fields_number(f, TAG_CODE, WIRE_IO), copy);
}

static const struct link_ops ops = {
	.accepted = on_accepted,
	.data = on_data,
	.eof = on_eof,
	.credit = on_credit,
	.msg = on_msg,
	.closed = on_closed,
};

/* ---- the connection ---- */

static struct peer *destroy(struct peer *p)
{
	while (p->calls)
		call_unlink(p->calls);
	loop_del_timer(&p->end);
	loop_del_fd(&p->socket);
	(void)fd_close(p->socket.fd);
	(void)link_free(p->link);
	free(p);
	return NULL;
}

static void tell_end(struct peer *p)
{
	p->broken = p->feeding = true;
	loop_del_timer(&p->end);
	loop_del_fd(&p->socket);
	while (p->calls && !p->dead)
		call_end(p->calls, WIRE_GONE, "the sandbox has ended");
	if (p->ended && !p->dead)
		p->ended(p, p->arg);
	p->feeding = false;
	if (p->dead)
		(void)destroy(p);
}

static void break_off(struct peer *p)
{
	p->broken = true;
	(void)loop_set_timer(p->loop, &p->end, 0);
}

static ssize_t write_out(void *arg, const struct iovec pieces[static 2])
{
	const struct peer *p = arg;
	struct msghdr m = { .msg_iov = (struct iovec *)pieces, .msg_iovlen = 2 };
	ssize_t n = RETRY_EINTR(sendmsg(p->socket.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT));

	return n < 0 ? -errno : n;
}

static void flush(struct peer *p)
{
	size_t n = 0;

	if (p->broken)
		return;
	if (link_flush(p->link) < 0) {
		break_off(p);
		return;
	}
	(void)link_pending(p->link, &n);
	(void)loop_mod_fd(&p->socket, n > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* 1: read something; 0: nothing to read; -1: the connection has ended, or the peer was freed. */
static int feed(struct peer *p)
{
	struct err e = ERR_INIT;
	char chunk[CHUNK];
	ssize_t n = RETRY_EINTR(recv(p->socket.fd, chunk, sizeof(chunk), MSG_DONTWAIT));
	int r;

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0) {
		tell_end(p);
		return -1;
	}
	p->feeding = true;
	r = link_feed(p->link, chunk, (size_t)n, &e);
	p->feeding = false;
	if (p->dead)
		(void)destroy(p);
	else if (r < 0)
		tell_end(p);
	else
		return 1;
	return -1;
}

/* Writing has failed, but the keeper's last output and the command's result may still be in the
 * socket: read them first. */
static void on_end(struct loop_timer *src)
{
	struct peer *p = src->arg;
	int r = 1;

	for (int i = 0; r > 0 && i < LAST_READS; i++)
		r = feed(p);
	if (r >= 0)
		tell_end(p);
}

/* Resumes senders that stopped because the link was full. */
static void tell_room(struct peer *p)
{
	struct call *next;

	if (!p->full || p->broken || !link_ready(p->link))
		return;
	p->full = false;
	p->feeding = true;
	for (struct call *c = p->calls; c && !p->dead; c = next) {
		next = c->next;
		if (c->ops->credit)
			c->ops->credit(c, 0, c->arg);
	}
	p->feeding = false;
	if (p->dead)
		(void)destroy(p);
	else
		flush(p);
}

static void on_socket(struct loop_fd *src, uint32_t events)
{
	struct peer *p = src->arg;

	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && feed(p) < 0)
		return;
	flush(p);
	tell_room(p);
}

static int say_hello(struct peer *p)
{
	_cleanup_buf_ struct buf b = BUF_INIT(HELLO_MAX);

	fields_put_number(&b, TAG_VERSION, WIRE_VERSION);
	return link_hello(p->link, &b);
}

int peer_new(struct loop *loop, int fd, void (*ended)(struct peer *p, void *arg), void *arg,
	     struct peer **ret, struct err *e)
{
	struct peer *p = calloc(1, sizeof(*p));

	if (!p) {
		(void)fd_close(fd);
		return err_oom(e);
	}
	*p = (struct peer){ .loop = loop, .ended = ended, .arg = arg };
	p->socket = (struct loop_fd){ .cb = on_socket, .arg = p, .fd = fd };
	p->end = (struct loop_timer){ .cb = on_end, .arg = p };
	if (link_new(LINK_KEEPER, &ops, p, &p->link) < 0) {
		(void)destroy(p);
		return err_oom(e);
	}
	link_with_client(p->link);
	link_set_output(p->link, write_out, p);
	if (loop_add_fd(loop, &p->socket, fd, EPOLLIN) < 0 || say_hello(p) < 0) {
		(void)destroy(p);
		return err_oom(e);
	}
	*ret = p;
	return 0;
}

struct peer *peer_free(struct peer *p)
{
	if (p && p->feeding)
		p->dead = true;
	else if (p)
		(void)destroy(p);
	return NULL;
}

/* ---- calls ---- */

/* The request id follows all other fields. */
static int open_channel(struct peer *p, enum wire_op op, const struct buf *fields, struct call *c)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);

	if (!trace_request()[0])
		return link_open(p->link, op, fields, c, &c->ch);
	(void)buf_put(&b, fields->data, fields->len);
	fields_put_text(&b, TAG_REQUEST, trace_request());
	/* If the fields fill the whole message, the id is left out. */
	return link_open(p->link, op, b.err == -ENOBUFS ? fields : &b, c, &c->ch);
}

int peer_call(struct peer *p, enum wire_op op, const struct buf *fields,
	      const struct call_ops *call_ops, void *arg, struct call **ret, struct err *e)
{
	struct call *c;
	int r;

	if (p->broken)
		return err_set(e, -EPIPE, "the sandbox has ended");
	r = fields_check_open(op, true, fields, e);
	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c)
		return err_oom(e);
	*c = (struct call){ .peer = p, .ops = call_ops, .arg = arg };
	r = open_channel(p, op, fields, c);
	if (r < 0) {
		free(c);
		return err_set(e, r, "the sandbox takes no more operations: %s", strerror(-r));
	}
	c->next = p->calls;
	if (c->next)
		c->next->prev = c;
	p->calls = c;
	*ret = c;
	if (!p->feeding)
		flush(p);
	return 0;
}

ssize_t peer_send(struct call *c, unsigned int stream, const void *data, size_t n)
{
	ssize_t sent = link_data(c->peer->link, c->ch, stream, data, n);

	c->peer->full |= sent >= 0 && (size_t)sent < n && !link_ready(c->peer->link);
	if (!c->peer->feeding)
		flush(c->peer);
	return sent;
}

void peer_eof(struct call *c, unsigned int stream)
{
	(void)link_eof(c->peer->link, c->ch, stream);
	if (!c->peer->feeding)
		flush(c->peer);
}

void peer_msg(struct call *c, enum wire_msg kind, const struct buf *fields)
{
	(void)link_msg(c->peer->link, c->ch, kind, fields);
	if (!c->peer->feeding)
		flush(c->peer);
}

void peer_consumed(struct call *c, unsigned int stream, size_t n)
{
	(void)link_consumed(c->peer->link, c->ch, stream, n);
	if (!c->peer->feeding)
		flush(c->peer);
}

void peer_close(struct call *c)
{
	struct peer *p = c->peer;

	link_set_cookie(p->link, c->ch, NULL);
	(void)link_close(p->link, c->ch, WIRE_DONE, NULL);
	call_unlink(c);
	if (!p->feeding)
		flush(p);
}
