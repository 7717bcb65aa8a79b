/* SPDX-License-Identifier: Apache-2.0 */
/* A server on a loop whose handler does what the path says, and its clients. */
#pragma once

#include "unit.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/str.h"
#include "fail.h"
#include "http/http-server.h"

enum {
	PATIENCE_MS = 120000,
	REPLY_MAX = 64 * 1024 * 1024,
	BODY_LIMIT = 1000,
};

struct box {
	struct loop *loop;
	struct http_server *server;
	struct http_config config;
	int port;
	int handled, gone, ended, eofs, rooms;
	struct exchange *x;	 /* the last one */
	struct exchange *stream; /* answered in pieces */
	struct buf got;		 /* bytes that data() received */
};

/* There is one box at a time; callbacks of a body have no argument. */
static struct box *the_box;

static void answer_text(struct exchange *x, int status, const char *text)
{
	http_answer(x, status, "text/plain", text, strlen(text));
}

static void on_collected(struct exchange *x, const char *data, size_t n)
{
	assert_int_equal(data[n], '\0');
	http_answer(x, 200, "application/octet-stream", data, n);
}

static void on_data(struct exchange *x, const char *data, size_t n)
{
	assert_true(n > 0);
	assert_int_equal(buf_put(&the_box->got, data, n), 0);
}

static void on_end(struct exchange *x)
{
	the_box->ended++;
	answer_text(x, 200, "passed");
}

static void on_room(struct exchange *x)
{
	the_box->rooms++;
}

static void on_tunnel_data(struct exchange *x, const char *data, size_t n)
{
	on_data(x, data, n);
	http_write(x, data, n);
}

static void on_tunnel_eof(struct exchange *x)
{
	the_box->eofs++;
}

static const struct http_body body_ops = { on_data, on_end };
static const struct http_tunnel tunnel_ops = { on_tunnel_data, on_tunnel_eof, on_room };

static void show_fields(struct exchange *x)
{
	_cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
	const char *name, *value;

	for (size_t i = 0; http_field_at(x, i, &name, &value); i++)
		(void)buf_printf(&b, "%s=%s;", name, value);
	http_answer(x, 200, "text/plain", buf_text(&b), b.len);
}

static void on_request(struct exchange *x, void *arg)
{
	struct box *b = arg;

	b->handled++;
	b->x = x;
	assert_null(x->cookie);
	x->cookie = b;
	if (str_eq(x->path, "/hello"))
		answer_text(x, 200, "hello");
	else if (str_eq(x->path, "/fields"))
		show_fields(x);
	else if (str_eq(x->path, "/empty"))
		http_answer(x, 204, NULL, NULL, 0);
	else if (str_eq(x->path, "/echo"))
		http_collect(x, BODY_LIMIT, on_collected);
	else if (str_eq(x->path, "/pass"))
		http_body(x, &body_ops);
	else if (str_eq(x->path, "/stream"))
		b->stream = x, http_begin(x, 200, "text/plain", -1, on_room);
	else if (str_eq(x->path, "/sized"))
		http_begin(x, 200, "text/plain", 10, on_room);
	else if (str_eq(x->path, "/tunnel"))
		http_tunnel(x, &tunnel_ops);
	else if (str_eq(x->path, "/cut"))
		http_cut(x);
	else if (!str_eq(x->path, "/wait"))
		answer_text(x, 404, "nothing there");
}

static void on_gone(struct exchange *x, void *arg)
{
	struct box *b = arg;

	b->gone++;
	assert_ptr_equal(x->cookie, b);
	if (b->x == x)
		b->x = NULL;
	if (b->stream == x)
		b->stream = NULL;
}

static int listen_tcp(int *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static void box_open(struct box *b, struct http_tls *tls)
{
	struct err e = ERR_INIT;

	the_box = b;
	b->got.max = REPLY_MAX;
	assert_int_equal(loop_new(&b->loop), 0);
	b->config.loop = b->loop;
	b->config.handle = on_request;
	b->config.gone = on_gone;
	b->config.arg = b;
	b->config.connections = b->config.connections > 0 ? b->config.connections : 50;
	b->config.head_ms = b->config.head_ms > 0 ? b->config.head_ms : PATIENCE_MS;
	b->config.body_ms = b->config.body_ms > 0 ? b->config.body_ms : PATIENCE_MS;
	b->config.idle_ms = b->config.idle_ms > 0 ? b->config.idle_ms : PATIENCE_MS;
	assert_int_equal(http_server_new(&b->config, &b->server, &e), 0);
	assert_int_equal(http_server_add(b->server, listen_tcp(&b->port), tls, &e), 0);
}

static void box_close(struct box *b)
{
	b->server = http_server_free(b->server);
	b->loop = loop_free(b->loop);
	buf_done(&b->got);
	*b = (struct box){ 0 };
}

static int client(const struct box *b)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)b->port),
				 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static void turn(struct box *b)
{
	assert_int_equal(loop_once(b->loop, clock_mono() + 2 * NSEC_PER_MSEC), 0);
}

static void turns(struct box *b, int n)
{
	while (n-- > 0)
		turn(b);
}

#define wait_until(b, condition)                                                              \
	do {                                                                                  \
		uint64_t give_up_ = clock_mono() + 2 * (uint64_t)PATIENCE_MS * NSEC_PER_MSEC; \
		while (!(condition)) {                                                        \
			assert_true(clock_mono() < give_up_);                                 \
			turn(b);                                                              \
		}                                                                             \
	} while (0)

static void say_n(struct box *b, int fd, const char *s, size_t n)
{
	while (n > 0) {
		ssize_t k = send(fd, s, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (k < 0)
			assert_int_equal(errno, EAGAIN);
		else
			s += k, n -= (size_t)k;
		turn(b);
	}
}

static void say(struct box *b, int fd, const char *s)
{
	say_n(b, fd, s, strlen(s));
}

/* Appends received bytes to `r`; false at the end, or after a reset. */
static bool hear_some(int fd, struct buf *r)
{
	char part[16 * 1024];
	ssize_t k = recv(fd, part, sizeof(part), MSG_DONTWAIT);

	if (k < 0 && errno == EAGAIN)
		return true;
	if (k <= 0)
		return false;
	assert_int_equal(buf_put(r, part, (size_t)k), 0);
	return true;
}

/* Reads until `text`, or until the end (NULL). */
static void hear(struct box *b, int fd, struct buf *r, const char *text)
{
	uint64_t deadline = clock_mono() + 2 * (uint64_t)PATIENCE_MS * NSEC_PER_MSEC;
	const size_t n = text ? strlen(text) : 0;
	size_t looked = 0; /* bytes already searched, so that much data is not searched again */
	bool open = true, found = false;

	while (open && !found) {
		found = text && strstr(buf_text(r) + looked, text);
		if (found)
			break;
		looked = r->len > n ? r->len - n : 0;
		assert_true(clock_mono() < deadline);
		turn(b);
		open = hear_some(fd, r);
	}
	found = text && strstr(buf_text(r) + looked, text);
	if (text && !found)
		print_error("waited for: %s\ngot: %s\n", text, buf_text(r));
	assert_true(!text || found);
}

#define BOX                                                                       \
	_cleanup_buf_ __attribute__((unused)) struct buf r = BUF_INIT(REPLY_MAX); \
	_cleanup_(box_close) struct box box = { .config = { .loop = NULL } }

#define assert_has(b, text)                                               \
	do {                                                              \
		if (!strstr(buf_text(b), text))                           \
			print_error("no %s in: %s\n", text, buf_text(b)); \
		assert_non_null(strstr(buf_text(b), text));               \
	} while (0)

#define assert_has_not(b, text) assert_null(strstr(buf_text(b), text))
