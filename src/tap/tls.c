/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One SSL_CTX for all programs, one for all servers. All certificates share one key of this
 * process.
 *
 * Both sides resume sessions. A ticket for a program works for its host only: the session id
 * context is a digest of the host. Sessions with servers are kept by host and port; they are kept
 * only once the server's certificate was verified.
 */
#include "tap/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "tap/cache.h"

#define CERT_AGE_MAX	(7 * 24 * 3600 * NSEC_PER_SEC) /* then a new one is signed */
#define SESSION_AGE_MAX (3600 * NSEC_PER_SEC)

enum {
	READ_AHEAD = 72 * 1024, /* four full records with one recv(2) */
	SESSION_S = 3600,
};

struct tls {
	struct ca *ca;
	EVP_PKEY *key;
	SSL_CTX *in, *out;
	BIO_METHOD *method;
	struct cache certs, sessions;
};

#define HTTP1 "\x08http/1.1"
#define HTTP2 "\x02h2"

/* HTTP/2 is the first choice, where it is offered. */
static const unsigned char both[] = HTTP2 HTTP1;
static const unsigned char only_http1[] = HTTP1;
static const char suites[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
			     "TLS_CHACHA20_POLY1305_SHA256";

static const char *reason(unsigned long error)
{
	const char *text = ERR_reason_error_string(error);

	return text ? text : "unknown error";
}

static struct tls_peer *peer_of(const SSL *s)
{
	const struct conn *c = SSL_get_app_data(s);

	return c->owner;
}

static void drop_cert(void *value)
{
	X509_free(value);
}

static void drop_session(void *value)
{
	SSL_SESSION_free(value);
}

/* ---- the program's side ---- */

static X509 *cert_for(struct tls *t, const struct tls_peer *p)
{
	X509 *x = cache_get(&t->certs, p->host, CERT_AGE_MAX);

	if (!x) {
		x = ca_sign(t->ca, p->host, p->is_addr, t->key);
		if (x)
			cache_put(&t->certs, p->host, x);
	}
	return x;
}

static int refuse(struct tls_peer *p, const char *text)
{
	(void)snprintf(p->text, sizeof(p->text), "%s", text);
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int check_name(SSL *s, int *alert, void *arg)
{
	const char *name = SSL_get_servername(s, TLSEXT_NAMETYPE_host_name);
	struct tls_peer *p = peer_of(s);

	if (!name || strcasecmp(name, p->host) == 0)
		return SSL_TLSEXT_ERR_OK;
	p->refuses_name = true;
	*alert = SSL_AD_UNRECOGNIZED_NAME;
	return refuse(p, "SNI names another host");
}

static void read_offers(struct tls_peer *p, const unsigned char *data, size_t n)
{
	struct reader r = reader_of(data, n);
	struct reader list = reader_of(NULL, 0);
	size_t len = (size_t)reader_be(&r, 2);
	const unsigned char *s = reader_bytes(&r, len);

	if (s)
		list = reader_of(s, len);
	while (reader_left(&list) > 0) {
		len = (size_t)reader_be(&list, 1);
		s = reader_bytes(&list, len);
		if (!s)
			break;
		p->offers_http1 |= len == STRLEN("http/1.1") && memcmp(s, "http/1.1", len) == 0;
		p->offers_http2 |= len == STRLEN("h2") && memcmp(s, "h2", len) == 0;
	}
}

/* Whether the program may have HTTP/2 depends on the server. */
static int hear_client(SSL *s, int *alert, void *arg)
{
	struct tls_peer *p = peer_of(s);
	const unsigned char *data;
	size_t n;

	if (!p->is_heard &&
	    SSL_client_hello_get0_ext(s, TLSEXT_TYPE_application_layer_protocol_negotiation, &data,
				      &n))
		read_offers(p, data, n);
	p->is_heard = true;
	return p->protocol == TLS_UNDECIDED ? SSL_CLIENT_HELLO_RETRY : SSL_CLIENT_HELLO_SUCCESS;
}

void tls_decide(struct tls_peer *program, const struct conn *server)
{
	const unsigned char *chosen = NULL;
	unsigned int n = 0;
	bool http2 = program->offers_http2 && !program->offers_http1;

	if (server) {
		SSL_get0_alpn_selected(server->ssl, &chosen, &n);
		http2 = program->offers_http2 && n == STRLEN("h2") && memcmp(chosen, "h2", n) == 0;
	}
	program->protocol = http2 ? TLS_HTTP2 : TLS_HTTP1;
}

static int choose_protocol(SSL *s, const unsigned char **ret, unsigned char *ret_n,
			   const unsigned char *offered, unsigned int n, void *arg)
{
	struct tls_peer *p = peer_of(s);

	if (p->protocol == TLS_HTTP1 && !p->offers_http1)
		return refuse(p,
			      p->offers_http2
				      ? "the program offers HTTP/2 alone by ALPN, which the "
					"server does not speak"
				      : "the program offers neither http/1.1 nor h2 by ALPN, and "
					"other protocols cannot be intercepted");
	*ret = p->protocol == TLS_HTTP2 ? (const unsigned char *)"h2"
					: (const unsigned char *)"http/1.1";
	*ret_n = p->protocol == TLS_HTTP2 ? STRLEN("h2") : STRLEN("http/1.1");
	return SSL_TLSEXT_ERR_OK;
}

static void see_state(const SSL *s, int where, int value)
{
	struct conn *c = SSL_get_app_data(s);

	if ((where & SSL_CB_ACCEPT_LOOP) == SSL_CB_ACCEPT_LOOP &&
	    SSL_get_state(s) == TLS_ST_SW_CERT)
		c->shows_cert = true;
}

static bool configure_both(SSL_CTX *ctx)
{
	(void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	(void)SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
					    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					    SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_default_read_buffer_len(ctx, READ_AHEAD);
	(void)SSL_CTX_set_timeout(ctx, SESSION_S);
	return SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) &&
	       SSL_CTX_set_ciphersuites(ctx, suites);
}

static bool configure_in(SSL_CTX *ctx)
{
	(void)SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE);
	(void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	(void)SSL_CTX_set_tlsext_servername_callback(ctx, check_name);
	SSL_CTX_set_client_hello_cb(ctx, hear_client, NULL);
	SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
	SSL_CTX_set_info_callback(ctx, see_state);
	return configure_both(ctx) && SSL_CTX_set_num_tickets(ctx, 1) &&
	       SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20");
}

int tls_accept(struct conn *c, struct tls_peer *peer)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	X509 *cert = cert_for(peer->tls, peer);
	SSL *s = cert ? SSL_new(peer->tls->in) : NULL;

	c->owner = peer;
	if (s && SSL_use_certificate(s, cert) == 1 && SSL_use_PrivateKey(s, peer->tls->key) == 1 &&
	    SHA256((const unsigned char *)peer->host, strlen(peer->host), digest) &&
	    SSL_set_session_id_context(s, digest, sizeof(digest)) == 1 &&
	    conn_start_tls(c, s, peer->tls->method) == 0) {
		SSL_set_accept_state(s);
		return 0;
	}
	SSL_free(s);
	ERR_clear_error();
	return -ENOMEM;
}

/* ---- the server's side ---- */

static void session_key(const struct tls_peer *p, char ret[static CACHE_KEY_MAX])
{
	(void)snprintf(ret, CACHE_KEY_MAX, "%s:%u", p->host, p->port);
}

static int keep_session(SSL *s, SSL_SESSION *session)
{
	struct tls_peer *p = peer_of(s);
	char key[CACHE_KEY_MAX];

	session_key(p, key);
	cache_put(&p->tls->sessions, key, session);
	return 1; /* ours now */
}

static bool configure_out(SSL_CTX *ctx, X509_STORE *store)
{
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set1_cert_store(ctx, store);
	(void)SSL_CTX_set_session_cache_mode(ctx,
					     SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(ctx, keep_session);
	return configure_both(ctx);
}

static bool offer(SSL *s, bool http2)
{
	return SSL_set_alpn_protos(s, http2 ? both : only_http1,
				   http2 ? sizeof(both) - 1 : sizeof(only_http1) - 1) == 0;
}

static bool set_host(SSL *s, const struct tls_peer *p)
{
	X509_VERIFY_PARAM *param = SSL_get0_param(s);

	if (p->is_addr)
		return X509_VERIFY_PARAM_set1_ip_asc(param, p->host) == 1;
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(s, p->host) == 1 && SSL_set_tlsext_host_name(s, p->host) == 1;
}

int tls_connect(struct conn *c, struct tls_peer *peer, bool http2)
{
	SSL *s = SSL_new(peer->tls->out);
	SSL_SESSION *session;
	char key[CACHE_KEY_MAX];

	c->owner = peer;
	if (!s || !set_host(s, peer) || !offer(s, http2) ||
	    conn_start_tls(c, s, peer->tls->method) < 0) {
		SSL_free(s);
		ERR_clear_error();
		return -ENOMEM;
	}
	session_key(peer, key);
	session = cache_get(&peer->tls->sessions, key, SESSION_AGE_MAX);
	if (session && SSL_SESSION_is_resumable(session))
		(void)SSL_set_session(s, session);
	SSL_set_connect_state(s);
	return 0;
}

/* ---- failures ---- */

bool tls_is_distrust(unsigned long error)
{
	if (ERR_GET_LIB(error) != ERR_LIB_SSL)
		return false;
	switch (ERR_GET_REASON(error)) {
	case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
	case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
	case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
	case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
	case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
	case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
		return true;
	default:
		return false;
	}
}

enum tap_result tls_client_failure(const struct conn *c, struct tls_peer *peer, int r)
{
	if (peer->text[0])
		return peer->refuses_name ? TAP_BAD_REQUEST : TAP_CLIENT_TLS;
	if (tls_is_distrust(c->error)) {
		(void)snprintf(peer->text, sizeof(peer->text),
			       "the program does not trust the sandbox's CA: set "
			       "NODE_EXTRA_CA_CERTS, SSL_CERT_FILE or REQUESTS_CA_BUNDLE to "
			       "/etc/hutch/bundle.pem; if it pins certificates, it can't be "
			       "intercepted");
		return TAP_CLIENT_TRUST;
	}
	if (r == -EPIPE && c->shows_cert) {
		(void)snprintf(peer->text, sizeof(peer->text),
			       "the program closed the connection after our certificate: set "
			       "NODE_EXTRA_CA_CERTS, SSL_CERT_FILE or REQUESTS_CA_BUNDLE to "
			       "/etc/hutch/bundle.pem; it may also pin certificates");
		return TAP_CLIENT_TRUST;
	}
	(void)snprintf(peer->text, sizeof(peer->text), "%s",
		       r == -EPIPE ? "the program closed the connection during the handshake"
				   : reason(c->error));
	return r == -EPIPE ? TAP_CLIENT_CLOSED : TAP_CLIENT_TLS;
}

static bool is_unknown_ca(long verdict)
{
	return verdict == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT ||
	       verdict == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY ||
	       verdict == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN ||
	       verdict == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT ||
	       verdict == X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE;
}

enum tap_result tls_server_failure(const struct conn *c, struct tls_peer *peer, int r)
{
	long verdict = SSL_get_verify_result(c->ssl);

	if (ERR_GET_LIB(c->error) == ERR_LIB_SSL &&
	    ERR_GET_REASON(c->error) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
		(void)snprintf(peer->text, sizeof(peer->text), "the server's certificate: %s%s",
			       X509_verify_cert_error_string(verdict),
			       is_unknown_ca(verdict) ? ": set tap_roots in host.yaml" : "");
		return TAP_SERVER_TRUST;
	}
	(void)snprintf(peer->text, sizeof(peer->text), "%s",
		       r == -EPIPE ? "the server closed the connection during the handshake"
				   : reason(c->error));
	return TAP_SERVER_TLS;
}

/* ---- the contexts ---- */

int tls_new(struct ca *ca, X509_STORE *store, struct tls **ret, struct err *e)
{
	struct tls *t = calloc(1, sizeof(*t));

	if (t) {
		t->ca = ca;
		t->certs.drop = drop_cert;
		t->sessions.drop = drop_session;
		t->key = EVP_EC_gen("P-256");
		t->in = SSL_CTX_new(TLS_server_method());
		t->out = SSL_CTX_new(TLS_client_method());
		t->method = conn_bio();
	} else {
		ca_free(ca);
	}
	if (t && t->key && t->in && t->out && t->method && configure_in(t->in) &&
	    configure_out(t->out, store)) {
		X509_STORE_free(store);
		*ret = t;
		return 0;
	}
	X509_STORE_free(store);
	(void)err_set(e, -ENOMEM, "cannot set up TLS: %s", reason(ERR_peek_last_error()));
	ERR_clear_error();
	(void)tls_free(t);
	return e->num;
}

struct tls *tls_free(struct tls *t)
{
	if (!t)
		return NULL;
	cache_clear(&t->certs);
	cache_clear(&t->sessions);
	SSL_CTX_free(t->in);
	SSL_CTX_free(t->out);
	EVP_PKEY_free(t->key);
	BIO_meth_free(t->method);
	ca_free(t->ca);
	free(t);
	return NULL;
}
