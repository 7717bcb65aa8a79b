/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer of an HTTP proxy to CONNECT: the head cut at many places, then the same bytes over a
 * socket. The bytes behind the head belong to the server and must stay on the socket.
 */
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "egress/upstream.h"
#include "fuzz.h"

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

/* The text has bytes from us only. */
static void check_why(const char *why)
{
	static const char refused[] = "the proxy answered ";
	const size_t n = sizeof(refused) - 1;

	if (strcmp(why, "the proxy does not speak HTTP/1") == 0)
		return;
	assert(strncmp(why, refused, n) == 0);
	assert(strspn(why + n, "0123456789") == 3 && why[n + 3] == '\0');
}

static ssize_t parse(const char *s, size_t size)
{
	char why[UPSTREAM_WHY_MAX] = "";
	struct http_scan whole = { 0 }, rd = { 0 };
	ssize_t r = upstream_parse(&whole, s, size, why), k = 0;
	size_t step = size / 64 + 1;

	assert(r <= (ssize_t)size);
	if (r < 0)
		check_why(why);
	if (r > 0) {
		assert(r >= (ssize_t)STRLEN("HTTP/1.1 200\r\n\r\n") && s[9] == '2');
		assert(memcmp(s, "HTTP/1.", 7) == 0 && memcmp(s + r - 4, "\r\n\r\n", 4) == 0);
		assert(memmem(s, (size_t)r, "\r\n\r\n", 4) == s + r - 4);
	}
	for (size_t n = 0; n < size && k == 0; n += step) {
		k = upstream_parse(&rd, s, n, why);
		assert(k == 0 || k == r);
	}
	return r;
}

/* Sends `size` bytes and closes. Returns the end that carries the stream, or -errno. */
static int talk(const char *s, size_t size)
{
	const struct target t = { .port = 443, .name = { 5, "a.com" } };
	struct end end = { .fd = -EBADF };
	struct upstream u = { .done = on_done, .arg = &end };
	_cleanup_loop_ struct loop *l = NULL;
	_cleanup_close_ int ours = -EBADF;
	char request[256];
	int theirs;

	assert(loop_new(&l) == 0 && fd_socket_pair(SOCK_STREAM, &theirs, &ours) == 0);
	assert(upstream_start(&u, l, theirs, &t) == 0);
	/* Unread bytes would make close(2) reset the connection. */
	assert(recv(ours, request, sizeof(request), 0) > 0);
	assert(send(ours, s, size, MSG_NOSIGNAL) == (ssize_t)size);
	assert(shutdown(ours, SHUT_WR) == 0);
	while (!end.over)
		assert(loop_once(l, 0) == 0);
	upstream_stop(&u);
	return end.fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_close_ int fd = -EBADF;
	const char *s = (const char *)data;
	char rest[UPSTREAM_HEAD_MAX];
	ssize_t r;

	if (size == 0 || size > sizeof(rest))
		return 0;
	r = parse(s, size);
	fd = talk(s, size);
	assert((fd >= 0) == (r > 0));
	if (fd < 0)
		return 0;
	assert(recv(fd, rest, sizeof(rest), 0) == (ssize_t)size - r);
	assert(memcmp(rest, s + r, size - (size_t)r) == 0);
	return 0;
}
