/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "base/str.h"
#include "egress/front.h"

static struct front front;
static struct buf out = BUF_INIT(1024);

/* Feeds all bytes at once or one at a time, with the same result. Returns the number consumed. */
static size_t feed(const char *data, size_t n, size_t step)
{
	_cleanup_free_ char *copy = unit_copy(data, n);
	size_t used = 0;

	front = (struct front){ 0 };
	buf_reset(&out);
	while (used < n && front.state == FRONT_MORE) {
		size_t piece = MIN(step, n - used),
		       k = front_feed(&front, copy + used, piece, &out);

		assert_true(k == piece || front.state != FRONT_MORE);
		used += k;
	}
	return used;
}

static void takes(const char *data, size_t n, size_t head, enum front_kind kind, const char *host,
		  uint16_t port)
{
	char text[ADDR_TEXT_MAX];

	for (size_t step = 1; step <= n; step += n - 1) {
		assert_int_equal(feed(data, n, step), head);
		assert_int_equal(front.state, FRONT_DONE);
		assert_int_equal(front.kind, kind);
		assert_string_equal(front.target.is_addr ? addr_format(&front.target.addr, text)
							 : front.target.name.text,
				    host);
		assert_int_equal(front.target.port, port);
	}
}

static void refuses(const char *data, size_t n, enum front_result result)
{
	for (size_t step = 1; step <= n; step += n - 1) {
		(void)feed(data, n, step);
		assert_int_equal(front.state, FRONT_BAD);
		assert_int_equal(front.result, result);
	}
}

#define TAKES(data, more, ...) \
	takes(data more, sizeof(data more) - 1, sizeof(data) - 1, __VA_ARGS__)
#define REFUSES(data, result)  refuses(data, sizeof(data) - 1, result)
#define TAKES_HTTP(data, ...)  TAKES(data, "\x16\x03\x01", FRONT_CONNECT, __VA_ARGS__)
#define TAKES_SOCKS(data, ...) TAKES(data, "\x16\x03\x01", FRONT_SOCKS5, __VA_ARGS__)
#define VERSION_AND_END	       " HTTP/1.1\r\n\r\n"

TEST(http)
{
	TAKES_HTTP("CONNECT GitHub.com:443 HTTP/1.1\r\n\r\n", "github.com", 443);
	TAKES_HTTP("CONNECT github.com:22 HTTP/1.0\r\nHost: other.com\r\nX: y\r\n\r\n",
		   "github.com", 22);
	TAKES_HTTP("CONNECT 192.0.2.1:80" VERSION_AND_END, "192.0.2.1", 80);
	TAKES_HTTP("CONNECT [2001:db8::1]:80" VERSION_AND_END, "[2001:db8::1]", 80);
}

TEST(wrong_http)
{
	REFUSES("GET http://github.com/ HTTP/1.1\r\n\r\n", FRONT_UNSUPPORTED);
	REFUSES("\r\n\r\n", FRONT_UNSUPPORTED);
	REFUSES("connect github.com:443" VERSION_AND_END, FRONT_UNSUPPORTED);
	REFUSES("CONNECT github.com:443\r\n\r\n", FRONT_MALFORMED);
	REFUSES("CONNECT github.com:443 HTTP/2.0\r\n\r\n", FRONT_MALFORMED);
	REFUSES("CONNECT github.com:443 HTTP/1.2\r\n\r\n", FRONT_MALFORMED);
	REFUSES("CONNECT github.com:443 HTTP/1.1\n\n", FRONT_MALFORMED);
	REFUSES("CONNECT github.com:443 HTTP/1.1\r\nA: b\n\r\n", FRONT_MALFORMED);
	REFUSES("CONNECT github.com:443 HTTP/1.1\r\nA: b\rc\r\n\r\n", FRONT_MALFORMED);
	REFUSES("CONNECT github.com:443 HTTP/1.1\r\nA: \0\r\n\r\n", FRONT_MALFORMED);
	REFUSES("CONNECT github.com:443 HTTP/1.1\r\nA: \x0b\r\n\r\n", FRONT_MALFORMED);
	REFUSES("CONNECT github.com\0.evil.com:443" VERSION_AND_END, FRONT_MALFORMED);
	REFUSES("CONNECT github.com" VERSION_AND_END, FRONT_MALFORMED);
	REFUSES("CONNECT github.com:0" VERSION_AND_END, FRONT_MALFORMED);
	REFUSES("CONNECT  github.com:443" VERSION_AND_END, FRONT_MALFORMED);
	REFUSES("CONNECT user@github.com:443" VERSION_AND_END, FRONT_MALFORMED);
	REFUSES("CONNECT 127.1:443" VERSION_AND_END, FRONT_MALFORMED);
	REFUSES("CONNECT 10.0.0.0/8:443" VERSION_AND_END, FRONT_MALFORMED);
	REFUSES("CONNECT .github.com:443" VERSION_AND_END, FRONT_MALFORMED);
}

/* A head has a maximum length, and its first line a smaller one. */
TEST(long_http)
{
	static char head[FRONT_HEAD_MAX + 1];
	static const char first[] = "CONNECT a.example:1 HTTP/1.1\r\n";
	size_t n = sizeof(first) - 1;

	memset(head, 'x', sizeof(head));
	(void)feed(head, sizeof(head), 1000);
	assert_int_equal(front.state, FRONT_BAD);
	memcpy(head, first, n);
	(void)feed(head, sizeof(head), 1000);
	assert_int_equal(front.state, FRONT_BAD);
	memcpy(head + FRONT_HEAD_MAX - 4, "\r\n\r\n", 4);
	assert_int_equal(feed(head, sizeof(head), 1000), FRONT_HEAD_MAX);
	assert_int_equal(front.state, FRONT_DONE);
}

#define HELLO "\5\1\0"

TEST(socks)
{
	static const char ok[] = { 5, 0 };

	TAKES_SOCKS(HELLO "\5\1\0\3\12GitHub.com\1\xbb", "github.com", 443);
	assert_int_equal(out.len, 2);
	assert_memory_equal(out.data, ok, 2);
	TAKES_SOCKS("\5\2\2\0\5\1\0\1\xc0\0\2\1\0\x50", "192.0.2.1", 80);
	TAKES_SOCKS(HELLO "\5\1\0\4\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1\0\x50", "[2001:db8::1]",
		    80);
	TAKES_SOCKS(HELLO "\5\1\0\3\x09"
			  "192.0.2.1\0\x50",
		    "192.0.2.1", 80);
}

TEST(socks_with_a_password)
{
	char longest[2 + 1 + 513 + 10] = "\5\1\2\1\xff";
	const char said[] = { 5, 2, 1, 0 };

	TAKES_SOCKS("\5\1\2\1\4user\6secret\5\1\0\1\xc0\0\2\1\0\x50", "192.0.2.1", 80);
	assert_int_equal(out.len, 4);
	assert_memory_equal(out.data, said, 4);
	TAKES_SOCKS("\5\1\2\1\0\0\5\1\0\1\xc0\0\2\1\0\x50", "192.0.2.1", 80);
	longest[3 + 2 + 255] = (char)0xff;
	memcpy(longest + 3 + 513, "\5\1\0\1\xc0\0\2\1\0\x50", 10);
	takes(longest, sizeof(longest), sizeof(longest), FRONT_SOCKS5, "192.0.2.1", 80);
}

TEST(wrong_socks)
{
	REFUSES("\5\0", FRONT_UNSUPPORTED);
	REFUSES("\5\1\1", FRONT_UNSUPPORTED);
	assert_int_equal(out.len, 2);
	assert_int_equal((uint8_t)out.data[1], 0xff);
	assert_null(front.reason); /* the answer was sent */
	REFUSES("\5\1\2\2\0\0", FRONT_MALFORMED);
	REFUSES(HELLO "\5\2\0\1\xc0\0\2\1\0\x50", FRONT_UNSUPPORTED); /* BIND */
	REFUSES(HELLO "\5\3\0\1\xc0\0\2\1\0\x50", FRONT_UNSUPPORTED); /* UDP */
	REFUSES(HELLO "\4\1\0\1\xc0\0\2\1\0\x50", FRONT_MALFORMED);
	REFUSES(HELLO "\5\1\1\1\xc0\0\2\1\0\x50", FRONT_MALFORMED);
	REFUSES(HELLO "\5\1\0\2", FRONT_MALFORMED);
	REFUSES(HELLO "\5\1\0\1\xc0\0\2\1\0\0", FRONT_MALFORMED);
	REFUSES(HELLO "\5\1\0\3\0\0\x50", FRONT_MALFORMED);
	REFUSES(HELLO "\5\1\0\3\x0c"
		      "a.com\0evil.c\0\x50",
		FRONT_MALFORMED);
	REFUSES(HELLO "\5\1\0\3\x0a"
		      "10.0.0.0/8\0\x50",
		FRONT_MALFORMED);
}

TEST(replies)
{
	const char denied[] = { 5, 2, 0, 1, 0, 0, 0, 0, 0, 0 };

	buf_reset(&out);
	front_put_reply(&out, FRONT_CONNECT, FRONT_OK, NULL);
	assert_string_equal(buf_text(&out), "HTTP/1.1 200 Connection established\r\n\r\n");
	buf_reset(&out);
	front_put_reply(&out, FRONT_CONNECT, FRONT_DENIED, "no\r\nrule");
	assert_string_equal(buf_text(&out),
			    "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: "
			    "9\r\nConnection: close\r\nX-Hutch-Reason: no??rule\r\n\r\nno??rule\n");
	buf_reset(&out);
	front_put_reply(&out, FRONT_SOCKS5, FRONT_DENIED, "no rule");
	assert_int_equal(out.len, sizeof(denied));
	assert_memory_equal(out.data, denied, sizeof(denied));
}

TEST(every_reply_fits)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FRONT_REPLY_MAX);
	char reason[2 * FRONT_REASON_MAX];

	memset(reason, 'r', sizeof(reason));
	for (unsigned int i = 0; i < FRONT_RESULT_MAX; i++) {
		buf_reset(&b);
		front_put_reply(&b, FRONT_CONNECT, i, reason);
		assert_int_equal(b.err, 0);
		assert_true(str_has_prefix(buf_text(&b), "HTTP/1.1 "));
	}
}

static int done(void **state)
{
	buf_done(&out);
	return 0;
}

int main(void)
{
	return unit_run(NULL, done);
}
