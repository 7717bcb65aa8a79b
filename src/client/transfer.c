/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pump() feeds and flushes the link; it waits until the other side sends or accepts something.
 * Incoming contents go straight into the buffer of a waiting transfer_read(). The rest is kept; the
 * other side's credit limits it.
 */
#include "client/transfer.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum {
	INPUT = 256 * 1024,
	CREDIT_STEP = 64 * 1024, /* less is not worth a frame */
};

/* ---- link callbacks ---- */

static void on_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct transfer *t = arg;
	const char *name;
	size_t pos = 0, n;

	t->accepted = true;
	t->deadline = fields_number(f, TAG_DEADLINE, 0);
	if (fields_next(f, TAG_NAME, &pos, &name, &n) && n < sizeof(t->name))
		memcpy(t->name, name, n);
	t->kind = (uint8_t)(fields_has(f, TAG_KIND) ? fields_number(f, TAG_KIND, 0) : 0);
}

static void on_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		    void *arg)
{
	struct transfer *t = arg;
	size_t k = MIN(n, t->want_n - t->want_done);

	if (stream != 0) {
		(void)link_consumed(l, ch, stream, n); /* carries no contents */
		return;
	}
	if (k > 0)
		memcpy(t->want + t->want_done, data, k);
	t->want_done += k;
	t->owed += k;
	if (k < n)
		(void)buf_put(&t->kept, (const char *)data + k, n - k);
}

static void on_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct transfer *t = arg;

	t->ended |= stream == 0;
}

static void on_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		   void *arg)
{
	const struct transfer *t = arg;

	if (kind == WIRE_MSG_EVENT && t->event)
		t->event(f, t->arg);
}

static void on_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct transfer *t = arg;
	const char *text = "";
	size_t pos = 0, n = 0;

	(void)fields_next(f, TAG_TEXT, &pos, &text, &n);
	(void)snprintf(t->text, sizeof(t->text), "%.*s", (int)n, text);
	t->code = (unsigned int)fields_number(f, TAG_CODE, 0);
	t->closed = true;
}

static const struct link_ops ops = {
	.accepted = on_accepted,
	.data = on_data,
	.eof = on_eof,
	.msg = on_msg,
	.closed = on_closed,
};

/* ---- the socket ---- */

static ssize_t send_now(void *arg, const struct iovec pieces[static 2])
{
	const struct transfer *t = arg;
	struct msghdr m = { .msg_iov = (struct iovec *)pieces, .msg_iovlen = 2 };
	ssize_t k = sendmsg(t->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);

	return k < 0 ? -errno : k;
}

/* Sends without waiting; returns how many bytes still wait. */
static size_t flush(struct transfer *t)
{
	size_t n;

	(void)link_flush(t->link); /* on failure: received data is still read */
	(void)link_pending(t->link, &n);
	return n;
}

static int lost(struct err *e)
{
	return err_set(e, -EPIPE, "the connection to the sandbox has ended");
}

static int take(struct transfer *t, struct err *e)
{
	static char input[INPUT];
	ssize_t n = recv(t->fd, input, sizeof(input), MSG_DONTWAIT);
	int r;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return lost(e);
	r = link_feed(t->link, input, (size_t)n, e);
	if (r == 0 && t->kept.err)
		r = err_oom(e);
	return r;
}

/* Waits for the other side and processes its frames. */
static int pump(struct transfer *t, struct err *e)
{
	struct pollfd p[2] = { { .fd = t->fd, .events = POLLIN }, { .fd = t->stop } };

	if (flush(t) > 0)
		p[0].events |= POLLOUT;
	if (RETRY_EINTR(poll(p, 2, -1)) < 0)
		return err_errno(e, "cannot wait for the sandbox");
	if (p[1].revents != 0)
		return err_set(e, -ECANCELED, "cancelled");
	if (p[0].revents & (POLLIN | POLLHUP | POLLERR))
		return take(t, e);
	return 0;
}

static int refused(const struct transfer *t, struct err *e)
{
	return err_set(e, -EREMOTEIO, "%s", t->text[0] ? t->text : wire_code_name(t->code));
}

/* ---- operations ---- */

void transfer_done(struct transfer *t)
{
	t->link = link_free(t->link);
	buf_done(&t->kept);
}

static int start(struct transfer *t, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	int r = link_new(LINK_KEEPER, &ops, t, &t->link);

	if (r < 0)
		return err_oom(e);
	link_with_client(t->link);
	link_set_output(t->link, send_now, t);
	fields_put_number(&b, TAG_VERSION, WIRE_VERSION);
	r = link_hello(t->link, &b);
	return r < 0 ? err_set(e, r, "cannot talk to the sandbox: %s", strerror(-r)) : 0;
}

/* Sends a request and waits for the answer. */
static int ask(struct transfer *t, enum wire_op op, const struct buf *b, struct err *e)
{
	int r = t->link ? 0 : start(t, e);

	if (r < 0)
		return r;
	t->accepted = t->closed = t->ended = false;
	t->code = t->kind = 0;
	t->text[0] = '\0';
	t->owed = t->taken = 0;
	buf_reset(&t->kept);
	if (fields_check_open(op, true, b, e) < 0)
		return e->num;
	r = link_open(t->link, op, b, NULL, &t->ch);
	if (r < 0)
		return err_set(e, r, "cannot send a request to the sandbox: %s", strerror(-r));
	while (r == 0 && !t->accepted && !t->closed)
		r = pump(t, e);
	return r == 0 && !t->accepted ? refused(t, e) : r;
}

/* Waits until the other side closes the operation. 0 on success. */
static int wait_closed(struct transfer *t, struct err *e)
{
	int r = 0;

	while (r == 0 && !t->closed)
		r = pump(t, e);
	if (r < 0)
		return r;
	return t->code == WIRE_DONE ? 0 : refused(t, e);
}

int transfer_open(struct transfer *t, enum wire_op op, const char *path, const char *user,
		  bool recursive, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_PAYLOAD_MAX);

	fields_put_text(&b, TAG_PATH, path);
	if (user)
		fields_put_text(&b, TAG_USER, user);
	if (recursive)
		fields_put_flag(&b, TAG_RECURSIVE);
	return ask(t, op, &b, e);
}

int transfer_open_root(struct transfer *t, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_PAYLOAD_MAX);

	fields_put_text(&b, TAG_PATH, "/");
	fields_put_text(&b, TAG_USER, "0");
	fields_put_flag(&b, TAG_OWNERS);
	return ask(t, WIRE_OP_PACK, &b, e);
}

int transfer_rule(struct transfer *t, const char *rule, bool deny, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_PAYLOAD_MAX);
	int r;

	fields_put_text(&b, TAG_RULE, rule);
	if (deny)
		fields_put_flag(&b, TAG_DENY);
	r = ask(t, WIRE_OP_EGRESS, &b, e);
	return r < 0 ? r : wait_closed(t, e);
}

int transfer_life(struct transfer *t, const struct transfer_life *life, uint64_t *ret_deadline,
		  struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	int r;

	if (life->timeout > 0)
		fields_put_number(&b, TAG_TIMEOUT, life->timeout);
	if (life->on_timeout > 0)
		fields_put_number(&b, TAG_ON_TIMEOUT, life->on_timeout);
	if (life->want > 0)
		fields_put_number(&b, TAG_WANT, life->want);
	r = ask(t, WIRE_OP_LIFE, &b, e);
	if (r == 0)
		r = wait_closed(t, e);
	if (r == 0)
		*ret_deadline = t->deadline;
	return r;
}

int transfer_save(struct transfer *t, enum wire_save what_for, char ret[static TRANSFER_NAME],
		  struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	int r;

	if (what_for != WIRE_SAVE_KEEP)
		fields_put_number(&b, TAG_WANT, what_for);
	r = ask(t, WIRE_OP_SAVE, &b, e);
	if (r == 0)
		r = wait_closed(t, e);
	if (r == 0)
		memcpy(ret, t->name, sizeof(t->name));
	return r;
}

static int give_credit(struct transfer *t, bool all)
{
	size_t n = t->owed;

	if (n == 0 || (n < CREDIT_STEP && !all))
		return 0;
	t->owed = 0;
	return link_consumed(t->link, t->ch, 0, n);
}

static int64_t take_kept(struct transfer *t, void *buf, size_t n)
{
	size_t k = MIN(n, t->kept.len - t->taken);

	memcpy(buf, t->kept.data + t->taken, k);
	t->taken += k;
	t->owed += k;
	if (t->taken == t->kept.len) {
		buf_reset(&t->kept);
		t->taken = 0;
	}
	return (int64_t)k;
}

int64_t transfer_read(struct transfer *t, void *buf, size_t n, struct err *e)
{
	int r = 0;

	if (t->kept.len > t->taken)
		return take_kept(t, buf, n);
	t->want = buf;
	t->want_n = n;
	t->want_done = 0;
	while (r == 0 && t->want_done == 0 && !t->ended && !t->closed) {
		if (give_credit(t, false) < 0)
			return err_oom(e);
		r = pump(t, e);
	}
	t->want_n = 0;
	if (r < 0 || t->want_done > 0)
		return r < 0 ? r : (int64_t)t->want_done;
	return t->ended ? 0 : refused(t, e);
}

int transfer_wait(struct transfer *t, int fd, struct err *e)
{
	int r = 0;

	while (r == 0 && !t->closed) {
		struct pollfd p[2] = { { .fd = t->fd, .events = POLLIN },
				       { .fd = fd, .events = POLLIN } };

		if (flush(t) > 0)
			p[0].events |= POLLOUT;
		if (RETRY_EINTR(poll(p, 2, -1)) < 0)
			return err_errno(e, "cannot wait for the sandbox");
		if (p[0].revents & (POLLIN | POLLHUP | POLLERR))
			r = take(t, e);
		else if (p[1].revents != 0)
			return 0;
	}
	return r < 0 ? r : refused(t, e);
}

int transfer_write(struct transfer *t, const void *data, size_t n, struct err *e)
{
	const char *p = data;
	int r = 0;

	while (r == 0 && n > 0) {
		ssize_t k;

		if (t->closed)
			return refused(t, e);
		k = link_data(t->link, t->ch, 0, p, n);
		if (k < 0)
			return err_set(e, (int)k, "cannot send: %s", strerror((int)-k));
		p += k;
		n -= (size_t)k;
		if (n > 0)
			r = pump(t, e);
	}
	return r;
}

int transfer_finish(struct transfer *t, struct err *e)
{
	int r = t->closed ? 0 : link_eof(t->link, t->ch, 0);

	if (r < 0)
		return err_set(e, r, "cannot send: %s", strerror(-r));
	return wait_closed(t, e);
}
