/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of hutchd that does over HTTP what bench-client does: runs one command after the other
 * on one connection, as process.Process/Start with a Connect stream. Prints how many nanoseconds
 * all of them took and how many bytes of answers came.
 *
 *   bench-http PORT SANDBOX TOKEN COUNT PROGRAM [ARGUMENT...]
 *
 * PORT is on 127.0.0.1. The client connects before the clock starts. An answer counts when it is
 * complete: the end of the command with status 0, then the last envelope. Anything else ends the
 * measurement.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json-util.h"
#include "http-lex/http-chunk.h"

enum {
	COUNT_MAX = 1000000,
	REQUEST_MAX = 64 * 1024,
	ANSWER_MAX = 1024 * 1024,
	READ_SIZE = 16 * 1024,
	ENVELOPE = 5,
	FLAG_END = 2,
};

struct client {
	int fd;
	struct buf request;
	struct buf in;	 /* raw bytes, from the head of the answer on */
	struct buf body; /* with the transfer coding removed */
	uint64_t bytes;
};

static int dial(const char *port, int *ret, struct err *e)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
	};
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int on = 1;

	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
	    connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		return err_errno(e, "cannot connect to port %s", port);
	*ret = TAKE_FD(fd);
	return 0;
}

/* ---- the request ---- */

static json_t *arguments(char **argv)
{
	json_t *list = json_array();

	for (; list && *argv; argv++)
		if (json_push(list, json_string(*argv)) < 0)
			return json_decref(list), NULL;
	return list;
}

static int make_request(struct buf *b, const char *box, const char *token, char **argv,
			struct err *e)
{
	_cleanup_json_ json_t *message =
		JSON_OBJECT({ "process", JSON_OBJECT({ "cmd", json_string(argv[0]) },
						     { "args", arguments(argv + 1) }) },
			    { "stdin", json_false() });
	_cleanup_free_ char *text = message ? json_write_line(message) : NULL;
	size_t n = text ? strlen(text) : 0;

	if (!text)
		return err_oom(e);
	(void)buf_printf(b,
			 "POST /process.Process/Start HTTP/1.1\r\nHost: 127.0.0.1\r\n"
			 "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\n"
			 "Content-Type: application/connect+json\r\nContent-Length: %zu\r\n\r\n",
			 box, token, ENVELOPE + n);
	(void)buf_put_be(b, 0, 1);
	(void)buf_put_be(b, n, ENVELOPE - 1);
	(void)buf_put(b, text, n);
	return b->err ? err_set(e, b->err, "the command is too long") : 0;
}

/* ---- the answer ---- */

static int more(struct client *c, struct err *e)
{
	char *room = buf_reserve(&c->in, READ_SIZE);
	ssize_t n = room ? RETRY_EINTR(read(c->fd, room, READ_SIZE)) : -1;

	if (!room)
		return err_set(e, -EMSGSIZE, "an answer has no end");
	if (n < 0)
		return err_errno(e, "cannot read from hutchd");
	if (n == 0)
		return err_set(e, -EPIPE, "hutchd has ended the connection");
	buf_commit(&c->in, (size_t)n);
	c->bytes += (size_t)n;
	return 0;
}

/* Reads the head and keeps the bytes after it. */
static int read_head(struct client *c, bool *ret_chunked, size_t *ret_length, struct err *e)
{
	const char *end = NULL, *length;
	int r = 0;

	while (r == 0 && !(end = strstr(buf_text(&c->in), "\r\n\r\n")))
		r = more(c, e);
	if (r < 0)
		return r;
	if (strncmp(c->in.data, "HTTP/1.1 200 ", 13) != 0)
		return err_set(e, -EPROTO, "hutchd says %.200s", buf_text(&c->in));
	length = strstr(c->in.data, "\r\nContent-Length: ");
	*ret_chunked = !length || length > end;
	*ret_length = *ret_chunked ? 0 : strtoul(length + 18, NULL, 10);
	buf_consume(&c->in, (size_t)(end - c->in.data) + 4);
	return 0;
}

static int read_chunks(struct client *c, struct err *e)
{
	struct http_chunk chunk = { 0 };
	int r = 0;

	while (r == 0 && chunk.state < HTTP_CHUNK_DONE) {
		const char *data;
		size_t n, took = 0;

		while (took < c->in.len && chunk.state < HTTP_CHUNK_DONE) {
			took += http_chunk_feed(&chunk, c->in.data + took, c->in.len - took, &data,
						&n);
			(void)buf_put(&c->body, data, n);
		}
		buf_consume(&c->in, took);
		if (chunk.state < HTTP_CHUNK_DONE)
			r = more(c, e);
	}
	return r == 0 && chunk.state == HTTP_CHUNK_BAD ? err_set(e, -EPROTO, "a bad chunk") : r;
}

static int read_body(struct client *c, struct err *e)
{
	bool chunked = false;
	size_t n = 0;
	int r = read_head(c, &chunked, &n, e);

	if (r < 0)
		return r;
	if (chunked)
		return read_chunks(c, e);
	while (r == 0 && c->in.len < n)
		r = more(c, e);
	if (r == 0) {
		(void)buf_put(&c->body, c->in.data, n);
		buf_consume(&c->in, n);
	}
	return r;
}

/* The last envelope must be the end of the stream without an error, the one before it the end of
 * the command. */
static int check(const struct client *c, struct err *e)
{
	struct reader in = reader_of(c->body.data, c->body.len);
	uint64_t flags = 0, n = 0;
	bool good = false;

	while (!in.err && reader_left(&in) > 0 && flags == 0) {
		const uint8_t *text;

		flags = reader_be(&in, 1);
		n = reader_be(&in, ENVELOPE - 1);
		text = reader_bytes(&in, (size_t)n);
		if (text && flags == 0)
			good = memmem(text, (size_t)n, "\"exitCode\":0,", 13);
	}
	if (in.err || flags != FLAG_END || n != 2 || !good)
		return err_set(e, -EPROTO, "the command did not end well: %.200s",
			       c->body.len > ENVELOPE ? c->body.data + ENVELOPE : "");
	return 0;
}

static int run_once(struct client *c, struct err *e)
{
	int r = fd_write_all(c->fd, c->request.data, c->request.len);

	if (r < 0)
		return err_set(e, r, "cannot write to hutchd: %s", strerror(-r));
	buf_reset(&c->body);
	r = read_body(c, e);
	return r < 0 ? r : check(c, e);
}

static int run(struct client *c, unsigned long count, uint64_t *ret_ns, struct err *e)
{
	uint64_t begin = clock_mono();
	int r = 0;

	for (unsigned long i = 0; r == 0 && i < count; i++)
		r = run_once(c, e);
	*ret_ns = clock_mono() - begin;
	return r;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 5 ? strtoul(argv[4], NULL, 10) : 0;
	struct client c = { .fd = -EBADF,
			    .request = BUF_INIT(REQUEST_MAX),
			    .in = BUF_INIT(ANSWER_MAX),
			    .body = BUF_INIT(ANSWER_MAX) };
	struct err e = ERR_INIT;
	uint64_t ns = 0;
	int r;

	if (count == 0 || count > COUNT_MAX) {
		(void)fprintf(stderr, "usage: bench-http PORT SANDBOX TOKEN COUNT PROGRAM "
				      "[ARGUMENT...]\n");
		return 2;
	}
	r = make_request(&c.request, argv[2], argv[3], argv + 5, &e);
	if (r == 0)
		r = dial(argv[1], &c.fd, &e);
	if (r == 0)
		r = run(&c, count, &ns, &e);
	if (r < 0)
		(void)fprintf(stderr, "bench-http: %s\n", e.msg);
	else
		(void)printf("%llu %llu\n", (unsigned long long)ns, (unsigned long long)c.bytes);
	buf_done(&c.request);
	buf_done(&c.in);
	buf_done(&c.body);
	(void)fd_close(c.fd);
	return r < 0;
}
