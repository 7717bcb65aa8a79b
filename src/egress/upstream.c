/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/upstream.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"

ssize_t upstream_parse(struct http_scan *scan, const char *s, size_t n,
		       char why[static UPSTREAM_WHY_MAX])
{
	enum http_scanned scanned = http_scan_head(scan, s, n);
	int status = http_status_parse(s, n);

	/* A wrong first line is rejected before the head is complete. */
	if (status < 0 || scanned == HTTP_SCAN_BAD_END || scanned == HTTP_SCAN_CONTROL) {
		(void)snprintf(why, UPSTREAM_WHY_MAX, "the proxy does not speak HTTP/1");
		return -EPROTO;
	}
	if (scanned == HTTP_SCAN_MORE)
		return 0;
	if (status < 200 || status > 299) {
		(void)snprintf(why, UPSTREAM_WHY_MAX, "the proxy answered %d", status);
		return -ECONNREFUSED;
	}
	return (ssize_t)scan->pos;
}

void upstream_stop(struct upstream *u)
{
	if (u->src.loop) {
		loop_del_fd(&u->src);
		u->src.fd = fd_close(u->src.fd);
	}
	loop_del_timer(&u->timer);
	buf_done(&u->head);
}

static void fail(struct upstream *u, int r, const char *why)
{
	if (why)
		(void)snprintf(u->why, sizeof(u->why), "%s", why);
	upstream_stop(u);
	u->done(u, r);
}

static void on_timeout(struct loop_timer *t)
{
	fail(t->arg, -ETIMEDOUT, "the proxy did not answer");
}

/* Peeks at the received bytes, and reads only those of the head from the socket. */
static void on_readable(struct loop_fd *src, uint32_t events)
{
	struct upstream *u = src->arg;
	char peeked[UPSTREAM_HEAD_MAX];
	size_t had = u->head.len;
	ssize_t n = recv(src->fd, peeked, sizeof(peeked) - had, MSG_PEEK), end;
	int fd = src->fd;

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		return fail(u, -ECONNRESET, "the proxy closed the connection");
	if (buf_put(&u->head, peeked, (size_t)n) < 0)
		return fail(u, -ENOMEM, "out of memory");
	end = upstream_parse(&u->scan, u->head.data, u->head.len, u->why);
	if (end < 0)
		return fail(u, (int)end, NULL);
	if (recv(fd, peeked, end > 0 ? (size_t)end - had : (size_t)n, 0) < 0)
		return fail(u, -errno, "the proxy closed the connection");
	if (end == 0 && u->head.len == UPSTREAM_HEAD_MAX)
		return fail(u, -EPROTO, "the head of the proxy's answer is too long");
	if (end == 0)
		return;
	loop_del_fd(src);
	upstream_stop(u);
	u->done(u, fd);
}

/* The request fits into an empty socket buffer. */
static int send_request(int fd, const struct target *t)
{
	char text[ADDR_TEXT_MAX], request[2 * NAME_TEXT_MAX + 128];
	const char *host = t->is_addr ? addr_format(&t->addr, text) : t->name.text;
	int n = snprintf(request, sizeof(request), "CONNECT %s:%u HTTP/1.1\r\nHost: %s:%u\r\n\r\n",
			 host, t->port, host, t->port);
	ssize_t sent = send(fd, request, (size_t)n, MSG_NOSIGNAL);

	assert((size_t)n < sizeof(request));
	if (sent < 0)
		return -errno;
	return sent == n ? 0 : -EAGAIN;
}

int upstream_start(struct upstream *u, struct loop *l, int fd, const struct target *t)
{
	int r = send_request(fd, t);

	u->head = (struct buf)BUF_INIT(UPSTREAM_HEAD_MAX);
	u->src.cb = on_readable;
	u->timer.cb = on_timeout;
	u->src.arg = u->timer.arg = u;
	if (r == 0)
		r = loop_set_timer(l, &u->timer,
				   clock_mono() + UPSTREAM_TIMEOUT_MS * NSEC_PER_MSEC);
	if (r == 0)
		r = loop_add_fd(l, &u->src, fd, EPOLLIN);
	if (r < 0)
		loop_del_timer(&u->timer);
	return r;
}
