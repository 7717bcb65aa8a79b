/* SPDX-License-Identifier: Apache-2.0 */
/* Slow, many, rude and disconnected clients, and exhausted resources. */
#include "test-http.h"

#include <malloc.h>
#include <sys/resource.h>

#define GET(path)  "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"
#define POST(path) "POST " path " HTTP/1.1\r\nHost: h\r\n"

enum {
	SHORT_MS = 60,
	CROWD = 20,
	IDLE_MAX = 2 * 1024, /* maximum heap bytes of an idle connection */
};

/* ---- time ---- */

TEST(test_idle_is_closed)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box.config.idle_ms = SHORT_MS;
	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/hello"));
	hear(&box, fd, &r, NULL);
	assert_true(str_has_suffix(buf_text(&r), "hello"));
	assert_int_equal(http_server_connections(box.server), 0);
}

/* A head that arrives byte by byte has a total deadline. */
TEST(test_slow_head)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	bool open = true;

	box.config.head_ms = SHORT_MS;
	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, "GET / HTTP/1.1\r\nHost: h\r\nX: ");
	while (open) {
		(void)send(fd, "a", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		turn(&box);
		open = hear_some(fd, &r);
	}
	assert_has(&r, "HTTP/1.1 408 ");
	assert_int_equal(box.handled, 0);
}

static void slow_body(const char *request)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box.config.body_ms = SHORT_MS;
	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, request);
	hear(&box, fd, &r, NULL);
	assert_has(&r, "HTTP/1.1 408 ");
	assert_int_equal(box.gone, 1);
}

TEST(test_slow_body)
{
	slow_body(POST("/echo") "Content-Length: 3\r\n\r\nab");
	slow_body(POST("/pass") "Transfer-Encoding: chunked\r\n\r\n5\r\nab");
}

/* Slow progress is not enough for a collected body. */
TEST(test_dripping_body)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	uint64_t next = clock_mono();
	bool open = true;

	box.config.body_ms = SHORT_MS;
	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, POST("/echo") "Content-Length: 1000\r\n\r\n");
	while (open) {
		if (clock_mono() > next) {
			(void)send(fd, "a", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
			next = clock_mono() + 10 * NSEC_PER_MSEC;
		}
		turn(&box);
		open = hear_some(fd, &r);
	}
	assert_has(&r, "HTTP/1.1 408 ");
	assert_int_equal(box.gone, 1);
}

/* A handler may take its time, before the body and after it. */
TEST(test_slow_handler)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	uint64_t until;

	box.config.body_ms = box.config.head_ms = box.config.idle_ms = SHORT_MS;
	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, POST("/wait") "Content-Length: 3\r\n\r\n");
	until = clock_mono() + 3 * SHORT_MS * NSEC_PER_MSEC;
	wait_until(&box, clock_mono() > until);
	assert_int_equal(box.gone, 0);
	http_body(box.x, &body_ops);
	http_body_pause(box.x, true);
	until = clock_mono() + 3 * SHORT_MS * NSEC_PER_MSEC;
	wait_until(&box, clock_mono() > until);
	assert_int_equal(box.gone, 0);
	http_body_pause(box.x, false);
	say(&box, fd, "abc");
	hear(&box, fd, &r, "passed");
}

/* A client with a short timeout for bodies, whose request the handler has. */
static int slow_client(struct box *box, const char *request)
{
	int fd;

	box->config.body_ms = SHORT_MS;
	box_open(box, NULL);
	fd = client(box);
	say(box, fd, request);
	wait_until(box, box->handled == 1);
	return fd;
}

/* A delay of the loop does not count against the client. */
TEST(test_slow_loop)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	fd = slow_client(&box, POST("/wait") "Content-Length: 3\r\n\r\n");
	http_body(box.x, &body_ops);
	assert_int_equal(send(fd, "abc", 3, 0), 3);
	(void)usleep(2 * SHORT_MS * 1000);
	hear(&box, fd, &r, "passed");
	assert_int_equal(box.gone, 0);
}

TEST(test_reader_stalls)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	_cleanup_free_ char *data = calloc(1, 1 << 20);

	assert_non_null(data);
	fd = slow_client(&box, GET("/stream"));
	while (box.gone == 0) {
		if (!http_full(box.x))
			http_write(box.x, data, 1 << 20);
		turn(&box);
	}
	assert_int_equal(http_server_connections(box.server), 0);
}

/* The server does not wait for a client that never reads its answer, although the handler is
 * long done. */
TEST(test_answer_is_not_taken)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	_cleanup_free_ char *data = calloc(1, 16 << 20);

	assert_non_null(data);
	fd = slow_client(&box, GET("/wait"));
	http_answer(box.x, 200, "a/b", data, 16 << 20);
	wait_until(&box, http_server_connections(box.server) == 0);
	assert_int_equal(box.gone, 0);
}

/* ---- number ---- */

TEST(test_longest_idle_makes_room)
{
	BOX;
	int fd[4];

	box.config.connections = 3;
	box_open(&box, NULL);
	for (int i = 0; i < 3; i++) {
		fd[i] = client(&box);
		say(&box, fd[i], GET("/hello"));
		hear(&box, fd[i], &r, "hello");
		buf_reset(&r);
	}
	say(&box, fd[0], GET("/hello")); /* now the second is the longest idle */
	hear(&box, fd[0], &r, "hello");
	buf_reset(&r);
	fd[3] = client(&box);
	hear(&box, fd[1], &r, NULL);
	assert_int_equal(r.len, 0);
	say(&box, fd[3], GET("/hello"));
	hear(&box, fd[3], &r, "hello");
	assert_int_equal(http_server_connections(box.server), 3);
	for (int i = 0; i < 4; i++)
		(void)fd_close(fd[i]);
}

TEST(test_over_the_limit)
{
	BOX;
	int busy[2];
	_cleanup_close_ int fd = -EBADF;

	box.config.connections = 2;
	box_open(&box, NULL);
	for (int i = 0; i < 2; i++) {
		busy[i] = client(&box);
		say(&box, busy[i], GET("/stream"));
		wait_until(&box, box.handled == i + 1);
	}
	fd = client(&box);
	say(&box, fd, POST("/echo") "Content-Length: 2\r\n\r\nab");
	hear(&box, fd, &r, NULL);
	assert_has(&r, "HTTP/1.1 503 ");
	assert_has(&r, "{\"code\":503,");
	assert_int_equal(box.handled, 2);
	assert_int_equal(box.gone, 0);
	for (int i = 0; i < 2; i++)
		(void)fd_close(busy[i]);
}

TEST(test_flood)
{
	BOX;
	int fd[200];

	box.config.connections = 2;
	box_open(&box, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(fd); i++) {
		fd[i] = client(&box);
		(void)send(fd[i], GET("/stream"), strlen(GET("/stream")),
			   MSG_DONTWAIT | MSG_NOSIGNAL);
		turns(&box, 3);
		assert_true(http_server_connections(box.server) <= 2 + 64);
	}
	assert_int_equal(http_server_connections(box.server), 2 + 64);
	for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
		(void)fd_close(fd[i]);
	wait_until(&box, http_server_connections(box.server) == 0);
}

/* Incomplete heads keep no other client out. */
TEST(test_half_heads)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	int half[4];

	box.config.connections = 2;
	box_open(&box, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(half); i++) {
		half[i] = client(&box);
		(void)send(half[i], "GET /", 5, MSG_DONTWAIT | MSG_NOSIGNAL);
		turns(&box, 3);
	}
	fd = client(&box);
	say(&box, fd, GET("/stream"));
	wait_until(&box, box.handled == 1);
	assert_int_equal(http_server_connections(box.server), 2);
	for (size_t i = 0; i < ARRAY_SIZE(half); i++)
		(void)fd_close(half[i]);
}

/* Without free file descriptors, connections wait in the queue and the loop does not spin. */
TEST(test_no_descriptors)
{
	BOX;
	_cleanup_close_ int fd = -EBADF, next = -EBADF;
	struct rlimit was, tight;
	int n = 0;

	box_open(&box, NULL);
	fd = client(&box);
	next = dup(0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	tight = (struct rlimit){ (rlim_t)next, was.rlim_max };
	next = fd_close(next);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	assert_true(send(fd, GET("/hello"), STRLEN(GET("/hello")), 0) > 0);
	for (uint64_t until = clock_mono() + 80 * NSEC_PER_MSEC; clock_mono() < until; n++)
		assert_int_equal(loop_once(box.loop, until), 0);
	assert_in_range(n, 1, 5);
	assert_int_equal(box.handled, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	hear(&box, fd, &r, "hello");
}

/* ---- refused ---- */

/* The connection ends with it: later bytes are never parsed as a request. */
static void refused(const char *text, const char *status)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, text);
	hear(&box, fd, &r, NULL);
	assert_true(str_has_prefix(buf_text(&r), "HTTP/1.1 "));
	assert_has(&r, status);
	assert_has(&r, "Content-Type: application/json\r\n");
	assert_has(&r, "Connection: close\r\n");
	assert_has(&r, "\"message\":\"");
	assert_null(strstr(strstr(buf_text(&r), "Date: ") + 1, "Date: ")); /* one answer */
	assert_has_not(&r, "smuggled");
	assert_int_equal(box.handled, box.gone);
}

TEST(test_refused)
{
	static const char *const heads[] = {
		"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"Content-Length: 5\r\nContent-Length: 0\r\n\r\n",
		"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
		"X: a\n\r\n",
		"X: a\r\n b\r\n\r\n",
		"Content-Length : 5\r\n\r\n",
		"Host: other\r\n\r\n",
		"X: \x01\r\n\r\n",
		/* after a valid head */
		"Transfer-Encoding: chunked\r\n\r\n0\n\n",
		"Transfer-Encoding: chunked\r\n\r\n0;x\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
	};
	char text[512];

	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		(void)snprintf(text, sizeof(text), POST("/echo") "%s" GET("/smuggled"), heads[i]);
		refused(text, " 400 ");
	}
	refused("GET /hello HTTP/2.0\r\nHost: h\r\n\r\n" GET("/smuggled"), " 505 ");
	refused("\x16\x03\x01\x02", " 400 ");
}

/* Malformed chunks after the answer has begun cannot be reported. */
TEST(test_breaks_behind_the_answer)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, POST("/no") "Transfer-Encoding: chunked\r\n\r\n");
	hear(&box, fd, &r, "nothing there");
	say(&box, fd, "zz\r\n" GET("/hello"));
	hear(&box, fd, &r, NULL);
	assert_has_not(&r, "hello");
	assert_int_equal(box.handled, 1);
}

/* ---- where they come from ---- */

static struct sockaddr_un listen_local(struct box *b, const struct unit_dir *dir)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct err e = ERR_INIT;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/sock", dir->path);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 5), 0);
	assert_int_equal(http_server_add(b->server, fd, NULL, &e), 0);
	return a;
}

static int client_local(const struct sockaddr_un *a)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (const struct sockaddr *)a, sizeof(*a)), 0);
	return fd;
}

TEST_IN_DIR(test_local)
{
	BOX;
	struct sockaddr_un a;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	a = listen_local(&box, *state);
	fd = client_local(&a);
	say(&box, fd, GET("/wait"));
	wait_until(&box, box.handled == 1);
	assert_true(box.x->local);
	assert_false(box.x->tls);
	assert_int_equal(box.x->uid, getuid());
	assert_int_equal(box.x->listener, 1);
	assert_string_equal(box.x->host, "h");
	fd = fd_close(fd);
	wait_until(&box, box.gone == 1);
	fd = client(&box);
	say(&box, fd, GET("/wait"));
	wait_until(&box, box.handled == 2);
	assert_false(box.x->local);
	assert_int_equal(box.x->listener, 0);
}

/* Bytes that a client wrote before it disconnected are not lost, even during a pause. */
TEST_IN_DIR(test_local_tunnel)
{
	BOX;
	struct sockaddr_un a;
	int fd;

	box_open(&box, NULL);
	a = listen_local(&box, *state);
	fd = client_local(&a);
	say(&box, fd, GET("/tunnel"));
	wait_until(&box, box.handled == 1);
	http_body_pause(box.x, true);
	say(&box, fd, "tail");
	(void)fd_close(fd);
	wait_until(&box, box.gone == 1);
	assert_string_equal(buf_text(&box.got), "tail");
}

TEST(test_not_a_socket)
{
	BOX;
	struct err e = ERR_INIT;
	int fds[2];

	box_open(&box, NULL);
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(http_server_add(box.server, fds[0], NULL, &e), -ENOTSOCK);
	(void)fd_close(fds[1]);
}

/* ---- the end ---- */

TEST(test_stop)
{
	BOX;
	_cleanup_close_ int idle = -EBADF, busy = -EBADF;

	box_open(&box, NULL);
	idle = client(&box);
	busy = client(&box);
	say(&box, busy, GET("/wait"));
	wait_until(&box, box.handled == 1);
	http_server_stop(box.server);
	hear(&box, idle, &r, NULL);
	assert_int_equal(r.len, 0);
	answer_text(box.x, 200, "done");
	hear(&box, busy, &r, NULL);
	assert_has(&r, "Connection: close\r\n");
	assert_has(&r, "done");
	busy = fd_close(busy);
	wait_until(&box, http_server_connections(box.server) == 0);
}

TEST(test_free_while_busy)
{
	BOX;
	_cleanup_close_ int a = -EBADF, b = -EBADF, c = -EBADF;

	box_open(&box, NULL);
	a = client(&box);
	say(&box, a, GET("/stream"));
	b = client(&box);
	say(&box, b, GET("/tunnel"));
	c = client(&box);
	say(&box, c, GET("/hello") "GET /");
	wait_until(&box, box.handled == 3);
	box.server = http_server_free(box.server);
	assert_int_equal(box.gone, 2);
}

/* ---- memory ---- */

static size_t heap(void)
{
	return mallinfo2().uordblks;
}

static void crowd_costs(const char *request, int connections)
{
	BOX;
	int fd[CROWD];
	size_t before;

	box_open(&box, NULL);
	for (int i = 0; i < CROWD; i++) {
		fd[i] = client(&box);
		say(&box, fd[i], request);
		hear(&box, fd[i], &r, "\r\n\r\n");
		buf_reset(&r);
	}
	turns(&box, 5);
	assert_int_equal(http_server_connections(box.server), connections);
	before = heap();
	box.server = http_server_free(box.server);
	if (!SANITIZED) {
		print_message("# %zu bytes each\n", (before - heap()) / CROWD);
		assert_in_range((before - heap()) / CROWD, 500, IDLE_MAX);
	}
	for (int i = 0; i < CROWD; i++)
		(void)fd_close(fd[i]);
}

TEST(test_those_that_wait_cost_little)
{
	_cleanup_buf_ struct buf upload = BUF_INIT(1 << 20);

	crowd_costs(GET("/hello"), CROWD);
	crowd_costs(GET("/stream"), CROWD);
	(void)buf_puts(&upload, POST("/echo") "Content-Length: 1000\r\n\r\n");
	while (upload.len < 1000 + STRLEN(POST("/echo") "Content-Length: 1000\r\n\r\n"))
		(void)buf_putc(&upload, 'x');
	crowd_costs(buf_text(&upload), CROWD);
}

/* ---- faults ---- */

static int faulty_exchange(struct box *b, int fd, struct buf *r)
{
	for (int i = 0; i < 2000; i++) {
		int k = loop_once(b->loop, clock_mono() + NSEC_PER_MSEC);

		if (k < 0)
			return k;
		if (!hear_some(fd, r))
			return strstr(buf_text(r), "streamed\r\n0\r\n\r\n") ? 0 : -ECONNRESET;
		if (b->stream) {
			http_write(b->stream, "streamed", 8);
			http_end(b->stream);
			b->stream = NULL;
		}
	}
	return -ETIME; /* no client may be left waiting */
}

static int faulty_life(int listener, const struct sockaddr_in *addr)
{
	static const char requests[] = POST(
		"/echo") "Transfer-Encoding: chunked\r\n\r\n"
			 "3\r\nabc\r\n0\r\n\r\n" POST("/pass") "Content-Length: 3\r\n\r\nabc"
							       "GET /stream HTTP/1.1\r\nHost: "
							       "h\r\nConnection: close\r\n\r\n";
	/* The client's memory does not count. */
	static char reply[4096], got[16];
	struct buf r = { .data = reply, .cap = sizeof(reply), .max = sizeof(reply) - 1 };
	struct box b = { .got = { .data = got, .cap = sizeof(got), .max = sizeof(got) - 1 } };
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct err e = ERR_INIT;
	int k;

	the_box = &b;
	reply[0] = '\0';
	b.config = (struct http_config){ .handle = on_request,
					 .gone = on_gone,
					 .arg = &b,
					 .connections = 5,
					 .head_ms = 1000,
					 .body_ms = 1000,
					 .idle_ms = 1000 };
	assert_int_equal(connect(fd, (const struct sockaddr *)addr, sizeof(*addr)), 0);
	assert_true(send(fd, requests, sizeof(requests) - 1, 0) > 0);
	k = loop_new(&b.loop);
	b.config.loop = b.loop;
	if (k == 0)
		k = http_server_new(&b.config, &b.server, &e);
	if (k == 0)
		k = http_server_add(b.server, dup(listener), NULL, &e);
	if (k == 0)
		k = faulty_exchange(&b, fd, &r);
	assert_int_not_equal(k, -ETIME);
	b.server = http_server_free(b.server);
	b.loop = loop_free(b.loop);
	return k;
}

static void drain_queue(int listener)
{
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
		(void)fd_close(fd);
}

static int faulty_round(int listener, const struct sockaddr_in *addr)
{
	int r = faulty_life(listener, addr);

	drain_queue(listener);
	return r;
}

TEST(test_faults)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int port;
	_cleanup_close_ int listener = listen_tcp(&port);

	a.sin_port = htons((uint16_t)port);
	assert_int_equal(faulty_round(listener, &a), 0);
	FAIL_SWEEP(faulty_round(listener, &a));
}
