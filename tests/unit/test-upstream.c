/* SPDX-License-Identifier: Apache-2.0 */
/* Responses of an HTTP proxy: whole, in pieces, and wrong. */
#include "unit.h"

#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "egress/upstream.h"

TEST(heads)
{
	static const struct {
		const char *s, *why;
	} rows[] = {
		{ "HTTP/1.1 200 OK\r\n\r\n", NULL },
		{ "HTTP/1.0 204\r\nA: b\r\n\r\n", NULL },
		{ "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", "the proxy answered 403" },
		{ "HTTP/1.1 100 Continue\r\n\r\n", "the proxy answered 100" },
		{ "HTTP/1.1 407 Who\r\n\r\n", "the proxy answered 407" },
		{ "HTTP/2.0 200 OK\r\n\r\n", "the proxy does not speak HTTP/1" },
		{ "HTTP/1.1 2000 OK\r\n\r\n", "the proxy does not speak HTTP/1" },
		{ "HTTP/1.1 +20 OK\r\n\r\n", "the proxy does not speak HTTP/1" },
		{ "HTTP/1.1  200 OK\r\n\r\n", "the proxy does not speak HTTP/1" },
		{ "SSH-2.0-OpenSSH\r\n\r\n", "the proxy does not speak HTTP/1" },
		{ "HTTP/1.9 200 OK\r\n\r\n", "the proxy does not speak HTTP/1" },
		{ "HTTP/1.1 200 OK\n\n", "the proxy does not speak HTTP/1" },
		{ "HTTP/1.1 200 OK\r\nA: b\n\nbytes\r\n\r\n", "the proxy does not speak HTTP/1" },
		{ "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", "the proxy does not speak HTTP/1" },
		{ "HTTP/1.1 200 OK\r\nA: \x01\r\n\r\n", "the proxy does not speak HTTP/1" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t n = strlen(rows[i].s);
		struct http_scan scan = { 0 };
		char why[UPSTREAM_WHY_MAX] = "";
		ssize_t r = 0;

		/* Every prefix; the bytes after it are not read. */
		for (size_t k = 1; k <= n && r == 0; k++) {
			char *copy = unit_copy(rows[i].s, k);

			r = upstream_parse(&scan, copy, k, why);
			free(copy);
		}
		if (!rows[i].why)
			assert_int_equal(r, n);
		else
			assert_true(r < 0);
		if (rows[i].why)
			assert_string_equal(why, rows[i].why);
	}
}

struct end {
	bool over;
	int fd;
};

static void on_done(struct upstream *u, int fd)
{
	struct end *end = u->arg;

	end->over = true;
	end->fd = fd;
}

/* Sends `answer` in pieces of `piece` bytes; `rest` gets what is left on the socket. */
static int talk(const char *answer, size_t piece, char rest[static 64])
{
	struct target t = { .port = 443, .name = { 7, "web.xyz" } };
	struct end end = { 0 };
	struct upstream u = { .done = on_done, .arg = &end };
	struct loop *l = NULL;
	char request[256];
	size_t n = strlen(answer);
	ssize_t got;
	int fds[2];

	assert_int_equal(loop_new(&l), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	assert_int_equal(upstream_start(&u, l, fds[0], &t), 0);
	got = read(fds[1], request, sizeof(request) - 1);
	assert_true(got > 0);
	request[got] = '\0';
	assert_string_equal(request, "CONNECT web.xyz:443 HTTP/1.1\r\nHost: web.xyz:443\r\n\r\n");
	for (size_t at = 0; at < n && !end.over; at += piece) {
		size_t k = MIN(piece, n - at);

		assert_int_equal(write(fds[1], answer + at, k), k);
		assert_int_equal(loop_once(l, 0), 0);
	}
	if (!end.over) {
		assert_int_equal(shutdown(fds[1], SHUT_WR), 0);
		assert_int_equal(loop_once(l, 0), 0);
	}
	assert_true(end.over);
	rest[0] = '\0';
	if (end.fd >= 0) {
		got = read(end.fd, rest, 63);
		rest[got > 0 ? got : 0] = '\0';
		(void)fd_close(end.fd);
	}
	upstream_stop(&u);
	(void)fd_close(fds[1]);
	(void)loop_free(l);
	return end.fd < 0 ? end.fd : 0;
}

TEST(only_the_head_is_taken)
{
	static const char answer[] = "HTTP/1.1 200 Fine\r\nVia: x\r\n\r\nfrom the server";
	char rest[64];

	assert_int_equal(talk(answer, sizeof(answer), rest), 0);
	assert_string_equal(rest, "from the server");
	for (size_t piece = 1; piece < 32; piece++) {
		assert_int_equal(talk(answer, piece, rest), 0);
		/* Bytes that were not sent yet cannot have been consumed. */
		assert_memory_equal(rest, "from the server", strlen(rest));
	}
}

TEST(what_is_no_answer)
{
	_cleanup_free_ char *long_head = calloc(1, 2 * UPSTREAM_HEAD_MAX);
	char rest[64];

	assert_int_equal(talk("HTTP/1.1 502 Bad\r\n\r\n", 64, rest), -ECONNREFUSED);
	assert_int_equal(talk("", 1, rest), -ECONNRESET);
	assert_int_equal(talk("HTTP/1.1 200", 64, rest), -ECONNRESET);
	assert_int_equal(talk("hello", 64, rest), -EPROTO);
	memset(long_head, 'a', 2 * UPSTREAM_HEAD_MAX - 1);
	memcpy(long_head, "HTTP/1.1 200 ", 13);
	assert_int_equal(talk(long_head, 1000, rest), -EPROTO);
}
