/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to a keeper, which the test plays. */
#include "unit.h"

#include <string.h>
#include <sys/socket.h>

#include "client/peer.h"

enum {
	MUCH = 150 * 1024, /* more than one read, less than the credit */
	ROOM = 1024 * 1024,
};

struct world {
	struct loop *loop;
	struct link *link; /* the keeper's */
	int fd;
	size_t got;
	enum wire_code code;
	bool closed;
};

/* ---- the keeper ---- */

static void on_hello(struct link *l, const struct fields *f, void *arg)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	fields_put_number(&b, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&b, TAG_AGENT, "test");
	fields_put_number(&b, TAG_LANDLOCK, 1);
	assert_int_equal(link_hello(l, &b), 0);
}

/* Sends everything at once. */
static void on_opened(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
		      void *arg)
{
	static const char zeros[MUCH];

	assert_int_equal(link_accept(l, ch, NULL), 0);
	assert_int_equal(link_data(l, ch, 0, zeros, sizeof(zeros)), MUCH);
	assert_int_equal(link_eof(l, ch, 0), 0);
	assert_int_equal(link_close(l, ch, WIRE_DONE, NULL), 0);
}

static const struct link_ops keeper_ops = { .hello = on_hello, .opened = on_opened };

/* Reads the request, answers, and disconnects. */
static void answer_and_go(struct world *w)
{
	struct err e = ERR_INIT;
	char chunk[4096];
	const void *data;
	size_t n = 0;
	ssize_t r;

	while ((r = recv(w->fd, chunk, sizeof(chunk), MSG_DONTWAIT)) > 0)
		assert_int_equal(link_feed(w->link, chunk, (size_t)r, &e), 0);
	while ((data = link_pending(w->link, &n)) && n > 0) {
		assert_int_equal(send(w->fd, data, n, MSG_DONTWAIT), n);
		link_wrote(w->link, n);
	}
	w->fd = fd_close(w->fd);
}

/* ---- the client ---- */

static void on_data(struct call *c, unsigned int stream, const char *data, size_t n, void *arg)
{
	((struct world *)arg)->got += n;
	peer_consumed(c, stream, n);
}

static void on_closed(struct call *c, enum wire_code code, const char *text, void *arg)
{
	struct world *w = arg;

	w->code = code;
	w->closed = true;
	loop_stop(w->loop, 0);
}

/* The keeper is gone when the first credit is returned; the remaining bytes are still read. */
TEST(the_last_words)
{
	static const struct call_ops ops = { .data = on_data, .closed = on_closed };
	_cleanup_buf_ struct buf none = BUF_INIT(16);
	const int room = ROOM;
	struct world w = { 0 };
	struct err e = ERR_INIT;
	struct peer *p = NULL;
	struct call *call;
	int fds[2];

	assert_int_equal(loop_new(&w.loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	w.fd = fds[1];
	assert_int_equal(setsockopt(w.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
	assert_int_equal(link_new(LINK_GUEST, &keeper_ops, &w, &w.link), 0);
	link_with_client(w.link);
	assert_int_equal(peer_new(w.loop, fds[0], NULL, NULL, &p, &e), 0);
	assert_int_equal(peer_call(p, WIRE_OP_TRACE, &none, &ops, &w, &call, &e), 0);
	answer_and_go(&w);
	assert_int_equal(loop_run(w.loop), 0);
	assert_true(w.closed);
	assert_int_equal(w.got, MUCH);
	assert_int_equal(w.code, WIRE_DONE);
	(void)peer_free(p);
	(void)link_free(w.link);
	(void)loop_free(w.loop);
}
