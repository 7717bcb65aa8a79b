/* SPDX-License-Identifier: Apache-2.0 */
#include "test-http.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"

TEST(test_answer_keep_alive)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/hello"));
	hear(&box, fd, &r, "hello");
	assert_has(&r, "HTTP/1.1 200 OK\r\n");
	assert_has(&r, "Content-Length: 5\r\n");
	assert_has(&r, "Content-Type: text/plain\r\n");
	assert_has(&r, " GMT\r\n");
	assert_has_not(&r, "Connection");
	buf_reset(&r);
	say(&box, fd, GET("/empty"));
	hear(&box, fd, &r, "\r\n\r\n");
	assert_has(&r, "HTTP/1.1 204 No Content\r\n");
	assert_has_not(&r, "Content-Length");
	buf_reset(&r);
	say(&box, fd, "HEAD /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
	hear(&box, fd, &r, NULL);
	assert_has(&r, "Content-Length: 5\r\n");
	assert_has(&r, "Connection: close\r\n\r\n");
	assert_has_not(&r, "hello");
	assert_int_equal(box.handled, 3);
	assert_int_equal(box.gone, 0);
	fd = fd_close(fd);
	wait_until(&box, http_server_connections(box.server) == 0);
}

TEST(test_http_1_0)
{
	BOX;
	_cleanup_close_ int fd = -EBADF, fd2 = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
	hear(&box, fd, &r, NULL);
	assert_has(&r, "Connection: close\r\n");
	assert_has(&r, "\r\n\r\nhello");
	buf_reset(&r);
	fd2 = client(&box);
	say(&box, fd2, "GET /stream HTTP/1.0\r\n\r\n");
	hear(&box, fd2, &r, "\r\n\r\n");
	assert_has_not(&r, "chunked");
	http_write(box.x, "abc", 3);
	http_write(box.x, "def", 3);
	http_end(box.x);
	hear(&box, fd2, &r, NULL);
	assert_has(&r, "\r\n\r\nabcdef");
}

TEST(test_fields)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd,
	    "GET /fields HTTP/1.1\r\nHost: h\r\nAccept: a\r\nX_y: z\r\nACCEPT: b\r\n\r\n");
	hear(&box, fd, &r, "Host=h;Accept=a, b;X_y=z;");
	say(&box, fd, "GET /wait?a=%20 HTTP/1.1\r\nHost: h\r\nX-Key: z\r\n\r\n");
	wait_until(&box, box.handled == 2);
	assert_string_equal(http_field(box.x, "x-key"), "z");
	assert_null(http_field(box.x, "x_y"));
	assert_string_equal(box.x->query, "a=%20");
	assert_int_equal(box.x->length, 0);
}

/* Requests sent at once are answered one after the other, in order. */
TEST(test_pipelining)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/hello") GET("/wait") GET("/empty"));
	hear(&box, fd, &r, "hello");
	wait_until(&box, box.handled == 2);
	turns(&box, 5);
	assert_int_equal(box.handled, 2);
	answer_text(box.x, 200, "waited");
	assert_int_equal(box.handled, 2); /* not from inside */
	hear(&box, fd, &r, "204");
	assert_has(&r, "waited");
	assert_int_equal(box.handled, 3);
}

/* The next request is not parsed while the answer before waits to be read. */
TEST(test_pipelining_behind_much)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	_cleanup_free_ char *data = malloc(16 << 20);

	assert_non_null(data);
	memset(data, 'x', 16 << 20);
	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/wait") GET("/hello"));
	wait_until(&box, box.handled == 1);
	http_answer(box.x, 200, "a/b", data, 16 << 20);
	turns(&box, 10);
	assert_int_equal(box.handled, 1);
	hear(&box, fd, &r, "hello");
	assert_true(r.len > 16 << 20);
}

TEST(test_many_pipelined)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	const char *p;
	int n = 0;

	box_open(&box, NULL);
	fd = client(&box);
	for (int i = 0; i < 500; i++) {
		say(&box, fd, GET("/hello"));
		if (i % 50 == 49)
			(void)hear_some(fd, &r);
	}
	(void)shutdown(fd, SHUT_WR);
	hear(&box, fd, &r, NULL);
	for (p = buf_text(&r); (p = strstr(p, "\r\n\r\nhello")); p++)
		n++;
	assert_int_equal(n, 500);
	assert_int_equal(box.gone, 0);
}

TEST(test_collect)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\nhello");
	turns(&box, 3);
	say(&box, fd, " world");
	hear(&box, fd, &r, "hello world");
	buf_reset(&r);
	say(&box, fd,
	    "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
	    "5\r\nhello\r\n");
	turns(&box, 3);
	say(&box, fd, "8\r\n chunks!\r\n0\r\n\r\n" GET("/empty"));
	hear(&box, fd, &r, "204");
	assert_has(&r, "\r\n\r\nhello chunks!HTTP/1.1 204");
	buf_reset(&r);
	say(&box, fd, "POST /echo HTTP/1.1\r\nHost: h\r\n\r\n" GET("/empty"));
	hear(&box, fd, &r, "204");
	assert_has(&r, "Content-Length: 0\r\n");
	assert_int_equal(box.gone, 0);
}

/* The answer comes before the body was sent, and the client can read it. */
static void collect_too_much(const char *request)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	char body[4096] = "";

	box_open(&box, NULL);
	fd = client(&box);
	memset(body, 'a', sizeof(body));
	say(&box, fd, request);
	say_n(&box, fd, body, sizeof(body));
	hear(&box, fd, &r, NULL);
	assert_has(&r, "HTTP/1.1 413 ");
	assert_has(&r, "Connection: close\r\n");
	assert_has(&r, "{\"code\":413,\"message\":\"");
	assert_int_equal(box.gone, 1);
}

TEST(test_collect_too_much)
{
	collect_too_much("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4096\r\n\r\n");
	collect_too_much("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
			 "1000\r\n");
}

TEST(test_body_passed)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	_cleanup_free_ char *body = malloc(1000000);

	assert_non_null(body);
	memset(body, 'x', 1000000);
	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, "PUT /pass HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
	say_n(&box, fd, body, 1000000);
	hear(&box, fd, &r, "passed");
	assert_int_equal(box.got.len, 1000000);
	assert_int_equal(box.ended, 1);
	buf_reset(&box.got);
	say(&box, fd,
	    "PUT /pass HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
	    "F4240\r\n");
	say_n(&box, fd, body, 1000000);
	say(&box, fd, "\r\n0\r\n\r\n");
	wait_until(&box, box.ended == 2);
	assert_int_equal(box.got.len, 1000000);
}

TEST(test_body_paused)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, "PUT /pass HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n");
	wait_until(&box, box.handled == 1);
	http_body_pause(box.x, true);
	say(&box, fd, "abcdef");
	turns(&box, 5);
	assert_int_equal(box.got.len, 0);
	assert_int_equal(box.ended, 0);
	http_body_pause(box.x, false);
	hear(&box, fd, &r, "passed");
	assert_string_equal(buf_text(&box.got), "abcdef");
}

TEST(test_expect)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd,
	    "PUT /pass HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
	hear(&box, fd, &r, "HTTP/1.1 100 Continue\r\n\r\n");
	say(&box, fd, "abc");
	hear(&box, fd, &r, "passed");
	buf_reset(&r);
	say(&box, fd,
	    "PUT /no HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
	hear(&box, fd, &r, NULL);
	assert_has(&r, "HTTP/1.1 404");
	assert_has(&r, "Connection: close");
	assert_has_not(&r, "100 Continue");
}

/* The server drops an unwanted body up to a limit. Past it, the server closes the connection,
 * but without a reset, so that the client sees the answer. */
TEST(test_body_dropped)
{
	BOX;
	_cleanup_close_ int fd = -EBADF, fd2 = -EBADF;
	_cleanup_free_ char *body = calloc(1, HTTP_SERVER_DRAIN);

	assert_non_null(body);
	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, "PUT /no HTTP/1.1\r\nHost: h\r\nContent-Length: 262144\r\n\r\n");
	say_n(&box, fd, body, HTTP_SERVER_DRAIN);
	say(&box, fd, GET("/hello"));
	hear(&box, fd, &r, "hello");
	assert_has(&r, "HTTP/1.1 404");
	buf_reset(&r);
	fd2 = client(&box);
	say(&box, fd2, "PUT /no HTTP/1.1\r\nHost: h\r\nContent-Length: 262145\r\n\r\n");
	hear(&box, fd2, &r, "nothing there");
	assert_has(&r, "Connection: close\r\n");
	for (int i = 0; i < 4; i++) /* no reset meanwhile */
		say_n(&box, fd2, body, HTTP_SERVER_DRAIN);
	fd2 = fd_close(fd2);
	wait_until(&box, http_server_connections(box.server) == 1);
}

/* Bytes read of an endless body before the connection is cut. */
static size_t endless(uint64_t head_ms)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	static char data[1 << 20];
	size_t total = 0;
	ssize_t k = 0;

	box.config.head_ms = head_ms;
	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd,
	    "PUT /no HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n");
	hear(&box, fd, &r, "nothing there");
	while (k >= 0) {
		k = send(fd, data, sizeof(data), MSG_DONTWAIT | MSG_NOSIGNAL);
		total += k > 0 ? (size_t)k : 0;
		if (k < 0 && errno == EAGAIN)
			k = 0;
		turn(&box);
	}
	assert_true(errno == EPIPE || errno == ECONNRESET);
	assert_int_equal(http_server_connections(box.server), 0);
	return total;
}

TEST(test_endless_body_is_cut)
{
	(void)endless(100);
	assert_in_range(endless(PATIENCE_MS), 1 << 20, 90 << 20);
}

TEST(test_stream)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/stream"));
	hear(&box, fd, &r, "\r\n\r\n");
	assert_has(&r, "Transfer-Encoding: chunked\r\n");
	assert_has_not(&r, "Content-Length");
	buf_reset(&r);
	http_write(box.x, "hello", 5);
	hear(&box, fd, &r, "hello\r\n");
	assert_string_equal(buf_text(&r), "5\r\nhello\r\n");
	http_write(box.x, "", 0); /* would be the end */
	http_write(box.x, "twelve bytes", 12);
	http_end(box.x);
	hear(&box, fd, &r, "0\r\n\r\n");
	assert_string_equal(buf_text(&r), "5\r\nhello\r\nc\r\ntwelve bytes\r\n0\r\n\r\n");
	buf_reset(&r);
	say(&box, fd, GET("/sized"));
	hear(&box, fd, &r, "\r\n\r\n");
	assert_has(&r, "Content-Length: 10\r\n");
	http_write(box.x, "01234", 5);
	http_write(box.x, "56789", 5);
	http_end(box.x);
	say(&box, fd, GET("/hello"));
	hear(&box, fd, &r, "hello");
	assert_has(&r, "\r\n\r\n0123456789HTTP/1.1 200");
	assert_int_equal(box.gone, 0);
}

/* The last piece and the end of the answer, with any framing. */
TEST(test_finish)
{
	BOX;
	_cleanup_close_ int fd = -EBADF, old = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	for (int i = 0; i < 2; i++) {
		buf_reset(&r);
		say(&box, fd, GET("/stream"));
		hear(&box, fd, &r, "\r\n\r\n");
		buf_reset(&r);
		http_write(box.x, "hello", 5);
		http_finish(box.x, "bye", i == 0 ? 3 : 0);
		hear(&box, fd, &r, "0\r\n\r\n");
		assert_string_equal(buf_text(&r), i == 0 ? "5\r\nhello\r\n3\r\nbye\r\n0\r\n\r\n"
							 : "5\r\nhello\r\n0\r\n\r\n");
	}
	buf_reset(&r);
	say(&box, fd, GET("/sized"));
	hear(&box, fd, &r, "\r\n\r\n");
	http_finish(box.x, "0123456789", 10);
	say(&box, fd, GET("/hello"));
	hear(&box, fd, &r, "hello");
	assert_has(&r, "\r\n\r\n0123456789HTTP/1.1 200");
	assert_int_equal(box.gone, 0);
	old = client(&box);
	buf_reset(&r);
	say(&box, old, "GET /stream HTTP/1.0\r\n\r\n");
	hear(&box, old, &r, "\r\n\r\n");
	http_finish(box.x, "abc", 3);
	hear(&box, old, &r, NULL);
	assert_has(&r, "\r\n\r\nabc");
}

/* Bytes that do not fit into the socket wait; the writer learns when to stop and when to
 * continue. */
TEST(test_full_and_room)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	_cleanup_free_ char *data = malloc(65536);
	size_t written = 0, more = 0;

	assert_non_null(data);
	memset(data, 'y', 65536);
	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/stream"));
	hear(&box, fd, &r, "\r\n\r\n");
	buf_reset(&r);
	for (; !http_full(box.x); written += 65536) {
		assert_true(written < REPLY_MAX / 2);
		http_write(box.x, data, 65536);
		turn(&box);
	}
	turns(&box, 5);
	assert_int_equal(box.rooms, 0);
	for (; box.rooms == 0; more++) {
		turn(&box);
		(void)hear_some(fd, &r);
		http_write(box.x, "y", 1);
	}
	assert_false(http_full(box.x));
	http_end(box.x);
	hear(&box, fd, &r, "\r\n0\r\n\r\n");
	assert_int_equal(r.len, written + written / 65536 * 9 + more * 6 + 5);
	assert_int_equal(box.rooms, 1);
}

/* Fewer or more bytes than announced are an incomplete answer. */
TEST(test_wrong_length)
{
	BOX;
	_cleanup_close_ int fd = -EBADF, fd2 = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/sized"));
	hear(&box, fd, &r, "\r\n\r\n");
	http_write(box.x, "012345678", 9);
	http_end(box.x);
	hear(&box, fd, &r, NULL);
	assert_int_equal(box.gone, 0);
	fd2 = client(&box);
	say(&box, fd2, GET("/sized"));
	wait_until(&box, box.handled == 2);
	http_write(box.x, "0123456789a", 11);
	assert_int_equal(box.gone, 0);
	wait_until(&box, box.gone == 1);
	wait_until(&box, http_server_connections(box.server) == 0);
}

static void bad_field(const char *name, const char *value, bool pieces)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/wait"));
	wait_until(&box, box.handled == 1);
	http_add_field(box.x, "X-Fine", "yes");
	http_add_field(box.x, name, value);
	if (pieces) {
		http_begin(box.x, 200, "text/plain", -1, NULL);
		http_write(box.x, "secret", 6);
		http_end(box.x);
	} else {
		answer_text(box.x, 200, "secret");
	}
	hear(&box, fd, &r, NULL);
	assert_has(&r, "HTTP/1.1 500 ");
	assert_has_not(&r, "Set-Cookie");
	assert_has_not(&r, "secret");
	assert_int_equal(box.gone, 0);
}

TEST(test_bad_field_is_500)
{
	for (int pieces = 0; pieces < 2; pieces++) {
		bad_field("X-Split", "a\r\nSet-Cookie: b", pieces);
		bad_field("X: y\r\nSet-Cookie", "b", pieces);
		bad_field("Content-length", "3", pieces);
		bad_field("", "3", pieces);
	}
}

/* The handler continues to write, and learns of the error from the loop. */
TEST(test_bad_field_in_pieces)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/wait"));
	wait_until(&box, box.handled == 1);
	http_begin(box.x, 200, "text/plain\r\nX: y", 3, NULL);
	http_write(box.x, "abc", 3);
	assert_int_equal(box.gone, 0);
	hear(&box, fd, &r, NULL);
	assert_int_equal(box.gone, 1);
	assert_has(&r, "HTTP/1.1 500 ");
	assert_has_not(&r, "X: y");
}

/* The same head as for GET, and no body that would be parsed as the next answer. */
TEST(test_head_in_pieces)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, "HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n" GET("/hello"));
	wait_until(&box, box.handled == 1);
	http_write(box.x, "abc", 3);
	http_end(box.x);
	hear(&box, fd, &r, "hello");
	assert_has(&r, "chunked\r\n\r\nHTTP/1.1 200 OK");
}

/* The server notices a client's disconnect in every state. */
static void client_goes(const char *request, bool reset)
{
	BOX;
	struct linger l = { 1, 0 };
	int fd;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, request);
	wait_until(&box, box.handled == 1);
	turns(&box, 3);
	assert_int_equal(box.gone, 0);
	if (reset)
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)), 0);
	(void)fd_close(fd);
	wait_until(&box, box.gone == 1);
	wait_until(&box, http_server_connections(box.server) == 0);
}

TEST(test_client_goes)
{
	static const char *const requests[] = {
		GET("/wait"),
		GET("/stream"),
		GET("/wait") GET("/hello"), /* unread bytes come before the end */
		"POST /wait HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc",
		"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc",
		"POST /pass HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc",
		"POST /pass HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		client_goes(requests[i], false);
		client_goes(requests[i], true);
	}
	client_goes(GET("/tunnel"), true);
}

/* An immediate answer reaches a client that has closed its sending side. */
TEST(test_half_close)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	assert_true(send(fd, GET("/hello"), STRLEN(GET("/hello")), 0) > 0);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	hear(&box, fd, &r, NULL);
	assert_has(&r, "hello");
	assert_int_equal(box.gone, 0);
}

TEST(test_cut)
{
	BOX;
	_cleanup_close_ int fd = -EBADF, fd2 = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/cut"));
	hear(&box, fd, &r, NULL);
	assert_int_equal(r.len, 0);
	fd2 = client(&box);
	say(&box, fd2, GET("/stream"));
	hear(&box, fd2, &r, "\r\n\r\n");
	http_cut(box.x);
	hear(&box, fd2, &r, NULL);
	assert_has_not(&r, "0\r\n\r\n");
	assert_int_equal(box.gone, 0);
	wait_until(&box, http_server_connections(box.server) == 0);
}

TEST(test_tunnel)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/tunnel") "first");
	hear(&box, fd, &r, "first");
	assert_string_equal(buf_text(&r), "first"); /* no bytes of ours */
	say(&box, fd, "second");
	hear(&box, fd, &r, "second");
	http_body_pause(box.x, true);
	say(&box, fd, "third");
	turns(&box, 3);
	assert_string_equal(buf_text(&box.got), "firstsecond");
	http_body_pause(box.x, false);
	hear(&box, fd, &r, "third");
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	wait_until(&box, box.eofs == 1);
	turns(&box, 3);
	assert_int_equal(box.gone, 0);
	http_write(box.x, "still here", 10);
	http_tunnel_eof(box.x);
	hear(&box, fd, &r, NULL);
	assert_string_equal(buf_text(&r), "firstsecondthirdstill here");
	wait_until(&box, box.gone == 1); /* both have ended */
	wait_until(&box, http_server_connections(box.server) == 0);
}

/* Our end of the tunnel, with much data pending. */
TEST(test_tunnel_end)
{
	BOX;
	_cleanup_close_ int fd = -EBADF;
	_cleanup_free_ char *data = malloc(16 << 20);

	assert_non_null(data);
	memset(data, 'x', 16 << 20);
	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/tunnel"));
	wait_until(&box, box.handled == 1);
	http_write(box.x, data, 16 << 20);
	http_end(box.x);
	say(&box, fd, "too late");
	hear(&box, fd, &r, NULL);
	assert_int_equal(r.len, 16 << 20);
	assert_int_equal(box.gone + box.eofs + (int)box.got.len, 0);
	fd = fd_close(fd);
	wait_until(&box, http_server_connections(box.server) == 0);
}

/* Half closed first: the full close is noticed although nothing is read. */
TEST(test_tunnel_client_goes)
{
	BOX;
	struct linger l = { 1, 0 };
	int fd;

	box_open(&box, NULL);
	fd = client(&box);
	say(&box, fd, GET("/tunnel"));
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	wait_until(&box, box.eofs == 1);
	turns(&box, 3);
	assert_int_equal(box.gone, 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)), 0);
	(void)fd_close(fd);
	wait_until(&box, box.gone == 1);
}
