/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that hutch-tap carries. The test is hutch-tap: it gets duplicates of both sockets and
 * moves the bytes itself. */
#include "test-broker.h"

enum {
	PAIRS_MAX = 8,
};

/* Streams that the broker has handed over. */
struct hands {
	struct desk desk; /* first: the broker's argument */
	int refuse;	  /* -errno for the next calls; 0: take */
	size_t n, asked;
	struct {
		uint64_t stream;
		enum rule_proto proto;
		int client, server;
		char early[64];
	} v[PAIRS_MAX];
};

static bool is_tapped(void *arg, const struct target *t, enum rule_proto proto)
{
	return !t->is_addr && t->name.text[0] == 'a' && proto != RULE_PROTO_TCP;
}

static bool is_name_tapped(void *arg, const struct name *name)
{
	return name->text[0] == 'a';
}

static int hand_over(void *arg, const struct broker_handover *h)
{
	struct hands *x = arg;

	x->asked++;
	if (x->refuse < 0)
		return x->refuse;
	assert_in_range(x->n, 0, PAIRS_MAX - 1);
	x->v[x->n].stream = h->stream;
	x->v[x->n].proto = h->proto;
	x->v[x->n].client = fcntl(h->client, F_DUPFD_CLOEXEC, 3);
	x->v[x->n].server = fcntl(h->server, F_DUPFD_CLOEXEC, 3);
	(void)snprintf(x->v[x->n].early, sizeof(x->v[x->n].early), "%.*s", (int)h->n_early,
		       (const char *)h->early);
	x->n++;
	return 0;
}

static const struct broker_ops ops = {
	.report = desk_report,
	.reply = desk_reply,
	.is_tapped = is_tapped,
	.is_name_tapped = is_name_tapped,
	.hand_over = hand_over,
};

static struct broker_conf conf_of(struct hands *x, struct world *w)
{
	struct broker_conf c = desk_conf(&x->desk, w);

	c.ops = &ops;
	c.arg = x;
	return c;
}

/* As hutch-tap closes a stream. */
static void let_go(struct hands *x, size_t i)
{
	(void)shutdown(x->v[i].client, SHUT_RDWR);
	(void)shutdown(x->v[i].server, SHUT_RDWR);
	(void)fd_close(x->v[i].client);
	(void)fd_close(x->v[i].server);
}

TEST_WITH(hands_over_and_counts, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct hands x = { 0 };
	struct broker_conf c = conf_of(&x, w);
	_listening_ l = world_listen("93.184.0.1", 443);
	int fd, srv;

	desk_start(&x.desk, &c, RULES("+.example.com:443"));
	fd = desk_open(&x.desk, "a.example.com:443");
	srv = world_accept(w, l);
	WORLD_UNTIL(w, x.n == 1);
	assert_ptr_equal(broker_tapped(x.desk.b, 99), NULL);
	assert_string_equal(broker_tapped(x.desk.b, x.v[0].stream)->name.text, "a.example.com");
	assert_int_equal(x.v[0].proto, RULE_PROTO_TLS);
	/* No check of the first bytes: that is the tap's work. */
	desk_put(fd, "anything", 8);
	world_expect(w, x.v[0].client, "anything", 8);
	desk_put(x.v[0].server, "out", 3);
	world_expect(w, srv, "out", 3);
	desk_put(srv, "in", 2);
	world_expect(w, x.v[0].server, "in", 2);
	desk_put(x.v[0].client, "answer", 6);
	let_go(&x, 0);
	broker_tap_ended(x.desk.b, x.v[0].stream, BROKER_OK, NULL);
	assert_int_equal(desk_last(&x.desk)->what, BROKER_END);
	assert_int_equal(desk_last(&x.desk)->reason, BROKER_OK);
	assert_int_equal(desk_last(&x.desk)->out, 3);
	assert_int_equal(desk_last(&x.desk)->in, 2);
	world_expect(w, fd, "answer", 6);
	world_expect_end(w, fd, 0);
	world_expect_end(w, srv, 0);
	(void)fd_close(fd);
	(void)fd_close(srv);
	(void)broker_free(x.desk.b);
}

/* Two streams whose numbers share a list in the broker's table, and one that was denied. */
TEST_WITH(finds_a_stream_among_many, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct hands x = { 0 };
	struct broker_conf c = conf_of(&x, w);
	_listening_ l = world_listen("93.184.0.1", 443);
	int fd[2], srv[2];

	desk_start(&x.desk, &c, RULES("+.example.com:443"));
	fd[0] = desk_open(&x.desk, "a.example.com:443");
	srv[0] = world_accept(w, l);
	for (int i = 1; i < BROKER_TAPPED_SETS; i++)
		(void)fd_close(desk_open(&x.desk, "a.example.org:443"));
	fd[1] = desk_open(&x.desk, "aa.example.com:443");
	srv[1] = world_accept(w, l);
	WORLD_UNTIL(w, x.n == 2);
	assert_int_equal(x.v[1].stream - x.v[0].stream, BROKER_TAPPED_SETS);
	assert_string_equal(broker_tapped(x.desk.b, x.v[0].stream)->name.text, "a.example.com");
	assert_string_equal(broker_tapped(x.desk.b, x.v[1].stream)->name.text, "aa.example.com");
	assert_null(broker_tapped(x.desk.b, x.v[0].stream + 1));
	for (int i = 0; i < 2; i++) {
		let_go(&x, (size_t)i);
		broker_tap_ended(x.desk.b, x.v[i].stream, BROKER_OK, NULL);
		assert_null(broker_tapped(x.desk.b, x.v[i].stream));
		assert_int_equal(broker_tapped(x.desk.b, x.v[1].stream) != NULL, i == 0);
		(void)fd_close(fd[i]);
		(void)fd_close(srv[i]);
	}
	(void)broker_free(x.desk.b);
}

TEST_WITH(other_streams_are_moved_here, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct hands x = { 0 };
	struct broker_conf c = conf_of(&x, w);
	_listening_ l = world_listen("93.184.0.1", 22);
	int fd[2], srv[2];

	desk_start(&x.desk, &c, RULES("+.example.com:22/tcp"));
	fd[0] = desk_open(&x.desk, "a.example.com:22"); /* tcp: no checks asked for */
	srv[0] = world_accept(w, l);
	fd[1] = desk_open(&x.desk, "b.example.com:22");
	srv[1] = world_accept(w, l);
	for (int i = 0; i < 2; i++) {
		desk_put(fd[i], "x", 1);
		world_expect(w, srv[i], "x", 1);
		(void)fd_close(fd[i]);
		(void)fd_close(srv[i]);
	}
	assert_int_equal(x.asked, 0);
	(void)broker_free(x.desk.b);
}

/* Sends the first bytes of a stream. `detail` NULL: they arrive; else why they do not. */
static void around(struct hands *x, int listener, const char *target, const void *data, size_t n,
		   const char *detail)
{
	const size_t ended = x->desk.ended;
	int fd = desk_open(&x->desk, target), srv = world_accept(x->desk.w, listener);

	desk_put(srv, "220", 3); /* a server may speak first */
	world_expect(x->desk.w, fd, "220", 3);
	desk_put(fd, data, n);
	if (detail) {
		WORLD_UNTIL(x->desk.w, x->desk.ended == ended + 1);
		assert_int_equal(desk_last(&x->desk)->reason, BROKER_CONTENT);
		assert_non_null(strstr(desk_last(&x->desk)->detail, detail));
		assert_int_equal(desk_last(&x->desk)->out, 0);
	} else {
		world_expect(x->desk.w, srv, data, n);
	}
	(void)fd_close(fd);
	(void)fd_close(srv);
	WORLD_UNTIL(x->desk.w, x->desk.ended == ended + 1);
}

/* The same to another name of the server, and then the end of file. */
static void around_eof(struct hands *x, int listener, const void *data, size_t n,
		       const char *detail)
{
	const size_t ended = x->desk.ended;
	int fd = desk_open(&x->desk, "b.example.com:22");
	int srv = world_accept(x->desk.w, listener);

	desk_put(fd, data, n);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	if (detail) {
		WORLD_UNTIL(x->desk.w, x->desk.ended == ended + 1);
		assert_non_null(strstr(desk_last(&x->desk)->detail, detail));
		assert_int_equal(desk_last(&x->desk)->out, 0);
	} else {
		world_expect(x->desk.w, srv, data, n);
	}
	(void)fd_close(fd);
	(void)fd_close(srv);
	WORLD_UNTIL(x->desk.w, x->desk.ended == ended + 1);
}

#define TEXT(s) (s), sizeof(s) - 1

/* A rule with /tcp for another name of a server, for its address, or for another port. */
TEST_WITH(tcp_does_not_lead_around_the_tap, world_setup, world_teardown)
{
	static const char *const targets[] = { "b.example.com:22", "93.184.0.1:22" };
	static const char asked[] = "so that hutch-tap reads them";
	struct world *w = WORLD(state);
	struct hands x = { 0 };
	struct broker_conf c = conf_of(&x, w);
	_listening_ l = world_listen("93.184.0.1", 22);
	uint8_t hello[2048];
	size_t n;

	c.has_tap = true;
	desk_start(&x.desk, &c, RULES("+.example.com:22/tcp", "+93.184.0.1:22/tcp"));
	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		n = desk_hello("a.example.com", false, 1, hello);
		around(&x, l, targets[i], hello, n, asked);
		n = desk_hello("b.example.com", true, 1000, hello);
		around(&x, l, targets[i], hello, n, "encrypted");
		around(&x, l, targets[i], TEXT("\x16\x03\x01\x00\x00"), "");
		around(&x, l, targets[i], TEXT("GET / HTTP/1.1\r\nHost: A.example.com:22\r\n\r\n"),
		       asked);
		around(&x, l, targets[i], TEXT("GET / HTTP/1.1\nHost: a.example.com\n\n"), "");
		around(&x, l, targets[i], TEXT("GET / HTTP/1.1\r\nHost: a_\r\n\r\n"), "host");
		n = desk_hello("b.example.com", false, 1000, hello);
		around(&x, l, targets[i], hello, n, NULL);
		n = desk_hello(NULL, false, 1000, hello);
		around(&x, l, targets[i], hello, n, NULL);
		around(&x, l, targets[i], TEXT("GET / HTTP/1.1\r\nHost: c.test\r\n\r\n"), NULL);
		around(&x, l, targets[i], TEXT("SSH-2.0-OpenSSH_9.2\r\n"), NULL);
	}
	/* A request without its end, and bytes that are none. */
	around_eof(&x, l, TEXT("GET / HTTP/1.1\r\nHost: a.example.com\r\n"), "ended before");
	n = desk_hello("a.example.com", false, 1000, hello);
	around_eof(&x, l, hello, n - 1, "ended before");
	around_eof(&x, l, TEXT("GET"), NULL);
	/* A tapped host's own port for another protocol. */
	around(&x, l, "a.example.com:22", TEXT("SSH-2.0-OpenSSH_9.2\r\n"), NULL);
	n = desk_hello(NULL, false, 1000, hello);
	around(&x, l, "a.example.com:22", hello, n, asked);
	n = desk_hello("b.example.com", false, 1000, hello);
	around(&x, l, "a.example.com:22", hello, n, asked);
	around(&x, l, "a.example.com:22", TEXT("GET / HTTP/1.1\r\nHost: 93.184.0.1\r\n\r\n"),
	       asked);
	(void)broker_free(x.desk.b);
}

TEST_WITH(waits_for_the_tap, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct hands x = { .refuse = -EAGAIN };
	struct broker_conf c = conf_of(&x, w);
	_listening_ l = world_listen("93.184.0.1", 443);
	int fd[2], srv[2];

	desk_start(&x.desk, &c, RULES("+.example.com:443"));
	for (int i = 0; i < 2; i++) {
		fd[i] = desk_open(&x.desk, "a.example.com:443");
		srv[i] = world_accept(w, l);
	}
	WORLD_UNTIL(w, x.asked == 2);
	x.refuse = 0;
	broker_offer(x.desk.b);
	assert_int_equal(x.n, 2);
	broker_offer(x.desk.b);
	assert_int_equal(x.n, 2);
	broker_tap_lost(x.desk.b, "hutch-tap ended");
	assert_int_equal(x.desk.ended, 2);
	assert_int_equal(desk_last(&x.desk)->reason, BROKER_TAP);
	assert_string_equal(desk_last(&x.desk)->detail, "hutch-tap ended");
	for (int i = 0; i < 2; i++) {
		let_go(&x, (size_t)i);
		world_expect_end(w, fd[i], -ECONNRESET);
		world_expect_end(w, srv[i], -ECONNRESET);
		(void)fd_close(fd[i]);
		(void)fd_close(srv[i]);
	}
	assert_int_equal(broker_budget(x.desk.b)->streams, 0);
	(void)broker_free(x.desk.b);
}

/* The tap still holds both sockets, and cannot use them. */
TEST_WITH(new_rules_cut_tapped, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct hands x = { 0 };
	struct broker_conf c = conf_of(&x, w);
	_listening_ l = world_listen("93.184.0.1", 443);
	int fd, srv;

	desk_start(&x.desk, &c, RULES("+.example.com:443"));
	fd = desk_open(&x.desk, "a.example.com:443");
	srv = world_accept(w, l);
	WORLD_UNTIL(w, x.n == 1);
	broker_set_rules(x.desk.b, RULES("+.example.com:443", "-a.example.com"));
	assert_int_equal(x.desk.ended, 1);
	assert_int_equal(desk_last(&x.desk)->reason, BROKER_POLICY);
	world_expect_end(w, srv, -ECONNRESET);
	world_expect_end(w, fd, -ECONNRESET);
	assert_true(send(x.v[0].server, "x", 1, MSG_NOSIGNAL) < 0);
	let_go(&x, 0);
	broker_tap_ended(x.desk.b, x.v[0].stream, BROKER_OK, NULL); /* too late: ignored */
	assert_int_equal(x.desk.ended, 1);
	(void)fd_close(fd);
	(void)fd_close(srv);
	(void)broker_free(x.desk.b);
}

/* A tap that lies: it reports the end and keeps its sockets. */
static void lie(struct world *w, bool half)
{
	struct hands x = { 0 };
	struct broker_conf c = conf_of(&x, w);
	_listening_ l = world_listen("93.184.0.1", 443);
	int fd, srv;
	char byte;

	desk_start(&x.desk, &c, RULES("+.example.com:443"));
	fd = desk_open(&x.desk, "a.example.com:443");
	srv = world_accept(w, l);
	WORLD_UNTIL(w, x.n == 1);
	if (half)
		assert_int_equal(shutdown(x.v[0].server, SHUT_WR), 0);
	broker_tap_ended(x.desk.b, x.v[0].stream, BROKER_OK, NULL);
	assert_int_equal(x.desk.ended, 1);
	assert_true(send(x.v[0].server, "x", 1, MSG_NOSIGNAL) < 0);
	if (half) {
		(void)send(srv, "x", 1, MSG_NOSIGNAL);
		assert_true(recv(x.v[0].server, &byte, 1, 0) <= 0);
	} else {
		world_expect_end(w, srv, -ECONNRESET);
	}
	let_go(&x, 0);
	(void)fd_close(fd);
	(void)fd_close(srv);
	(void)broker_free(x.desk.b);
}

TEST_WITH(an_ended_stream_is_closed, world_setup, world_teardown)
{
	lie(WORLD(state), false);
}

TEST_WITH(an_ended_stream_receives_nothing, world_setup, world_teardown)
{
	lie(WORLD(state), true);
}

/* The kernel counts, whatever the tap says. */
TEST_WITH(bytes_of_tapped_streams, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct hands x = { 0 };
	struct broker_conf c = conf_of(&x, w);
	_listening_ l = world_listen("93.184.0.1", 443);
	static const char zero[60000];
	int fd, srv;

	c.limits.bytes_out = 50000;
	desk_start(&x.desk, &c, RULES("+.example.com:443"));
	fd = desk_open(&x.desk, "a.example.com:443");
	srv = world_accept(w, l);
	WORLD_UNTIL(w, x.n == 1);
	desk_put(x.v[0].server, zero, sizeof(zero));
	WORLD_UNTIL(w, x.desk.ended == 1);
	assert_int_equal(desk_last(&x.desk)->reason, BROKER_BUDGET);
	assert_string_equal(desk_last(&x.desk)->detail, "bytes_out");
	assert_int_equal(broker_budget(x.desk.b)->out, 0);
	let_go(&x, 0);
	(void)fd_close(fd);
	(void)fd_close(srv);
	(void)broker_free(x.desk.b);
}

TEST_WITH(early_bytes_and_answer, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct hands x = { 0 };
	struct broker_conf c = conf_of(&x, w);
	_listening_ l = world_listen("93.184.0.1", 443);
	struct broker_request req = { .proxy = true, .early = "hello", .n_early = 5 };
	struct err e = ERR_INIT;
	int fds[2], srv;

	desk_start(&x.desk, &c, RULES("+.example.com:443"));
	assert_int_equal(target_parse("a.example.com:443", 17, &req.target, &e), 0);
	world_pair(fds);
	req.fd = fds[1];
	broker_open(x.desk.b, &req);
	srv = world_accept(w, l);
	WORLD_UNTIL(w, x.n == 1);
	assert_string_equal(x.v[0].early, "hello");
	world_expect(w, fds[0], "200\n", 4);
	let_go(&x, 0);
	broker_tap_ended(x.desk.b, x.v[0].stream, BROKER_TAP, "denied");
	assert_int_equal(x.desk.replies, 1);
	(void)fd_close(fds[0]);
	(void)fd_close(srv);
	(void)broker_free(x.desk.b);
}
