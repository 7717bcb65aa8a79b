/* SPDX-License-Identifier: Apache-2.0 */
/* Start and ready commands; the test plays the keeper at the other end of the connection. */
#include "unit.h"

#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/str.h"
#include "client/launch.h"
#include "fail.h"

enum {
	NEVER = -1,	  /* gets no answer */
	REFUSED = -2,	  /* closed instead of accepted */
	GOES = -3,	  /* the connection ends */
	HANGS = -4,	  /* accepted, and nothing else */
	LIMIT_MS = 60000, /* longer than any test */
};

struct world {
	struct loop *loop;
	struct link *link; /* the keeper's */
	struct loop_fd socket;
	const int *plan; /* the result of each command: an exit status, or one of the above */
	char said[256];	 /* the requested scripts; '&' after a detached one */
	unsigned int closed;
	struct launch *launch;
	bool done;
	struct err e;
};

/* ---- the keeper ---- */

static void flush(struct world *w)
{
	size_t n = 0;
	const void *data = link_pending(w->link, &n);

	/* The launch may have been freed. */
	if (n > 0)
		(void)send(w->socket.fd, data, n, MSG_NOSIGNAL);
	link_wrote(w->link, n);
}

static void answer(struct world *w, uint32_t ch, int what, bool detached)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);

	if (what == REFUSED)
		(void)link_close(w->link, ch, WIRE_TOO_MANY, "not now");
	if (what == NEVER || what == REFUSED || what == GOES)
		return;
	fields_put_number(&b, TAG_PID, 1);
	assert_int_equal(link_accept(w->link, ch, &b), 0);
	if (what == HANGS || detached)
		return;
	buf_reset(&b);
	fields_put_number(&b, TAG_CODE, (uint64_t)what);
	fields_put_number(&b, TAG_USER_US, 0);
	fields_put_number(&b, TAG_SYSTEM_US, 0);
	fields_put_number(&b, TAG_MAX_RSS, 0);
	assert_int_equal(link_eof(w->link, ch, 1), 0);
	assert_int_equal(link_eof(w->link, ch, 2), 0);
	assert_int_equal(link_msg(w->link, ch, WIRE_MSG_EXIT, &b), 0);
	assert_int_equal(link_close(w->link, ch, WIRE_DONE, NULL), 0);
}

static void on_opened(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
		      void *arg)
{
	struct world *w = arg;
	const char *text = NULL;
	size_t pos = 0, n = 0;
	bool detached = fields_has(f, TAG_DETACH);

	assert_int_equal(op, WIRE_OP_EXEC);
	while (fields_next(f, TAG_ARGV, &pos, &text, &n))
		;
	(void)snprintf(w->said + strlen(w->said), sizeof(w->said) - strlen(w->said), "%.*s%s ",
		       (int)n, text, detached ? "&" : "");
	answer(w, ch, *w->plan, detached);
	if (*w->plan == GOES)
		(void)shutdown(w->socket.fd, SHUT_RDWR);
	w->plan++;
}

static void on_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	((struct world *)arg)->closed++;
}

static void on_hello(struct link *l, const struct fields *f, void *arg)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	fields_put_number(&b, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&b, TAG_AGENT, "test");
	fields_put_number(&b, TAG_LANDLOCK, 1);
	assert_int_equal(link_hello(l, &b), 0);
}

static const struct link_ops keeper_ops = { .hello = on_hello,
					    .opened = on_opened,
					    .closed = on_closed };

static void on_socket(struct loop_fd *src, uint32_t events)
{
	struct world *w = src->arg;
	struct err e = ERR_INIT;
	char chunk[4096];
	ssize_t n = recv(src->fd, chunk, sizeof(chunk), MSG_DONTWAIT);

	if (n <= 0) {
		loop_del_fd(src);
		return;
	}
	assert_int_equal(link_feed(w->link, chunk, (size_t)n, &e), 0);
	flush(w);
}

/* ---- the launch ---- */

static void on_done(void *arg, const struct err *e)
{
	struct world *w = arg;

	assert_false(w->done);
	w->done = true;
	w->e = *e;
	w->launch = launch_free(w->launch);
	loop_stop(w->loop, 0);
}

static int begin(struct world *w, const int *plan, const struct launch_terms *t, struct err *e)
{
	int fds[2], r;

	*w = (struct world){ .plan = plan };
	r = loop_new(&w->loop);
	if (r < 0)
		return r;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(link_new(LINK_GUEST, &keeper_ops, w, &w->link), 0);
	link_with_client(w->link);
	w->socket = (struct loop_fd){ .cb = on_socket, .arg = w, .fd = fds[1] };
	assert_int_equal(loop_add_fd(w->loop, &w->socket, fds[1], EPOLLIN), 0);
	return launch_new(w->loop, fds[0], t, on_done, w, &w->launch, e);
}

static void end(struct world *w)
{
	w->launch = launch_free(w->launch);
	loop_del_fd(&w->socket);
	(void)fd_close(w->socket.fd);
	(void)link_free(w->link);
	(void)loop_free(w->loop);
}

/* Runs a launch to its end; end() frees the result. */
static void run(struct world *w, const int *plan, const char *start, const char *ready,
		uint64_t limit)
{
	const struct launch_terms t = { .start = start, .ready = ready, .limit_ms = limit };
	struct err e = ERR_INIT;

	assert_int_equal(begin(w, plan, &t, &e), 0);
	assert_false(w->done); /* callbacks come only from the loop */
	assert_int_equal(loop_run(w->loop), 0);
	assert_true(w->done);
}

TEST(both_commands)
{
	static const struct {
		const char *start, *ready, *said;
	} cases[] = {
		{ "s", "r", "s& r " },
		{ "s", NULL, "s& " },
		{ NULL, "r", "r " },
	};
	struct world w;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		run(&w, (const int[]){ 0, 0 }, cases[i].start, cases[i].ready, LIMIT_MS);
		assert_int_equal(w.e.num, 0);
		assert_string_equal(w.said, cases[i].said);
		end(&w);
	}
}

/* Repeated until it succeeds, after a pause each time. */
TEST(not_ready_yet)
{
	uint64_t before = clock_mono();
	struct world w;

	run(&w, (const int[]){ 1, 127, 0 }, NULL, "r", LIMIT_MS);
	assert_int_equal(w.e.num, 0);
	assert_string_equal(w.said, "r r r ");
	assert_true(clock_mono() - before >= 2 * 500 * NSEC_PER_MSEC);
	end(&w);
}

/* The limit ends a hung command, one that never succeeds, and a guest that does not answer. */
TEST(the_limit)
{
	static const struct {
		int plan[4];
		const char *start, *ready, *text;
	} cases[] = {
		{ { 0, HANGS }, "s", "r", "the ready command did not succeed within 1 s" },
		{ { 1, 1, 1, 1 }, NULL, "r", "the ready command did not succeed within 1 s" },
		{ { NEVER }, "s", NULL, "the start command did not succeed within 1 s" },
	};
	struct world w;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		run(&w, cases[i].plan, cases[i].start, cases[i].ready, 1000);
		assert_int_equal(w.e.num, -ETIME);
		assert_string_equal(w.e.msg, cases[i].text);
		end(&w);
	}
}

TEST(refused_and_gone)
{
	static const struct {
		int plan[2];
		const char *start, *text;
	} cases[] = {
		{ { REFUSED }, NULL, "the ready command: not now" },
		{ { REFUSED }, "s", "the start command: not now" },
		{ { GOES }, NULL, "the ready command: the sandbox has ended" },
		{ { GOES }, "s", "the start command: the sandbox has ended" },
		{ { 0, GOES }, "s", "the ready command: the sandbox has ended" },
	};
	struct world w;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		run(&w, cases[i].plan, cases[i].start, "r", LIMIT_MS);
		assert_int_equal(w.e.num, -EIO);
		assert_string_equal(w.e.msg, cases[i].text);
		end(&w);
	}
}

/* No caller waits: the hung command is ended, and no callback comes. */
TEST(dropped)
{
	const struct launch_terms t = { .ready = "r", .limit_ms = LIMIT_MS };
	struct err e = ERR_INIT;
	struct world w;

	assert_int_equal(begin(&w, (const int[]){ HANGS }, &t, &e), 0);
	while (!w.said[0])
		assert_int_equal(loop_once(w.loop, UINT64_MAX), 0);
	w.launch = launch_free(w.launch);
	while (w.socket.loop)
		assert_int_equal(loop_once(w.loop, UINT64_MAX), 0);
	assert_int_equal(w.closed, 1);
	assert_false(w.done);
	end(&w);
}

TEST(too_long)
{
	_cleanup_free_ char *script = malloc(2 * 1024 * 1024);
	struct launch_terms t = { .ready = script, .limit_ms = LIMIT_MS };
	struct err e = ERR_INIT;
	struct world w;

	assert_non_null(script);
	memset(script, 'x', 2 * 1024 * 1024);
	script[2 * 1024 * 1024 - 1] = '\0';
	assert_int_equal(begin(&w, (const int[]){ 0 }, &t, &e), -E2BIG);
	end(&w);
}

/* A launch that cannot begin leaves nothing open, including its connection. */
static int sweep_new(struct loop *loop)
{
	const struct launch_terms t = { .start = "s", .ready = "r", .limit_ms = LIMIT_MS };
	_cleanup_close_ int other = -EBADF;
	struct launch *l = NULL;
	struct err e = ERR_INIT;
	int fds[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	other = fds[1];
	r = launch_new(loop, fds[0], &t, on_done, NULL, &l, &e);
	assert_int_equal(r, e.num);
	assert_true((r == 0) == (l != NULL));
	(void)launch_free(l);
	return r;
}

TEST(every_failure_of_a_beginning)
{
	_cleanup_loop_ struct loop *loop = NULL;

	assert_int_equal(loop_new(&loop), 0);
	FAIL_SWEEP(sweep_new(loop));
}
