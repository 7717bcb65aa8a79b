/* SPDX-License-Identifier: Apache-2.0 */
#include "token/https.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"

enum {
	READ_MAX = 8192,
};

DEFINE_CLEANUP(SSL_CTX *, cleanup_ctx, SSL_CTX_free);
DEFINE_CLEANUP(SSL *, cleanup_ssl, SSL_free);

int https_dial(const struct token_url *url, int *ret_fd, struct err *e)
{
	/* Reads the configuration of OpenSSL, before the caller drops its right to files. */
	const int ready = OPENSSL_init_ssl(0, NULL);
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	struct addrinfo *list = NULL;
	int fd = -EBADF, why = ENOENT, r;

	if (ready != 1)
		return err_oom(e);
	r = getaddrinfo(url->host, url->port, &hints, &list);
	if (r != 0)
		return err_set(e, -EHOSTUNREACH, "cannot resolve '%s': %s", url->host,
			       gai_strerror(r));
	for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0)
			break;
		why = errno;
		fd = fd_close(fd);
	}
	freeaddrinfo(list);
	if (fd < 0)
		return err_set(e, -why, "cannot connect to '%s' port %s: %s", url->host, url->port,
			       strerror(why));
	*ret_fd = fd;
	return 0;
}

static const char *reason(void)
{
	const char *text = ERR_reason_error_string(ERR_peek_last_error());

	return text ? text : "the connection was closed";
}

static int set_peer(SSL *s, const struct token_url *url)
{
	if (url->is_addr)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(s), url->host);
	SSL_set_hostflags(s, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(s, url->host) == 1 && SSL_set_tlsext_host_name(s, url->host) == 1;
}

static int shake(SSL *s, const struct token_url *url, struct err *e)
{
	long verdict;

	if (SSL_connect(s) == 1)
		return 0;
	verdict = SSL_get_verify_result(s);
	if (verdict != X509_V_OK)
		return err_set(e, -EPERM, "the certificate of '%s' is not valid: %s", url->host,
			       X509_verify_cert_error_string(verdict));
	return err_set(e, -EPROTO, "TLS with '%s' failed: %s", url->host, reason());
}

static int receive(SSL *s, struct buf *response, struct https_body *ret, struct err *e)
{
	for (;;) {
		char *to =
			buf_reserve(response, MIN((size_t)READ_MAX, response->max - response->len));
		size_t k = 0;
		bool end;
		int r;

		if (!to || response->len == response->max)
			return err_set(e, -EFBIG,
				       "the token endpoint's response is longer than %d bytes",
				       TOKEN_RESPONSE_MAX);
		r = SSL_read_ex(s, to, MIN((size_t)READ_MAX, response->max - response->len), &k);
		end = r != 1;
		if (end && SSL_get_error(s, r) != SSL_ERROR_ZERO_RETURN)
			return err_set(e, -EPROTO, "the token endpoint's response was cut: %s",
				       reason());
		buf_commit(response, k);
		r = response_body(response->data, response->len, end, &ret->status, &ret->text,
				  &ret->n, e);
		if (r != 0)
			return r < 0 ? r : 0;
	}
}

int https_exchange(const struct token_url *url, int fd, X509_STORE *trusted,
		   const struct buf *request, struct buf *response, struct https_body *ret,
		   struct err *e)
{
	_cleanup_(cleanup_ctx) SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	_cleanup_(cleanup_ssl) SSL *s = NULL;

	if (!ctx || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1)
		return err_oom(e);
	SSL_CTX_set1_cert_store(ctx, trusted);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	s = SSL_new(ctx);
	if (!s || set_peer(s, url) != 1)
		return err_oom(e);
	if (SSL_set_fd(s, fd) != 1)
		return err_oom(e);
	if (shake(s, url, e) < 0)
		return e->num;
	if (SSL_write(s, request->data, (int)request->len) != (int)request->len)
		return err_set(e, -EPROTO, "cannot send the request: %s", reason());
	return receive(s, response, ret, e);
}
