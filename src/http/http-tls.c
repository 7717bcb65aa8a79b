/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Non-blocking TLS with OpenSSL. Our own BIO reads and writes the socket, because OpenSSL's uses
 * write(2), which raises SIGPIPE if the client has gone. No tickets and no session cache: clients
 * keep their connections, and no secret outlives one.
 */
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

#include "http/http-inner.h"

struct http_tls {
	SSL_CTX *ctx;
	BIO_METHOD *method;
};

static const unsigned char protocols[] = "\x08http/1.1";

/* ---- OpenSSL's access to the socket ---- */

static int socket_of(BIO *b)
{
	return *(const int *)BIO_get_data(b);
}

static int socket_result(BIO *b, ssize_t k, int retry)
{
	BIO_clear_retry_flags(b);
	if (k < 0 && errno == EAGAIN)
		BIO_set_flags(b, retry | BIO_FLAGS_SHOULD_RETRY);
	return (int)k;
}

static int socket_read(BIO *b, char *data, int n)
{
	ssize_t k = RETRY_EINTR(recv(socket_of(b), data, (size_t)n, MSG_DONTWAIT));

	return socket_result(b, k, BIO_FLAGS_READ);
}

static int socket_write(BIO *b, const char *data, int n)
{
	ssize_t k = RETRY_EINTR(send(socket_of(b), data, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL));

	return socket_result(b, k, BIO_FLAGS_WRITE);
}

static long socket_ctrl(BIO *b, int cmd, long num, void *ptr)
{
	return cmd == BIO_CTRL_FLUSH;
}

static BIO_METHOD *socket_method(void)
{
	BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket");

	if (m && BIO_meth_set_read(m, socket_read) && BIO_meth_set_write(m, socket_write) &&
	    BIO_meth_set_ctrl(m, socket_ctrl))
		return m;
	BIO_meth_free(m);
	return NULL;
}

/* ---- the certificate ---- */

/* Otherwise OpenSSL would ask for the key's password on the terminal. */
static int no_password(char *out, int n, int writing, void *arg)
{
	return 0;
}

static int choose_protocol(SSL *s, const unsigned char **ret, unsigned char *ret_n,
			   const unsigned char *offered, unsigned int n, void *arg)
{
	unsigned char *chosen;

	if (SSL_select_next_proto(&chosen, ret_n, protocols, sizeof(protocols) - 1, offered, n) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*ret = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static bool configure(SSL_CTX *ctx)
{
	(void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
					       SSL_OP_NO_TICKET);
	(void)SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
					    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					    SSL_MODE_RELEASE_BUFFERS);
	(void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_default_passwd_cb(ctx, no_password);
	SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
	return SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) &&
	       SSL_CTX_set_num_tickets(ctx, 0) &&
	       SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20");
}

static const char *reason(void)
{
	const char *text = ERR_reason_error_string(ERR_peek_last_error());

	return text ? text : "unknown error";
}

int http_tls_new(const char *cert, const char *key, struct http_tls **ret, struct err *e)
{
	struct http_tls *t = calloc(1, sizeof(*t));

	if (!t)
		return err_oom(e);
	ERR_clear_error();
	t->ctx = SSL_CTX_new(TLS_server_method());
	t->method = socket_method();
	if (!t->ctx || !t->method || !configure(t->ctx))
		(void)err_set(e, -ENOMEM, "cannot set up TLS: %s", reason());
	else if (SSL_CTX_use_certificate_chain_file(t->ctx, cert) != 1)
		(void)err_set(e, -EINVAL, "cannot read the certificate '%s': %s", cert, reason());
	else if (SSL_CTX_use_PrivateKey_file(t->ctx, key, SSL_FILETYPE_PEM) != 1)
		(void)err_set(e, -EINVAL, "cannot use the key '%s': %s", key, reason());
	else
		return *ret = t, 0;
	ERR_clear_error();
	t = http_tls_free(t);
	return e->num;
}

struct http_tls *http_tls_free(struct http_tls *t)
{
	if (!t)
		return NULL;
	SSL_CTX_free(t->ctx);
	BIO_meth_free(t->method);
	free(t);
	return NULL;
}

/* ---- a connection ---- */

int http_tls_open(struct http_tls *t, int *fd, struct ssl_st **ret)
{
	SSL *s = SSL_new(t->ctx);
	BIO *b = s ? BIO_new(t->method) : NULL;

	if (!b) {
		SSL_free(s);
		return -ENOMEM;
	}
	BIO_set_data(b, fd);
	BIO_set_init(b, 1);
	SSL_set_bio(s, b, b);
	SSL_set_accept_state(s);
	*ret = s;
	return 0;
}

void http_tls_close(struct ssl_st *s)
{
	SSL_free(s);
	ERR_clear_error();
}

/* Interprets the result `r` of a call: 0 for end of file, -EAGAIN, or an error that ends the
 * connection. */
static int outcome(SSL *s, int r, bool *ret_wants_out)
{
	int error = SSL_get_error(s, r);

	ERR_clear_error();
	*ret_wants_out = error == SSL_ERROR_WANT_WRITE;
	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
		return -EAGAIN;
	return error == SSL_ERROR_ZERO_RETURN ? 0 : -ECONNRESET;
}

int http_tls_handshake(struct ssl_st *s, bool *ret_wants_out)
{
	int r;

	ERR_clear_error();
	r = SSL_do_handshake(s);
	*ret_wants_out = false;
	if (r == 1)
		return 1;
	r = outcome(s, r, ret_wants_out);
	return r == -EAGAIN ? 0 : -ECONNRESET;
}

ssize_t http_tls_read(struct ssl_st *s, void *data, size_t n, bool *ret_wants_out)
{
	size_t done = 0;
	int r;

	ERR_clear_error();
	r = SSL_read_ex(s, data, n, &done);
	*ret_wants_out = false;
	return r == 1 ? (ssize_t)done : outcome(s, r, ret_wants_out);
}

ssize_t http_tls_write(struct ssl_st *s, const void *data, size_t n, bool *ret_wants_out)
{
	size_t done = 0;
	int r;

	ERR_clear_error();
	r = SSL_write_ex(s, data, n, &done);
	*ret_wants_out = false;
	if (r == 1)
		return (ssize_t)done;
	r = outcome(s, r, ret_wants_out);
	return r == 0 ? -ECONNRESET : r;
}

void http_tls_fin(struct ssl_st *s)
{
	ERR_clear_error();
	(void)SSL_shutdown(s);
	ERR_clear_error();
}

bool http_tls_pending(const struct ssl_st *s)
{
	return SSL_pending(s) > 0;
}
