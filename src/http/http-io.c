/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes from and to the socket. Nothing here calls a handler: errors set `broken`, which the loop
 * handles. Both buffers are freed when empty, so a waiting connection holds none.
 */
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "http/http-inner.h"

int http_io_open_tls(struct conn *c, struct http_tls *tls)
{
	return http_tls_open(tls, &c->src.fd, &c->ssl);
}

void http_io_close(struct conn *c)
{
	if (c->ssl)
		http_tls_close(c->ssl);
	c->ssl = NULL;
	loop_del_fd(&c->src);
	c->src.fd = fd_close(c->src.fd);
}

int http_io_handshake(struct conn *c)
{
	return http_tls_handshake(c->ssl, &c->tls_wants_out);
}

bool http_io_pending(const struct conn *c)
{
	return c->ssl && http_tls_pending(c->ssl);
}

static ssize_t receive(struct conn *c, void *data, size_t n)
{
	ssize_t k;

	if (c->ssl)
		return http_tls_read(c->ssl, data, n, &c->tls_wants_out);
	k = RETRY_EINTR(recv(c->src.fd, data, n, MSG_DONTWAIT));
	return k < 0 ? -errno : k;
}

bool http_io_fill(struct conn *c, size_t at_most)
{
	char *p = buf_reserve(&c->in, at_most);
	ssize_t k = p ? receive(c, p, at_most) : -ENOMEM;

	if (k > 0) {
		buf_commit(&c->in, (size_t)k);
		c->read_at = clock_mono();
		return true;
	}
	if (c->in.len == 0)
		buf_done(&c->in);
	c->readable = false;
	if (k == -EAGAIN)
		return false;
	if (k == 0)
		c->eof = true;
	else
		c->broken = true;
	return true;
}

static ssize_t transmit(struct conn *c, struct iovec *iov, size_t n)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n };
	ssize_t k;

	if (c->ssl)
		return http_tls_write(c->ssl, iov[0].iov_base, iov[0].iov_len, &c->tls_wants_out);
	k = RETRY_EINTR(sendmsg(c->src.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL));
	return k < 0 ? -errno : k;
}

/* Returns the bytes sent, 0 if it would block; a permanent error breaks the connection. */
static size_t try_send(struct conn *c, struct iovec *iov, size_t n)
{
	ssize_t k = transmit(c, iov, n);

	if (k > 0)
		c->sent_at = clock_mono();
	else if (k < 0 && k != -EAGAIN)
		c->broken = true;
	return k > 0 ? (size_t)k : 0;
}

static void keep(struct conn *c, const char *data, size_t n)
{
	if (n == 0)
		return;
	if (http_io_waiting(c) == 0)
		c->sent_at = clock_mono();
	/* Discard sent bytes before the buffer grows. */
	if (c->sent > c->out.len / 2) {
		buf_consume(&c->out, c->sent);
		c->sent = 0;
	}
	if (buf_put(&c->out, data, n) < 0)
		c->broken = true;
	if (http_io_waiting(c) >= HTTP_SERVER_AHEAD)
		c->full = true;
}

void http_io_flush(struct conn *c)
{
	while (http_io_waiting(c) > 0 && !c->broken) {
		struct iovec iov = { c->out.data + c->sent, http_io_waiting(c) };
		size_t k = try_send(c, &iov, 1);

		if (k == 0)
			return;
		c->sent += k;
	}
	if (http_io_waiting(c) == 0) {
		buf_done(&c->out);
		c->sent = 0;
	}
}

void http_io_send(struct conn *c, struct iovec *iov, size_t n)
{
	size_t k = 0;

	if (c->broken || c->phase == CONN_DEAD)
		return;
	/* TLS makes one record per write, so everything goes through the buffer. */
	if (!c->ssl && http_io_waiting(c) == 0)
		k = try_send(c, iov, n);
	for (size_t i = 0; i < n; i++) {
		size_t done = MIN(k, iov[i].iov_len);

		if (done < iov[i].iov_len)
			keep(c, (const char *)iov[i].iov_base + done, iov[i].iov_len - done);
		k -= done;
	}
	if (c->ssl)
		http_io_flush(c);
}

void http_io_send_text(struct conn *c, const char *s, size_t n)
{
	struct iovec iov = { (void *)s, n };

	http_io_send(c, &iov, 1);
}

void http_io_fin(struct conn *c)
{
	if (c->fin_sent)
		return;
	c->fin_sent = true;
	if (c->ssl)
		http_tls_fin(c->ssl);
	else
		(void)shutdown(c->src.fd, SHUT_WR);
}
