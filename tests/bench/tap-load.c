/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load generator of tests/bench/tap, all over loopback, with HTTP/1.1 in TLS:
 *
 *	bench-tap server PORT CERT KEY			an origin; several connections at a time
 *	bench-tap forks PORT CERT KEY			an origin with a process for each connection
 *	bench-tap crowd PORT CERT KEY			an origin for any number of connections
 *	bench-tap tap PORT SERVER-PORT PROGRAM CONFIG	hutch-tap, with this process as its keeper
 *	bench-tap get|put PORT CA BYTES			prints MiB/s
 *	bench-tap open|next PORT CA COUNT		prints the median of microseconds
 *	bench-tap sse PORT CA COUNT			likewise
 *	bench-tap model|model99 PORT CA COUNT		likewise, the 99th percentile
 *	bench-tap models PORT CA COUNT			likewise, with MODELS calls at the same time
 *	bench-tap hold PORT CA COUNT			holds so many connections
 *
 * `model` is `sse` with the call of a language model and its answer. `open` is the time from
 *connect(2) to the first byte of the response, `next` the same for a request on an open connection,
 *`sse` the time from the server's write of an event to its arrival. `tap` prints the pid of
 *hutch-tap. `hold` makes a request on each connection and prints the seconds that this took; for
 *each line of its input it makes another one on each, all at the same time, and prints the seconds;
 *at the end of its input it ends and leaves the connections to the kernel.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tap-link/tap-link.h"

enum {
	CHUNK = 64 * 1024,
	HEAD_MAX = 16 * 1024,
	WORKERS = 4,
	COUNT_MAX = 10000,
	CROWD_BATCH = 64,
	EVENT_NS = 2 * 1000 * 1000, /* between two events */
	MODELS = 200,
	MODEL_EVENTS = 20,
	MANY_NS = 100 * 1000 * 1000, /* between two events of each of many */
};

static const char host[] = "bench.test";
static char chunk[CHUNK];

_noreturn_ static void die(const char *what)
{
	(void)fprintf(stderr, "bench-tap: %s: %s\n", what, strerror(errno));
	ERR_print_errors_fp(stderr);
	exit(1);
}

/* ---- sockets ---- */

static struct sockaddr_in local(const char *port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

static void no_delay(int fd)
{
	int one = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int listen_on(const char *port)
{
	struct sockaddr_in at = local(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 4096) < 0)
		die("cannot listen");
	return fd;
}

static int connect_to(const char *port)
{
	struct sockaddr_in at = local(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
		die("cannot connect");
	no_delay(fd);
	return fd;
}

/* ---- one TLS connection with buffered reading ---- */

struct conn {
	SSL *ssl;
	int fd;
	char data[HEAD_MAX];
	size_t n;
};

static void conn_close(struct conn *c)
{
	(void)SSL_shutdown(c->ssl);
	SSL_free(c->ssl);
	c->fd = fd_close(c->fd);
}

static bool put(struct conn *c, const char *data, size_t n)
{
	size_t done = 0;

	return n == 0 || SSL_write_ex(c->ssl, data, n, &done) == 1;
}

static bool fill(struct conn *c)
{
	size_t n = 0;

	if (c->n == sizeof(c->data) - 1 ||
	    SSL_read_ex(c->ssl, c->data + c->n, sizeof(c->data) - 1 - c->n, &n) != 1)
		return false;
	c->n += n;
	c->data[c->n] = '\0';
	return true;
}

static void drop(struct conn *c, size_t n)
{
	memmove(c->data, c->data + n, c->n - n + 1);
	c->n -= n;
}

/* Reads up to a line's end, or the empty line after a head, and leaves the rest buffered. */
static bool read_until(struct conn *c, const char *end, char *out, size_t size)
{
	char *at;

	while (!(at = c->n > 0 ? strstr(c->data, end) : NULL))
		if (!fill(c))
			return false;
	at += strlen(end);
	(void)snprintf(out, size, "%.*s", (int)(at - c->data), c->data);
	drop(c, (size_t)(at - c->data));
	return true;
}

static bool skip_bytes(struct conn *c, uint64_t left)
{
	size_t n = MIN((uint64_t)c->n, left);

	drop(c, n);
	for (left -= n; left > 0; left -= n)
		if (SSL_read_ex(c->ssl, chunk, MIN((uint64_t)CHUNK, left), &n) != 1)
			return false;
	return true;
}

static bool put_bytes(struct conn *c, uint64_t left)
{
	for (size_t n; left > 0; left -= n) {
		n = MIN((uint64_t)CHUNK, left);
		if (!put(c, chunk, n))
			return false;
	}
	return true;
}

static uint64_t length_of(const char *head)
{
	const char *at = strcasestr(head, "\r\nContent-Length:");

	return at ? strtoull(at + strlen("\r\nContent-Length:"), NULL, 10) : 0;
}

/* ---- the origin ---- */

/* `model`: deltas of an answer, the clock as their text. */
static bool put_events(struct conn *c, uint64_t n, bool model, long pause)
{
	static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
				   "Transfer-Encoding: chunked\r\n\r\n";
	char event[192], framed[256];
	int len;

	if (!put(c, head, sizeof(head) - 1))
		return false;
	for (uint64_t i = 0; i < n; i++) {
		(void)nanosleep(&(struct timespec){ .tv_nsec = pause }, NULL);
		len = snprintf(event, sizeof(event),
			       model ? "event: content_block_delta\ndata: {\"type\":"
				       "\"content_block_delta\",\"index\":0,\"delta\":{\"type\":"
				       "\"text_delta\",\"text\":\"%llu\"}}\n\n"
				     : "data: %llu\n\n",
			       (unsigned long long)clock_mono());
		len = snprintf(framed, sizeof(framed), "%x\r\n%s\r\n", (unsigned int)len, event);
		if (!put(c, framed, (size_t)len))
			return false;
	}
	return put(c, "0\r\n\r\n", 5);
}

static bool answer(struct conn *c)
{
	char head[HEAD_MAX], reply[128];
	uint64_t n;
	int len;

	if (!read_until(c, "\r\n\r\n", head, sizeof(head)))
		return false;
	n = strchr(head, '?') ? strtoull(strchr(head, '?') + 1, NULL, 10) : 0;
	if (!skip_bytes(c, length_of(head)))
		return false;
	if (strstr(head, " /sse"))
		return put_events(c, n, false, EVENT_NS);
	if (strstr(head, " /v1/messages"))
		return put_events(c, n, true, n == MODEL_EVENTS ? MANY_NS : EVENT_NS);
	if (!strstr(head, " /get"))
		n = 2;
	len = snprintf(reply, sizeof(reply), "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n",
		       (unsigned long long)n);
	return put(c, reply, (size_t)len) && put_bytes(c, n);
}

static SSL_CTX *server_context(const char *cert, const char *key)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

	if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1 ||
	    SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
		die("cannot use the certificate");
	return ctx;
}

static void serve_conn(struct conn *c, SSL_CTX *ctx)
{
	if (c->fd < 0)
		return;
	no_delay(c->fd);
	c->ssl = SSL_new(ctx);
	(void)SSL_set_fd(c->ssl, c->fd);
	if (SSL_accept(c->ssl) == 1)
		while (answer(c))
			;
	conn_close(c);
}

_noreturn_ static void run_server(char **args)
{
	SSL_CTX *ctx = server_context(args[1], args[2]);
	int l = listen_on(args[0]);

	for (int i = 1; i < WORKERS; i++)
		if (fork() == 0)
			break;
	for (;;) {
		struct conn c = { .fd = accept4(l, NULL, NULL, SOCK_CLOEXEC) };

		serve_conn(&c, ctx);
	}
}

_noreturn_ static void run_forks(char **args)
{
	SSL_CTX *ctx = server_context(args[1], args[2]);
	int l = listen_on(args[0]);

	for (;;) {
		struct conn c = { .fd = accept4(l, NULL, NULL, SOCK_CLOEXEC) };

		if (c.fd < 0)
			continue;
		if (fork() == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			serve_conn(&c, ctx);
			_exit(0);
		}
		(void)close(c.fd);
	}
}

/* ---- the origin for any number of connections ---- */

struct guest {
	SSL *ssl;
	int fd;
	unsigned int matched; /* bytes of the empty line that ends a head */
};

static void guest_free(struct guest *g)
{
	SSL_free(g->ssl);
	(void)close(g->fd);
	free(g);
}

/* Answers each head; requests have no body. */
static bool answer_heads(struct guest *g, const char *data, size_t n)
{
	static const char end[] = "\r\n\r\n",
			  reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	size_t done;

	for (size_t i = 0; i < n; i++) {
		g->matched = data[i] == end[g->matched] ? g->matched + 1 : data[i] == '\r';
		if (g->matched < sizeof(end) - 1)
			continue;
		g->matched = 0;
		if (SSL_write_ex(g->ssl, reply, sizeof(reply) - 1, &done) != 1)
			return false;
	}
	return true;
}

/* False: the connection is over. */
static bool serve_guest(struct guest *g)
{
	size_t n;
	int r;

	ERR_clear_error();
	r = SSL_do_handshake(g->ssl);
	while (r == 1 && (r = SSL_read_ex(g->ssl, chunk, sizeof(chunk), &n)) == 1)
		if (!answer_heads(g, chunk, n))
			return false;
	return SSL_get_error(g->ssl, r) == SSL_ERROR_WANT_READ;
}

static void take_guests(int ep, int l, SSL_CTX *ctx)
{
	int fd;

	while ((fd = accept4(l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		struct guest *g = calloc(1, sizeof(*g));
		struct epoll_event ev = { .events = EPOLLIN, .data.ptr = g };

		if (!g || !(g->ssl = SSL_new(ctx)) || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) < 0)
			die("cannot take a connection");
		g->fd = fd;
		no_delay(fd);
		(void)SSL_set_fd(g->ssl, fd);
		SSL_set_accept_state(g->ssl);
	}
}

_noreturn_ static void run_crowd(char **args)
{
	SSL_CTX *ctx = server_context(args[1], args[2]);
	int l = listen_on(args[0]), ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = { .events = EPOLLIN }, got[CROWD_BATCH];

	(void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
	if (fcntl(l, F_SETFL, O_NONBLOCK) < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, l, &ev) < 0)
		die("cannot wait for connections");
	for (;;) {
		int n = epoll_wait(ep, got, CROWD_BATCH, -1);

		for (int i = 0; i < n; i++) {
			struct guest *g = got[i].data.ptr;

			if (!g)
				take_guests(ep, l, ctx);
			else if (!serve_guest(g))
				guest_free(g);
		}
	}
}

/* ---- hutch-tap ---- */

static void start_tap(const char *program, int warden, int keeper)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* First away from the numbers that hutch-tap expects. */
		warden = fcntl(warden, F_DUPFD, 20);
		keeper = fcntl(keeper, F_DUPFD, 20);
		if (dup2(warden, TAP_FD_WARDEN) < 0 || dup2(keeper, TAP_FD_KEEPER) < 0 ||
		    close_range(TAP_FD_KEEPER + 1, ~0U, 0) < 0)
			die("cannot pass the sockets");
		(void)execle(program, "hutch-tap", NULL, (char *[]){ NULL });
		die(program);
	}
	(void)printf("%d\n", (int)pid);
	(void)fflush(stdout);
}

static void send_config(int fd, const char *path)
{
	_cleanup_close_ int from = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int to = memfd_create("config", MFD_CLOEXEC);
	ssize_t n;

	while ((n = read(from, chunk, sizeof(chunk))) > 0)
		if (write(to, chunk, (size_t)n) != n)
			die("cannot copy the configuration");
	if (n < 0 || lseek(to, 0, SEEK_SET) < 0 ||
	    tap_send(fd, &(struct tap_message){ .kind = TAP_CONFIG }, &to, 1) < 0)
		die("cannot send the configuration");
}

static void hand_over(int keeper, int client, const char *server)
{
	static uint64_t stream;
	struct tap_message m = {
		.kind = TAP_OPEN,
		.open = { .stream = ++stream, .protocol = TAP_ONLY_TLS, .port = 443 }
	};
	_cleanup_close_ int near = client;
	_cleanup_close_ int far = connect_to(server);

	no_delay(near);
	(void)snprintf(m.open.host, sizeof(m.open.host), "%s", host);
	(void)fcntl(near, F_SETFL, O_NONBLOCK);
	(void)fcntl(far, F_SETFL, O_NONBLOCK);
	if (tap_send(keeper, &m, (int[]){ near, far }, 2) < 0)
		die("hutch-tap takes no stream");
}

_noreturn_ static void run_tap(char **args)
{
	int l = listen_on(args[0]), warden[2], keeper[2], files[2];
	struct tap_message m;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, warden) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, keeper) < 0)
		die("cannot make sockets");
	start_tap(args[2], warden[1], keeper[1]);
	(void)close(warden[1]);
	(void)close(keeper[1]);
	send_config(warden[0], args[3]);
	for (;;) {
		struct pollfd p[] = { { l, POLLIN, 0 }, { keeper[0], POLLIN, 0 } };
		int r = 0;

		if (poll(p, 2, -1) < 0)
			die("cannot wait");
		if (p[0].revents)
			hand_over(keeper[0], accept4(l, NULL, NULL, SOCK_CLOEXEC), args[1]);
		while (p[1].revents && (r = tap_receive(keeper[0], &m, files)) == 0)
			if (m.kind == TAP_END && m.end.result != TAP_DONE)
				(void)fprintf(stderr, "hutch-tap: %s %s\n",
					      tap_result_text(m.end.result), m.end.text);
		if (r < 0 && r != -EAGAIN)
			die("hutch-tap has ended");
	}
}

/* ---- the client ---- */

static SSL_CTX *trusting(const char *ca)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	if (SSL_CTX_load_verify_file(ctx, ca) != 1)
		die("cannot load the CA");
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	(void)SSL_CTX_set_alpn_protos(ctx, (const unsigned char *)"\x08http/1.1", 9);
	return ctx;
}

static void conn_open(struct conn *c, SSL_CTX *ctx, const char *port)
{
	c->n = 0;
	c->fd = connect_to(port);
	c->ssl = SSL_new(ctx);
	(void)SSL_set_fd(c->ssl, c->fd);
	(void)SSL_set_tlsext_host_name(c->ssl, host);
	(void)SSL_set1_host(c->ssl, host);
	if (SSL_connect(c->ssl) != 1)
		die("no TLS");
}

static void ask(struct conn *c, const char *method, const char *path, uint64_t n, uint64_t body)
{
	char head[512];
	int len =
		snprintf(head, sizeof(head),
			 "%s /%s?%llu HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\n"
			 "Authorization: Bearer placeholder-of-the-benchmark\r\nContent-Length: "
			 "%llu\r\n\r\n",
			 method, path, (unsigned long long)n, host, (unsigned long long)body);

	if (!put(c, head, (size_t)len) || !put_bytes(c, body))
		die("cannot send the request");
}

/* Reads the head of a response; its body's length. */
static uint64_t response(struct conn *c)
{
	char head[HEAD_MAX];

	if (!read_until(c, "\r\n\r\n", head, sizeof(head)) || !strstr(head, "HTTP/1.1 200"))
		die("no good response");
	return length_of(head);
}

static double stream(SSL_CTX *ctx, const char *port, uint64_t bytes, bool up)
{
	struct conn c;
	uint64_t start;

	conn_open(&c, ctx, port);
	start = clock_mono();
	ask(&c, up ? "PUT" : "GET", up ? "put" : "get", bytes, up ? bytes : 0);
	if (!skip_bytes(&c, response(&c)))
		die("the response was cut");
	start = clock_mono() - start;
	conn_close(&c);
	return (double)bytes / (1 << 20) / ((double)start / 1e9);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(double *v, size_t n, size_t percent)
{
	qsort(v, n, sizeof(*v), by_size);
	return v[n * percent / 100];
}

static void measure_opens(SSL_CTX *ctx, const char *port, double *us, size_t n, bool keep)
{
	struct conn c = { .fd = -EBADF };

	if (keep)
		conn_open(&c, ctx, port);
	for (size_t i = 0; i < n; i++) {
		uint64_t start = clock_mono();

		if (!keep)
			conn_open(&c, ctx, port);
		ask(&c, "GET", "small", 0, 0);
		if (!fill(&c))
			die("no response");
		us[i] = (double)(clock_mono() - start) / 1e3;
		if (!skip_bytes(&c, response(&c)))
			die("the response was cut");
		if (!keep)
			conn_close(&c);
	}
	if (keep)
		conn_close(&c);
}

static void measure_events(SSL_CTX *ctx, const char *port, double *us, size_t n)
{
	struct conn c;
	char line[256];

	conn_open(&c, ctx, port);
	ask(&c, "GET", "sse", n, 0);
	(void)response(&c);
	for (size_t i = 0; i < n;) {
		if (!read_until(&c, "\n", line, sizeof(line)))
			die("the events were cut");
		if (strncmp(line, "data: ", 6) == 0)
			us[i++] = (double)(clock_mono() - strtoull(line + 6, NULL, 10)) / 1e3;
	}
	conn_close(&c);
}

static void call_model(struct conn *c, uint64_t n)
{
	static const char body[] = "{\"model\":\"m\",\"max_tokens\":9,\"stream\":true}";
	char head[512];
	int len = snprintf(
		head, sizeof(head),
		"POST /v1/messages?%llu HTTP/1.1\r\nHost: %s\r\nContent-Length: %zu\r\n\r\n%s",
		(unsigned long long)n, host, strlen(body), body);

	if (!put(c, head, (size_t)len))
		die("cannot send the call");
	(void)response(c);
}

/* The delay of the next event. */
static double delta_delay(struct conn *c)
{
	char line[512], *text;

	while (read_until(c, "\n", line, sizeof(line))) {
		text = strstr(line, "\"text\":\"");
		if (text)
			return (double)(clock_mono() - strtoull(text + 8, NULL, 10)) / 1e3;
	}
	die("the events were cut");
}

static void measure_model(SSL_CTX *ctx, const char *port, double *us, size_t n)
{
	struct conn c;

	conn_open(&c, ctx, port);
	call_model(&c, n);
	for (size_t i = 0; i < n; i++)
		us[i] = delta_delay(&c);
	conn_close(&c);
}

/* Processes that begin one after the other, so that their events do not come at the same moment. */
static size_t measure_models(SSL_CTX *ctx, const char *port, double *us)
{
	int pipes[2];
	size_t n = 0;
	ssize_t k;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		die("no pipe");
	for (int i = 0; i < MODELS; i++)
		if (fork() == 0) {
			measure_model(ctx, port, us, MODEL_EVENTS);
			if (write(pipes[1], us, MODEL_EVENTS * sizeof(*us)) < 0)
				die("cannot write");
			_exit(0);
		}
	(void)close(pipes[1]);
	while ((k = read(pipes[0], (char *)us + n, MODEL_EVENTS * sizeof(*us))) > 0)
		n += (size_t)k;
	if (n != sizeof(*us) * MODELS * MODEL_EVENTS)
		die("not all calls came to their end");
	return MODELS * MODEL_EVENTS;
}

static void take_response(struct conn *c)
{
	if (!skip_bytes(c, response(c)))
		die("the response was cut");
}

static void hold(SSL_CTX *ctx, const char *port, size_t n)
{
	struct conn *v = calloc(n, sizeof(*v));
	uint64_t start = clock_mono();

	if (!v)
		die("no memory");
	(void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
	for (size_t i = 0; i < n; i++) {
		conn_open(&v[i], ctx, port);
		ask(&v[i], "GET", "small", 0, 0);
		take_response(&v[i]);
	}
	do {
		(void)printf("%.3f\n", (double)(clock_mono() - start) / 1e9);
		(void)fflush(stdout);
		if (getchar() != '\n')
			_exit(0); /* as if killed */
		start = clock_mono();
		for (size_t i = 0; i < n; i++)
			ask(&v[i], "GET", "small", 0, 0);
		for (size_t i = 0; i < n; i++)
			take_response(&v[i]);
	} while (true);
}

static void run_client(const char *what, char **args)
{
	static double us[COUNT_MAX];
	SSL_CTX *ctx = trusting(args[1]);
	uint64_t n = strtoull(args[2], NULL, 10);
	bool up = strcmp(what, "put") == 0;

	if (up || strcmp(what, "get") == 0) {
		(void)printf("%.1f\n", stream(ctx, args[0], n, up));
	} else {
		if (n == 0 || n > COUNT_MAX)
			die("bad count");
		if (strcmp(what, "hold") == 0)
			hold(ctx, args[0], n);
		else if (strcmp(what, "sse") == 0)
			measure_events(ctx, args[0], us, n);
		else if (strcmp(what, "models") == 0)
			n = measure_models(ctx, args[0], us);
		else if (strncmp(what, "model", 5) == 0)
			measure_model(ctx, args[0], us, n);
		else
			measure_opens(ctx, args[0], us, n, strcmp(what, "next") == 0);
		(void)printf("%.1f\n", quantile(us, n, strcmp(what, "model99") == 0 ? 99 : 50));
	}
	SSL_CTX_free(ctx);
}

static void allow_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		die("no limit of descriptors");
	l.rlim_cur = l.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &l);
}

int main(int argc, char **argv)
{
	allow_files();
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGCHLD, SIG_IGN);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	memset(chunk, 'x', sizeof(chunk));
	if (argc == 5 && strcmp(argv[1], "server") == 0)
		run_server(argv + 2);
	if (argc == 5 && strcmp(argv[1], "forks") == 0)
		run_forks(argv + 2);
	if (argc == 5 && strcmp(argv[1], "crowd") == 0)
		run_crowd(argv + 2);
	if (argc == 6 && strcmp(argv[1], "tap") == 0)
		run_tap(argv + 2);
	if (argc != 5) {
		(void)fprintf(stderr, "bench-tap: see the comment in tap-load.c\n");
		return 2;
	}
	run_client(argv[1], argv + 2);
	return 0;
}
