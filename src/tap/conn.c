/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenSSL writes records of 16 KiB. Our BIO collects them in one buffer for all connections, so
 * that one send(2) takes many; bytes that the socket does not take move to `pending`, and until it
 * is empty OpenSSL must wait. The buffer is empty outside of the functions here.
 *
 * A connection is read until recv(2) returns less than asked for: `readable` is then false until
 * the loop reports the next bytes, which saves a call that would return EAGAIN. `writable` is the
 * same for sending.
 */
#include "tap/conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

enum {
	RECORD_MAX = SSL3_RT_MAX_ENCRYPTED_LENGTH + SSL3_RT_HEADER_LENGTH,
	OUT_MAX = CONN_CHUNK + CONN_CHUNK / 8 + 4 * RECORD_MAX,
};

static struct {
	char data[OUT_MAX];
	size_t n;
} out;

/* ---- the socket ---- */

static ssize_t take_early(struct conn *c, void *data, size_t n)
{
	n = MIN(n, c->early.len);
	memcpy(data, c->early.data, n);
	buf_consume(&c->early, n);
	if (c->early.len == 0)
		buf_done(&c->early);
	return (ssize_t)n;
}

/* -EAGAIN, 0 at end of file. */
static ssize_t take(struct conn *c, void *data, size_t n)
{
	ssize_t k;

	if (c->early.len > 0)
		return take_early(c, data, n);
	if (!c->readable)
		return -EAGAIN;
	k = RETRY_EINTR(recv(c->fd, data, n, MSG_DONTWAIT));
	if (k < 0 && errno == EAGAIN)
		return c->is_lost ? -ECONNRESET : (c->readable = false, -EAGAIN);
	if (k < 0)
		return -errno;
	if (k < (ssize_t)n && !c->is_lost)
		c->readable = false;
	return k;
}

static ssize_t give(struct conn *c, const void *data, size_t n)
{
	ssize_t k;

	if (c->is_dead)
		return -EPIPE;
	if (!c->writable)
		return 0;
	k = RETRY_EINTR(send(c->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL));
	if (k < 0 && errno != EAGAIN) {
		c->is_dead = true;
		return -EPIPE;
	}
	if (k < (ssize_t)n)
		c->writable = false;
	return MAX(k, 0);
}

/* ---- OpenSSL's access to it ---- */

static int bio_read(BIO *b, char *data, int n)
{
	ssize_t k = take(BIO_get_data(b), data, (size_t)n);

	BIO_clear_retry_flags(b);
	if (k == -EAGAIN)
		BIO_set_retry_read(b);
	return (int)MAX(k, (ssize_t)-1);
}

static int bio_write(BIO *b, const char *data, int n)
{
	struct conn *c = BIO_get_data(b);
	size_t room = c->pending.len > 0 ? 0 : MIN(sizeof(out.data) - out.n, (size_t)n);

	BIO_clear_retry_flags(b);
	if (c->is_dead)
		return -1;
	if (room == 0) {
		BIO_set_retry_write(b);
		return -1;
	}
	memcpy(out.data + out.n, data, room);
	out.n += room;
	return (int)room;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
	return cmd == BIO_CTRL_FLUSH;
}

BIO_METHOD *conn_bio(void)
{
	BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "connection");

	if (m && BIO_meth_set_read(m, bio_read) && BIO_meth_set_write(m, bio_write) &&
	    BIO_meth_set_ctrl(m, bio_ctrl))
		return m;
	BIO_meth_free(m);
	return NULL;
}

/* Sends what OpenSSL has written, and keeps what the socket does not take. */
static void flush_out(struct conn *c)
{
	ssize_t k;

	if (out.n == 0)
		return;
	k = give(c, out.data, out.n);
	if (k >= 0 && (size_t)k < out.n &&
	    buf_put(&c->pending, out.data + k, out.n - (size_t)k) < 0)
		c->is_dead = true;
	out.n = 0;
}

bool conn_flush(struct conn *c)
{
	ssize_t k;

	if (c->pending.len == 0)
		return true;
	k = give(c, c->pending.data, c->pending.len);
	if (k > 0)
		buf_consume(&c->pending, (size_t)k);
	if (c->pending.len == 0 || c->is_dead)
		buf_done(&c->pending);
	if (c->pending.len == 0 && c->is_shut)
		(void)shutdown(c->fd, SHUT_WR);
	return c->pending.len == 0;
}

/* ---- opening and closing ---- */

void conn_init(struct conn *c, int fd, void *owner)
{
	const int one = 1;

	*c = (struct conn){ .fd = fd,
			    .owner = owner,
			    .early = BUF_INIT(64 * 1024),
			    .pending = BUF_INIT(OUT_MAX),
			    .readable = true,
			    .writable = true,
			    .is_shaken = true };
	/* Fails for a socket that is not TCP. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void conn_done(struct conn *c)
{
	loop_del_fd(&c->src);
	SSL_free(c->ssl);
	c->ssl = NULL;
	out.n = 0;
	/* The keeper has another descriptor, so close(2) alone would not tell the other side. */
	if (c->fd >= 0 && !c->is_lost)
		(void)shutdown(c->fd, SHUT_RDWR);
	c->fd = fd_close(c->fd);
	buf_done(&c->early);
	buf_done(&c->pending);
}

int conn_start_tls(struct conn *c, SSL *ssl, BIO_METHOD *method)
{
	BIO *b = BIO_new(method);

	if (!b)
		return -ENOMEM;
	BIO_set_data(b, c);
	BIO_set_init(b, 1);
	SSL_set_bio(ssl, b, b);
	SSL_set_app_data(ssl, c);
	c->ssl = ssl;
	c->is_shaken = false;
	return 0;
}

void conn_shut(struct conn *c)
{
	if (c->is_shut)
		return;
	c->is_shut = true;
	if (c->ssl && c->is_shaken && !c->is_dead) {
		ERR_clear_error();
		(void)SSL_shutdown(c->ssl);
		flush_out(c);
		ERR_clear_error();
	}
	if (c->pending.len == 0)
		(void)shutdown(c->fd, SHUT_WR);
}

void conn_reset_on_close(struct conn *c)
{
	const struct linger now = { .l_onoff = 1 };

	(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	c->is_lost = true; /* no orderly shutdown either */
}

/* ---- bytes ---- */

/* The reason of a failed call of OpenSSL: -EAGAIN, -EPIPE or -EPROTO. */
static int why(struct conn *c, int r)
{
	int error = SSL_get_error(c->ssl, r);

	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ||
	    error == SSL_ERROR_WANT_CLIENT_HELLO_CB)
		return -EAGAIN;
	if (error == SSL_ERROR_ZERO_RETURN)
		return 0;
	c->error = ERR_peek_last_error();
	return error == SSL_ERROR_SSL && c->error ? -EPROTO : -EPIPE;
}

int conn_shake(struct conn *c)
{
	int r;

	if (c->is_shaken)
		return 1;
	ERR_clear_error();
	r = SSL_do_handshake(c->ssl);
	/* The last bytes of the handshake may have come with first ones of data. */
	c->is_shaken = c->is_full = r == 1;
	r = r == 1 ? 1 : why(c, r);
	flush_out(c);
	ERR_clear_error();
	return r == -EAGAIN ? 0 : r == 0 ? -EPIPE : r;
}

static int read_plain(struct conn *c, char *data, size_t n, size_t *ret_n)
{
	ssize_t k = take(c, data, n);

	if (k == -EAGAIN)
		return 0;
	if (k < 0)
		return (int)k;
	c->is_eof = k == 0;
	c->is_full = k == (ssize_t)n;
	*ret_n = (size_t)k;
	return 0;
}

static int read_tls(struct conn *c, char *data, size_t n, size_t *ret_n)
{
	size_t done = 0, k;
	int r = 1;

	ERR_clear_error();
	while (n - done >= SSL3_RT_MAX_PLAIN_LENGTH || done == 0) {
		r = SSL_read_ex(c->ssl, data + done, n - done, &k);
		if (r != 1)
			break;
		done += k;
	}
	c->is_full = r == 1;
	r = r == 1 ? -EAGAIN : why(c, r);
	flush_out(c);
	ERR_clear_error();
	*ret_n = done;
	if (r == -EAGAIN)
		return 0;
	/* After data, the same result comes again with the next read. */
	if (done > 0)
		return 0;
	c->is_eof = true;
	c->is_cut = r == -EPIPE;
	return r == -EPROTO ? r : 0;
}

int conn_read(struct conn *c, char *data, size_t n, size_t *ret_n)
{
	*ret_n = 0;
	if (c->is_eof)
		return 0;
	return c->ssl ? read_tls(c, data, n, ret_n) : read_plain(c, data, n, ret_n);
}

static size_t write_tls(struct conn *c, const char *data, size_t n)
{
	size_t done = 0, k;

	ERR_clear_error();
	while (done < n && c->pending.len == 0 &&
	       SSL_write_ex(c->ssl, data + done, n - done, &k) == 1)
		done += k;
	flush_out(c);
	ERR_clear_error();
	return done;
}

int conn_write(struct conn *c, const char *data, size_t n, size_t *ret_n)
{
	ssize_t k;

	*ret_n = 0;
	n = MIN(n, (size_t)CONN_CHUNK);
	if (!conn_flush(c))
		return 0;
	if (c->is_dead)
		return -EPIPE;
	if (n == 0)
		return 0;
	k = c->ssl ? (ssize_t)write_tls(c, data, n) : give(c, data, n);
	if (k >= 0)
		*ret_n = (size_t)k;
	return c->is_dead ? -EPIPE : 0;
}

bool conn_has_more(const struct conn *c)
{
	return !c->is_eof && (c->readable || c->is_full || c->early.len > 0);
}

/* ---- the loop ---- */

void conn_note(struct conn *c, uint32_t events)
{
	if (events & (EPOLLERR | EPOLLHUP)) {
		/* These events would come again at once, also if nothing is to be read. */
		loop_del_fd(&c->src);
		c->is_lost = c->readable = c->writable = true;
	}
	if (events & EPOLLIN)
		c->readable = true;
	if (events & EPOLLOUT)
		c->writable = true;
}

int conn_watch(struct conn *c, struct loop *l, bool in, bool out_too)
{
	uint32_t events = (in ? (uint32_t)EPOLLIN : 0) | (out_too ? (uint32_t)EPOLLOUT : 0);

	if (c->is_lost || c->fd < 0)
		return 0;
	return c->src.loop ? loop_mod_fd(&c->src, events) : loop_add_fd(l, &c->src, c->fd, events);
}
