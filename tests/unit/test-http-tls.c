/* SPDX-License-Identifier: Apache-2.0 */
/* The same server behind TLS, and OpenSSL as the client. */
#include "test-http.h"

#include <fcntl.h>
#include <malloc.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"

enum {
	SHORT_MS = 60,
	CROWD = 20,
	BIG = 1000000,
	IDLE_MAX = 64 * 1024,
};

/* ---- a certificate ---- */

static void write_pem(const struct unit_dir *d, const char *name, X509 *cert, EVP_PKEY *key)
{
	BIO *b = BIO_new(BIO_s_mem());
	char *text;
	long n;

	assert_non_null(b);
	assert_true(cert ? PEM_write_bio_X509(b, cert)
			 : PEM_write_bio_PrivateKey(b, key, NULL, NULL, 0, NULL, NULL));
	n = BIO_get_mem_data(b, &text);
	unit_dir_write(d, name, text, (size_t)n);
	BIO_free(b);
}

static void make_pair(const struct unit_dir *d, const char *cert_name, const char *key_name)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = X509_new();
	X509_NAME *name = X509_NAME_new();

	assert_true(key && cert && name);
	assert_true(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
					       (const unsigned char *)"localhost", -1, -1, 0));
	assert_true(X509_set_subject_name(cert, name) && X509_set_issuer_name(cert, name));
	assert_non_null(X509_gmtime_adj(X509_getm_notBefore(cert), 0));
	assert_non_null(X509_gmtime_adj(X509_getm_notAfter(cert), 3600));
	assert_true(X509_set_pubkey(cert, key) && X509_sign(cert, key, EVP_sha256()) > 0);
	write_pem(d, cert_name, cert, NULL);
	write_pem(d, key_name, NULL, key);
	X509_NAME_free(name);
	X509_free(cert);
	EVP_PKEY_free(key);
}

static struct unit_dir *dir;
static struct http_tls *tls;

static const char *file(const char *name)
{
	static char path[2][UNIT_PATH_MAX + 16];
	static int i;

	i = !i;
	(void)snprintf(path[i], sizeof(path[i]), "%s/%s", dir->path, name);
	return path[i];
}

static int setup(void **state)
{
	struct err e = ERR_INIT;

	if (unit_dir_setup(state) < 0)
		return -1;
	dir = *state;
	make_pair(dir, "cert.pem", "key.pem");
	make_pair(dir, "other.pem", "other-key.pem");
	return http_tls_new(file("cert.pem"), file("key.pem"), &tls, &e);
}

static int teardown(void **state)
{
	tls = http_tls_free(tls);
	return unit_dir_teardown(state);
}

/* ---- a client ---- */

struct peer {
	int fd;
	SSL_CTX *ctx;
	SSL *ssl;
};

static void peer_done(struct peer *p)
{
	SSL_free(p->ssl);
	SSL_CTX_free(p->ctx);
	p->fd = fd_close(p->fd);
	p->ssl = NULL;
	p->ctx = NULL;
}

static void peer_open(struct box *b, struct peer *p, int version, const char *alpn)
{
	p->fd = client(b);
	assert_int_equal(fcntl(p->fd, F_SETFL, O_NONBLOCK), 0);
	p->ctx = SSL_CTX_new(TLS_client_method());
	assert_non_null(p->ctx);
	SSL_CTX_set_security_level(p->ctx, 0);
	(void)SSL_CTX_set_mode(p->ctx,
			       SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	assert_true(SSL_CTX_set_min_proto_version(p->ctx, version));
	assert_true(SSL_CTX_set_max_proto_version(p->ctx, version));
	p->ssl = SSL_new(p->ctx);
	assert_non_null(p->ssl);
	assert_true(SSL_set_fd(p->ssl, p->fd));
	if (alpn)
		assert_int_equal(SSL_set_alpn_protos(p->ssl, (const unsigned char *)alpn,
						     (unsigned int)strlen(alpn)),
				 0);
}

/* True if the operation should be retried. */
static bool again(struct box *b, const struct peer *p, int r)
{
	int error = SSL_get_error(p->ssl, r);

	ERR_clear_error();
	turn(b);
	return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
}

static bool shake(struct box *b, struct peer *p)
{
	int r;

	while ((r = SSL_connect(p->ssl)) != 1)
		if (!again(b, p, r))
			return false;
	return true;
}

static void tell_n(struct box *b, struct peer *p, const char *s, size_t n)
{
	while (n > 0) {
		int r = SSL_write(p->ssl, s, (int)n);

		if (r > 0)
			s += r, n -= (size_t)r;
		else
			assert_true(again(b, p, r));
		turn(b);
	}
}

static void tell(struct box *b, struct peer *p, const char *s)
{
	tell_n(b, p, s, strlen(s));
}

/* Reads until `text` or the end; false if the end came without close_notify. */
static bool listen_for(struct box *b, struct peer *p, struct buf *r, const char *text)
{
	static char part[65536];

	while (!text || !strstr(buf_text(r), text)) {
		int k = SSL_read(p->ssl, part, sizeof(part));

		if (k > 0)
			assert_int_equal(buf_put(r, part, (size_t)k), 0);
		else if (SSL_get_error(p->ssl, k) == SSL_ERROR_ZERO_RETURN)
			return !text;
		else if (!again(b, p, k))
			return false;
	}
	return true;
}

/* Reads at least `least` bytes, until they end in `end`. */
static void listen_bytes(struct box *b, struct peer *p, struct buf *r, const char *end, size_t n,
			 size_t least)
{
	static char part[65536];

	while (r->len < least || r->len < n || memcmp(r->data + r->len - n, end, n) != 0) {
		int k = SSL_read(p->ssl, part, sizeof(part));

		if (k > 0)
			assert_int_equal(buf_put(r, part, (size_t)k), 0);
		else
			assert_true(again(b, p, k));
	}
}

#define PEER \
	BOX; \
	_cleanup_(peer_done) struct peer p = { .fd = -EBADF }

/* ---- tests ---- */

static void speak(int version)
{
	PEER;
	_cleanup_free_ char *body = calloc(1, BIG);
	const unsigned char *alpn;
	unsigned int n;

	assert_non_null(body);
	box_open(&box, tls);
	peer_open(&box, &p, version, "\x02h2\x08http/1.1");
	assert_true(shake(&box, &p));
	SSL_get0_alpn_selected(p.ssl, &alpn, &n);
	assert_int_equal(n, 8);
	assert_memory_equal(alpn, "http/1.1", 8);
	tell(&box, &p, GET("/hello"));
	assert_true(listen_for(&box, &p, &r, "hello"));
	buf_reset(&r);
	tell(&box, &p, "PUT /pass HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
	tell_n(&box, &p, body, BIG);
	assert_true(listen_for(&box, &p, &r, "passed"));
	assert_int_equal(box.got.len, BIG);
	tell(&box, &p, GET("/wait"));
	wait_until(&box, box.handled == 3);
	assert_true(box.x->tls && !box.x->local);
	buf_reset(&r);
	http_answer(box.x, 200, "a/b", body, BIG);
	listen_bytes(&box, &p, &r, "\0\0\0", 3, BIG);
	assert_int_equal(box.gone, 0);
}

TEST(test_versions)
{
	PEER;

	speak(TLS1_3_VERSION);
	speak(TLS1_2_VERSION);
	box_open(&box, tls);
	peer_open(&box, &p, TLS1_1_VERSION, NULL);
	assert_false(shake(&box, &p));
	wait_until(&box, http_server_connections(box.server) == 0);
}

TEST(test_only_http_1)
{
	PEER;

	box_open(&box, tls);
	peer_open(&box, &p, TLS1_3_VERSION, "\x02h2");
	assert_false(shake(&box, &p) && listen_for(&box, &p, &r, NULL));
	wait_until(&box, http_server_connections(box.server) == 0);
}

TEST(test_not_tls)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, tls);
	fd = client(&box);
	say(&box, fd, GET("/hello"));
	hear(&box, fd, &r, NULL);
	assert_has_not(&r, "HTTP");
	assert_int_equal(box.handled, 0);
}

TEST(test_slow_handshake)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box.config.head_ms = SHORT_MS;
	box_open(&box, tls);
	fd = client(&box);
	say(&box, fd, "\x16\x03\x01");
	hear(&box, fd, &r, NULL);
	assert_int_equal(http_server_connections(box.server), 0);
}

/* Without close_notify, while we send nothing. */
TEST(test_client_goes)
{
	PEER;

	box_open(&box, tls);
	peer_open(&box, &p, TLS1_3_VERSION, NULL);
	assert_true(shake(&box, &p));
	tell(&box, &p, GET("/stream"));
	assert_true(listen_for(&box, &p, &r, "\r\n\r\n"));
	peer_done(&p);
	wait_until(&box, box.gone == 1);
	wait_until(&box, http_server_connections(box.server) == 0);
}

/* The peer is gone before the loop has seen it: the second write must not raise SIGPIPE. */
TEST(test_no_signal)
{
	PEER;

	box_open(&box, tls);
	peer_open(&box, &p, TLS1_3_VERSION, NULL);
	assert_true(shake(&box, &p));
	tell(&box, &p, GET("/stream"));
	assert_true(listen_for(&box, &p, &r, "\r\n\r\n"));
	peer_done(&p);
	for (int i = 0; i < 5; i++) {
		http_write(box.x, "lost", 4);
		(void)usleep(10000);
	}
	wait_until(&box, box.gone == 1);
}

/* close_notify comes in the middle of a body, and the connection stays open. */
TEST(test_body_ends_early)
{
	PEER;

	box_open(&box, tls);
	peer_open(&box, &p, TLS1_3_VERSION, NULL);
	assert_true(shake(&box, &p));
	tell(&box, &p, "PUT /pass HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
	wait_until(&box, box.got.len == 3);
	assert_true(SSL_shutdown(p.ssl) >= 0);
	wait_until(&box, box.gone == 1);
	assert_int_equal(box.ended, 0);
}

/* A record that OpenSSL has buffered is read to its end: one small and two large records are one
 * read more than a connection gets at once. */
TEST(test_records_in_pieces)
{
	PEER;
	_cleanup_buf_ struct buf many = BUF_INIT(16384);
	int n = 0;

	box_open(&box, tls);
	peer_open(&box, &p, TLS1_3_VERSION, NULL);
	assert_true(shake(&box, &p));
	for (; many.len + STRLEN(GET("/hello")) <= many.max; n++)
		(void)buf_puts(&many, GET("/hello"));
	assert_true(SSL_write(p.ssl, GET("/hello"), STRLEN(GET("/hello"))) > 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(SSL_write(p.ssl, many.data, (int)many.len), many.len);
	wait_until(&box, box.handled == 1 + 2 * n);
}

TEST(test_full_and_room)
{
	PEER;
	_cleanup_free_ char *data = calloc(1, 65536);

	assert_non_null(data);
	box_open(&box, tls);
	peer_open(&box, &p, TLS1_3_VERSION, NULL);
	assert_true(shake(&box, &p));
	tell(&box, &p, GET("/stream"));
	assert_true(listen_for(&box, &p, &r, "\r\n\r\n"));
	while (!http_full(box.x)) {
		http_write(box.x, data, 65536);
		turn(&box);
	}
	while (box.rooms == 0)
		(void)SSL_read(p.ssl, data, 65536), turn(&box);
	http_write(box.x, "the end", 7);
	http_end(box.x);
	buf_reset(&r);
	listen_bytes(&box, &p, &r, "the end\r\n0\r\n\r\n", 14, 0);
}

TEST(test_tunnel)
{
	PEER;

	box_open(&box, tls);
	peer_open(&box, &p, TLS1_3_VERSION, NULL);
	assert_true(shake(&box, &p));
	tell(&box, &p, GET("/tunnel") "first");
	assert_true(listen_for(&box, &p, &r, "first"));
	assert_true(SSL_shutdown(p.ssl) >= 0); /* its half */
	wait_until(&box, box.eofs == 1);
	turns(&box, 3);
	assert_int_equal(box.gone, 0);
	http_write(box.x, "last", 4);
	http_tunnel_eof(box.x);
	assert_true(listen_for(&box, &p, &r, NULL));
	assert_string_equal(buf_text(&r), "firstlast");
	wait_until(&box, box.gone == 1);
}

/* A connection that ends without close_notify may have been truncated: not an end of the data. */
TEST(test_tunnel_is_cut)
{
	PEER;

	box_open(&box, tls);
	peer_open(&box, &p, TLS1_3_VERSION, NULL);
	assert_true(shake(&box, &p));
	tell(&box, &p, GET("/tunnel") "first");
	assert_true(listen_for(&box, &p, &r, "first"));
	assert_int_equal(shutdown(p.fd, SHUT_WR), 0);
	wait_until(&box, box.gone == 1);
	assert_int_equal(box.eofs, 0);
}

TEST(test_close_is_announced)
{
	PEER;

	box_open(&box, tls);
	peer_open(&box, &p, TLS1_2_VERSION, NULL);
	assert_true(shake(&box, &p));
	tell(&box, &p, "GET /hello HTTP/1.0\r\n\r\n");
	assert_true(listen_for(&box, &p, &r, NULL));
	assert_has(&r, "hello");
}

TEST(test_memory)
{
	BOX;
	struct peer p[CROWD];
	size_t before;

	box_open(&box, tls);
	for (int i = 0; i < CROWD; i++) {
		peer_open(&box, &p[i], TLS1_3_VERSION, NULL);
		assert_true(shake(&box, &p[i]));
		tell(&box, &p[i], GET("/stream"));
		assert_true(listen_for(&box, &p[i], &r, "\r\n\r\n"));
		buf_reset(&r);
	}
	before = mallinfo2().uordblks;
	box.server = http_server_free(box.server);
	if (!SANITIZED) {
		print_message("# %zu bytes each\n", (before - mallinfo2().uordblks) / CROWD);
		assert_in_range((before - mallinfo2().uordblks) / CROWD, 500, IDLE_MAX);
	}
	for (int i = 0; i < CROWD; i++)
		peer_done(&p[i]);
}

TEST(test_files)
{
	static const struct {
		const char *cert, *key;
	} row[] = {
		{ "none.pem", "key.pem" },	 { "cert.pem", "none.pem" },
		{ "cert.pem", "cert.pem" },	 { "key.pem", "key.pem" },
		{ "cert.pem", "other-key.pem" }, { "garbage", "key.pem" },
		{ "cert.pem", "locked.pem" },
	};
	static const char locked[] = "-----BEGIN RSA PRIVATE KEY-----\n"
				     "Proc-Type: 4,ENCRYPTED\n"
				     "DEK-Info: AES-128-CBC,00000000000000000000000000000000\n\n"
				     "AAAA\n-----END RSA PRIVATE KEY-----\n";

	unit_dir_write(dir, "garbage", "\0\1\2", 3);
	unit_dir_write(dir, "locked.pem", locked, sizeof(locked) - 1);
	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		struct http_tls *t = NULL;
		struct err e = ERR_INIT;

		assert_int_equal(http_tls_new(file(row[i].cert), file(row[i].key), &t, &e),
				 -EINVAL);
		assert_null(t);
		assert_non_null(strstr(e.msg, dir->path));
	}
}

int main(void)
{
	return unit_run(setup, teardown);
}
