/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real hutch-tap with the test as everything around it: warden, keeper, programs and servers.
 * All ends are driven by one loop, wait_for(), so nothing blocks.
 */
#pragma once

#include "unit.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json-util.h"
#include "base/str.h"
#include "tap-link/tap-link.h"
#include "tap/ca.h"

#define HOST "api.test.example"

enum {
	TAP_UID = 0x70000002,
	ENDS_MAX = 2048,
	RECORDS_MAX = 4096,
	DEADLINE_S = 100,
};

/* A program or a server. */
struct end {
	int fd;
	SSL *ssl; /* NULL: plain */
	bool is_shaken, has_failed, is_eof, is_clean, is_reset, answers;
	unsigned long error;
	struct buf in;
	char out[8192];
	size_t n_out;
};

static struct {
	pid_t pid;
	int warden, keeper;
	char *ca_cert, *ca_key, *root_cert;
	struct ca *root; /* signs servers */
	EVP_PKEY *key;
	SSL_CTX *client, *server;
	struct end *ends[ENDS_MAX];
	size_t n_ends;
	struct tap_request *requests;
	struct tap_end *finished;
	size_t n_requests, n_finished;
	bool is_gone;	/* the tap has closed the keeper's socket */
	int host_roots; /* a file with the host's CAs, or 0: its real ones */
	rlim_t files;	/* the tap's limit on descriptors, or 0 */
	uint64_t last_stream;
} world;

/* ---- certificates ---- */

static inline X509 *server_cert(const char *host, int from_days, int to_days)
{
	X509 *x = ca_sign(world.root, host, false, world.key);
	BIO *b;
	EVP_PKEY *key;

	assert_non_null(x);
	if (from_days == 0)
		return x;
	/* Another time needs another signature. */
	b = BIO_new_mem_buf(world.root_cert + strlen(world.root_cert) + 1, -1);
	key = PEM_read_bio_PrivateKey(b, NULL, NULL, NULL);
	assert_non_null(X509_time_adj_ex(X509_getm_notBefore(x), from_days, 0, NULL));
	assert_non_null(X509_time_adj_ex(X509_getm_notAfter(x), to_days, 0, NULL));
	assert_true(X509_sign(x, key, EVP_sha256()) > 0);
	EVP_PKEY_free(key);
	BIO_free(b);
	return x;
}

static inline void use_cert(X509 *x)
{
	assert_int_equal(SSL_CTX_use_certificate(world.server, x), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(world.server, world.key), 1);
	X509_free(x);
}

/* The CA's certificate and key as texts, in one allocation. */
static inline char *make_ca(char **ret_key)
{
	struct buf cert = BUF_INIT(TAP_CA_MAX), key = BUF_INIT(TAP_CA_MAX);
	struct err e = ERR_INIT;
	size_t n;

	assert_int_equal(ca_make(&cert, &key, &e), 0);
	n = cert.len;
	assert_int_equal(buf_putc(&cert, '\0'), 0);
	assert_int_equal(buf_put(&cert, key.data, key.len), 0);
	buf_done(&key);
	*ret_key = cert.data + n + 1;
	return cert.data;
}

/* ---- the process ---- */

static inline void send_text(const char *text)
{
	struct tap_message m = { .kind = TAP_CONFIG };
	_cleanup_close_ int fd = memfd_create("config", MFD_CLOEXEC);

	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	assert_int_equal(tap_send(world.warden, &m, &fd, 1), 0);
}

/* `rest`: the members "secrets", "http" and "values". */
static inline void send_config(const char *rest, const char *roots)
{
	_cleanup_json_ json_t *j = json_loads(rest, 0, NULL);
	char *text;

	assert_non_null(j);
	assert_int_equal(json_put(j, "roots", json_string(roots)), 0);
	assert_int_equal(json_put(j, "ca",
				  JSON_OBJECT({ "cert", json_string(world.ca_cert) },
					      { "key", json_string(world.ca_key) })),
			 0);
	text = json_write_line(j);
	send_text(text);
	free(text);
}

#define PLAIN_CONFIG "{\"secrets\": [], \"http\": [], \"values\": {}}"

static inline void start_tap(void)
{
	const char *program = getenv("HUTCH_TAP");
	int warden, keeper;
	char uid[16];

	(void)snprintf(uid, sizeof(uid), "%d", TAP_UID);
	assert_int_equal(fd_socket_pair(SOCK_SEQPACKET, &world.warden, &warden), 0);
	assert_int_equal(fd_socket_pair(SOCK_SEQPACKET, &world.keeper, &keeper), 0);
	world.pid = fork();
	if (world.pid == 0) {
		const struct rlimit l = { world.files, world.files };

		warden = fcntl(warden, F_DUPFD, 10);
		keeper = fcntl(keeper, F_DUPFD, 10);
		if (world.files > 0 && setrlimit(RLIMIT_NOFILE, &l) < 0)
			_exit(99);
		if (!program || dup2(warden, TAP_FD_WARDEN) < 0 || dup2(keeper, TAP_FD_KEEPER) < 0)
			_exit(99);
		if (geteuid() == 0)
			(void)execl(program, "hutch-tap", "--uid", uid, NULL);
		else
			(void)execl(program, "hutch-tap", NULL);
		_exit(99);
	}
	(void)fd_close(warden);
	(void)fd_close(keeper);
	world.is_gone = false;
}

static inline int end_of_tap(void)
{
	int status = 0;

	assert_int_equal(waitpid(world.pid, &status, 0), world.pid);
	world.pid = 0;
	return status;
}

/* With world.host_roots, the root is among the CAs of the host. */
static inline void set_host_roots(void)
{
	char path[64];

	(void)unsetenv("SSL_CERT_FILE");
	if (world.host_roots <= 0)
		return;
	assert_int_equal(fd_write_all(world.host_roots, world.root_cert, strlen(world.root_cert)),
			 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), world.host_roots);
	assert_int_equal(setenv("SSL_CERT_FILE", path, 1), 0);
}

static inline int world_setup(void **state)
{
	char *root_key;
	struct err e = ERR_INIT;

	(void)signal(SIGPIPE, SIG_IGN); /* OpenSSL writes with write(2) */
	world.requests = calloc(RECORDS_MAX, sizeof(*world.requests));
	world.finished = calloc(RECORDS_MAX, sizeof(*world.finished));
	world.ca_cert = make_ca(&world.ca_key);
	world.root_cert = make_ca(&root_key);
	world.key = EVP_EC_gen("P-256");
	world.client = SSL_CTX_new(TLS_client_method());
	world.server = SSL_CTX_new(TLS_server_method());
	if (ca_load(world.root_cert, root_key, &world.root, &e) < 0)
		return -1;
	use_cert(server_cert(HOST, 0, 0));
	set_host_roots();
	world.n_requests = world.n_finished = world.n_ends = 0;
	start_tap();
	return 0;
}

static inline void end_close(struct end *p)
{
	SSL_free(p->ssl);
	p->ssl = NULL;
	p->fd = fd_close(p->fd);
}

static inline int world_teardown(void **state)
{
	for (size_t i = 0; i < world.n_ends; i++) {
		end_close(world.ends[i]);
		buf_done(&world.ends[i]->in);
		free(world.ends[i]);
	}
	world.n_ends = 0;
	world.warden = fd_close(world.warden);
	world.keeper = fd_close(world.keeper);
	if (world.pid > 0) {
		int status = end_of_tap();

		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			return -1;
	}
	ca_free(world.root);
	EVP_PKEY_free(world.key);
	SSL_CTX_free(world.client);
	SSL_CTX_free(world.server);
	free(world.ca_cert);
	free(world.root_cert);
	free(world.requests);
	free(world.finished);
	(void)fd_close(world.host_roots > 0 ? world.host_roots : -EBADF);
	world.host_roots = 0;
	world.files = 0;
	return 0;
}

/* ---- ends ---- */

static inline struct end *end_new(int fd, SSL *ssl)
{
	struct end *p = calloc(1, sizeof(*p));

	assert_true(p && world.n_ends < ENDS_MAX);
	*p = (struct end){ .fd = fd, .ssl = ssl, .is_shaken = !ssl, .in = BUF_INIT(1 << 24) };
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	if (ssl)
		assert_int_equal(SSL_set_fd(ssl, fd), 1);
	world.ends[world.n_ends++] = p;
	return p;
}

static inline void note_error(struct end *p, int r)
{
	int error = SSL_get_error(p->ssl, r);

	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
		return;
	p->is_eof = true;
	p->is_clean = error == SSL_ERROR_ZERO_RETURN;
	p->is_reset = error == SSL_ERROR_SYSCALL && errno == ECONNRESET;
	p->error = ERR_peek_last_error();
	p->has_failed = !p->is_clean;
}

static inline ssize_t end_read(struct end *p, char *data, size_t n)
{
	ssize_t k;
	int r;

	if (p->ssl) {
		r = SSL_read(p->ssl, data, (int)n);
		if (r <= 0)
			note_error(p, r);
		return r;
	}
	k = recv(p->fd, data, n, MSG_DONTWAIT);
	if (k == 0 || (k < 0 && errno != EAGAIN)) {
		p->is_eof = true;
		p->is_clean = k == 0;
		p->is_reset = k < 0 && errno == ECONNRESET;
	}
	return k;
}

static inline ssize_t end_write(struct end *p)
{
	return p->ssl ? SSL_write(p->ssl, p->out, (int)p->n_out)
		      : send(p->fd, p->out, p->n_out, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Does for one end what its socket allows. */
static inline void end_step(struct end *p)
{
	char data[16384];
	ssize_t k;
	int r;

	ERR_clear_error();
	if (p->fd < 0 || p->is_eof)
		return;
	if (!p->is_shaken) {
		r = SSL_do_handshake(p->ssl);
		p->is_shaken = r == 1;
		if (r != 1) {
			note_error(p, r);
			return;
		}
	}
	if (p->n_out > 0) {
		k = end_write(p);
		if (k > 0) {
			memmove(p->out, p->out + k, p->n_out - (size_t)k);
			p->n_out -= (size_t)k;
		}
	}
	while ((k = end_read(p, data, sizeof(data))) > 0)
		assert_int_equal(buf_put(&p->in, data, (size_t)k), 0);
}

static inline void say_bytes(struct end *p, const char *data, size_t n)
{
	assert_true(p->n_out + n <= sizeof(p->out));
	memcpy(p->out + p->n_out, data, n);
	p->n_out += n;
	end_step(p);
}

static inline void say(struct end *p, const char *text)
{
	say_bytes(p, text, strlen(text));
}

static inline bool has(const struct end *p, const char *text)
{
	return strstr(buf_text(&p->in), text) != NULL;
}

static inline void take_records(void)
{
	struct tap_message m;
	int files[2], r;

	while ((r = tap_receive(world.keeper, &m, files)) == 0) {
		assert_true(m.kind == TAP_REQUEST || m.kind == TAP_END);
		if (m.kind == TAP_REQUEST)
			world.requests[world.n_requests++] = m.request;
		else
			world.finished[world.n_finished++] = m.end;
		assert_true(world.n_requests < RECORDS_MAX && world.n_finished < RECORDS_MAX);
	}
	world.is_gone = r == -EPIPE;
}

/* One step of everything, after some socket is ready. */
static inline void turn(void)
{
	static struct pollfd polls[ENDS_MAX + 1];

	polls[0] = (struct pollfd){ .fd = world.is_gone ? -1 : world.keeper, .events = POLLIN };
	for (size_t i = 0; i < world.n_ends; i++) {
		const struct end *p = world.ends[i];

		polls[i + 1] = (struct pollfd){ .fd = p->is_eof ? -1 : p->fd, .events = POLLIN };
		if (p->is_shaken && p->n_out > 0)
			polls[i + 1].events |= POLLOUT;
	}
	assert_true(poll(polls, world.n_ends + 1, DEADLINE_S * 1000) > 0);
	if (polls[0].revents)
		take_records();
	for (size_t i = 0; i < world.n_ends; i++)
		if (polls[i + 1].revents)
			end_step(world.ends[i]);
}

#define wait_for(condition)                                                       \
	do {                                                                      \
		const uint64_t until_ = clock_mono() + DEADLINE_S * NSEC_PER_SEC; \
		while (!(condition)) {                                            \
			assert_true(clock_mono() < until_);                       \
			turn();                                                   \
		}                                                                 \
	} while (0)

/* ---- streams ---- */

struct pair {
	struct end *client, *server;
	uint64_t stream;
};

static inline void tcp_pair(int *ret_a, int *ret_b)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	_cleanup_close_ int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t n = sizeof(a);

	assert_true(l >= 0 && bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &n), 0);
	*ret_a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(*ret_a, (struct sockaddr *)&a, n), 0);
	*ret_b = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	assert_true(*ret_b >= 0);
}

static inline SSL *client_ssl(const char *name)
{
	X509_STORE *store = SSL_CTX_get_cert_store(world.client);
	BIO *b = BIO_new_mem_buf(world.ca_cert, -1);
	X509 *ca = PEM_read_bio_X509(b, NULL, NULL, NULL);
	SSL *s;

	(void)X509_STORE_add_cert(store, ca);
	s = SSL_new(world.client);
	assert_non_null(s);
	SSL_set_verify(s, SSL_VERIFY_PEER, NULL);
	assert_int_equal(SSL_set1_host(s, HOST), 1);
	if (name)
		assert_int_equal(SSL_set_tlsext_host_name(s, name), 1);
	SSL_set_connect_state(s);
	X509_free(ca);
	BIO_free(b);
	return s;
}

static inline SSL *server_ssl(void)
{
	SSL *s = SSL_new(world.server);

	assert_non_null(s);
	SSL_set_accept_state(s);
	return s;
}

/* Opens a stream with these ends; `early` bytes were read from the program already. */
static inline struct pair open_for(enum tap_protocol protocol, SSL *client, SSL *server,
				   const char *early)
{
	struct tap_message m = { .kind = TAP_OPEN,
				 .open = { .stream = ++world.last_stream,
					   .protocol = protocol,
					   .port = client ? 443 : 80,
					   .host = HOST } };
	struct pair p = { .stream = world.last_stream };
	int files[2], ours[2];

	assert_int_equal(fd_socket_pair(SOCK_STREAM, &ours[0], &files[0]), 0);
	tcp_pair(&files[1], &ours[1]);
	m.open.n_early = (uint32_t)strlen(early);
	memcpy(m.open.early, early, m.open.n_early);
	p.client = end_new(ours[0], client);
	p.server = end_new(ours[1], server);
	end_step(p.client); /* a ClientHello comes before the stream, as from the keeper */
	assert_int_equal(tap_send(world.keeper, &m, files, 2), 0);
	(void)fd_close(files[0]);
	(void)fd_close(files[1]);
	return p;
}

static inline struct pair open_with(SSL *client, SSL *server, const char *early)
{
	return open_for(TAP_TLS_OR_HTTP, client, server, early);
}

static inline struct pair open_tls(void)
{
	return open_with(client_ssl(HOST), server_ssl(), "");
}

static inline const struct tap_end *end_of(const struct pair *p)
{
	for (size_t i = 0; i < world.n_finished; i++)
		if (world.finished[i].stream == p->stream)
			return &world.finished[i];
	return NULL;
}

/* ---- steps of many tests ---- */

#define GET "GET / HTTP/1.1\r\nHost: " HOST "\r\n\r\n"
#define OK  "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

#define TEST_TAP(name) TEST_WITH(name, world_setup, world_teardown)

static inline void begin(void)
{
	send_config(PLAIN_CONFIG, world.root_cert);
}

static inline void ask_and_answer(struct pair *p)
{
	buf_reset(&p->client->in);
	buf_reset(&p->server->in);
	say(p->client, GET);
	wait_for(has(p->server, "\r\n\r\n"));
	say(p->server, OK);
	wait_for(has(p->client, "hello"));
}

static inline void ends_as(struct pair *p, enum tap_result result, const char *text)
{
	const struct tap_end *end;

	wait_for(end_of(p));
	end = end_of(p);
	if (!strstr(end->text, text))
		print_message("# '%s'\n", end->text);
	assert_int_equal(end->result, result);
	assert_non_null(strstr(end->text, text));
}
