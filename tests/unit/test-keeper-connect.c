/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of a guest with its own kernel to a keeper. The guest is a link that the test moves by
 * hand; servers and the resolver are those of test-egress.h, in a network namespace where public
 * addresses are reachable.
 */
#include "test-egress.h"

#include <sys/mman.h>
#include <time.h>

#include "fail.h"
#include "keeper/connect.h"
#include "keeper/greet.h"
#include "keeper/serve.h"
#include "test-chain.h"
#include "unit-engine.h"

enum {
	TALKS_MAX = 64,
	PORT = 7000,
	PATIENCE_S = 120,
	TELLINGS_MAX = 16, /* messages with the time */
};

struct talk {
	uint32_t ch;
	bool accepted, closed, eof;
	uint64_t code;
	char text[WIRE_TEXT_MAX + 1];
	size_t got, unread; /* bytes of stream 0 */
	char first[64];
	bool lazy; /* gives no credit */
};

struct box {
	struct world *w;
	struct spec spec;
	struct audit_chain chain;
	struct keeper k;
	struct link *guest; /* the guest's end */
	struct talk talks[TALKS_MAX];
	size_t n;
	unsigned int woken;
	uint64_t time; /* sent with the last wake */
};

static const char *allow[] = { "93.184.0.1:7000/tcp", ".allowed.test:7000/tcp",
			       "web.allowed.test:443", "198.18.0.0/15:7000", "127.0.0.1:5353" };

/* ---- the guest ---- */

static struct talk *talk_of(struct box *b, uint32_t ch)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->talks[i].ch == ch)
			return &b->talks[i];
	return NULL;
}

static void on_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	talk_of(arg, ch)->accepted = true;
}

static void on_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		    void *arg)
{
	struct talk *t = talk_of(arg, ch);

	assert_int_equal(stream, 0);
	if (t->got + n < sizeof(t->first))
		memcpy(t->first + t->got, data, n);
	t->got += n;
	t->unread += n;
	if (!t->lazy)
		assert_int_equal(link_consumed(l, ch, 0, n), 0);
}

static void on_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	talk_of(arg, ch)->eof = true;
}

static void on_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct talk *t = talk_of(arg, ch);
	const char *text = "";
	size_t pos = 0, n = 0;

	(void)fields_next(f, TAG_TEXT, &pos, &text, &n);
	if (!t)
		return;
	(void)snprintf(t->text, sizeof(t->text), "%.*s", (int)n, text);
	t->code = fields_number(f, TAG_CODE, 256);
	t->closed = true;
}

static void on_wake(struct link *l, const struct fields *f, void *arg)
{
	struct box *b = arg;

	assert_true(fields_has(f, TAG_SEED));
	b->time = fields_number(f, TAG_TIME, 0);
	b->woken++;
}

static const struct link_ops guest_ops = { .accepted = on_accepted,
					   .data = on_data,
					   .eof = on_eof,
					   .closed = on_closed,
					   .wake = on_wake };

static int move(struct link *from, struct link *to)
{
	struct err e = ERR_INIT;
	const void *data;
	size_t n;
	int r = 0;

	while (r == 0 && (data = link_pending(from, &n)) && n > 0) {
		char copy[4096];
		size_t k = MIN(n, sizeof(copy));

		memcpy(copy, data, k);
		link_wrote(from, k);
		r = link_feed(to, copy, k, &e);
	}
	return r;
}

/* One round of all parties; returns the result of move() of the guest's bytes. */
static int turn(struct box *b)
{
	int r = move(b->guest, b->k.guest.link);

	assert_int_equal(loop_once(b->k.loop, clock_mono() + NSEC_PER_MSEC), 0);
	assert_int_equal(loop_once(b->w->loop, 0), 0);
	keeper_round(&b->k);
	assert_int_equal(move(b->k.guest.link, b->guest), 0);
	assert_true(b->k.egress->held <= HELD_MAX);
	return r;
}

#define UNTIL(b, test)                                                      \
	do {                                                                \
		uint64_t until_ = clock_mono() + PATIENCE_S * NSEC_PER_SEC; \
		while (!(test)) {                                           \
			assert_true(clock_mono() < until_);                 \
			assert_int_equal(turn(b), 0);                       \
		}                                                           \
	} while (0)

static struct talk *ask(struct box *b, enum wire_op op, const char *host, unsigned int port)
{
	_cleanup_buf_ struct buf f = BUF_INIT(512);
	struct talk *t = &b->talks[b->n++];

	assert_true(b->n <= TALKS_MAX);
	*t = (struct talk){ 0 };
	if (op == WIRE_OP_CONNECT)
		fields_put_number(&f, TAG_PORT, port);
	fields_put_text(&f, TAG_HOST, host);
	assert_int_equal(link_open(b->guest, op, &f, NULL, &t->ch), 0);
	return t;
}

/* Opens a channel; returns the code with which it is closed. */
static uint64_t outcome(struct box *b, enum wire_op op, const char *host, unsigned int port)
{
	struct talk *t = ask(b, op, host, port);
	uint64_t code;

	UNTIL(b, t->closed);
	assert_int_equal(t->accepted, t->code == WIRE_DONE);
	code = t->code;
	b->n--;
	return code;
}

static void send_all(struct box *b, const struct talk *t, const void *data, size_t n)
{
	size_t sent = 0;

	while (sent < n) {
		ssize_t k = link_data(b->guest, t->ch, 0, (const char *)data + sent, n - sent);

		assert_true(k >= 0);
		sent += (size_t)k;
		assert_int_equal(turn(b), 0);
	}
}

/* ---- the keeper ---- */

static struct box *box_greet(struct world *w, int log, bool machine)
{
	_cleanup_buf_ struct buf keeper = BUF_INIT(64), guest = BUF_INIT(64);
	struct box *b = calloc(1, sizeof(*b));
	struct keeper_start s = { .guest = -EBADF, .listener = -EBADF, .warden = -EBADF };
	struct err e = ERR_INIT;

	assert_non_null(b);
	b->w = w;
	assert_int_equal(setenv("HUTCH_RESOLVER", WORLD_RESOLVER, 1), 0);
	b->chain = (struct audit_chain){ .fd = log };
	b->spec = (struct spec){ .id = "abcdefghijklmnop", .user = "user", .workspace = "/" };
	b->spec.limits.pids = 64;
	b->spec.egress.allow = (struct spec_list){ allow, ARRAY_SIZE(allow) };
	b->spec.egress.bytes_out = b->spec.egress.bytes_in = 64 << 20;
	b->spec.egress.streams = 8;
	b->spec.egress.names = 64;
	b->spec.egress.streams_per_minute = 100000;
	s.spec = &b->spec;
	s.engine = machine ? &unit_vm : &unit_container;
	s.chain = &b->chain;
	assert_int_equal(keeper_init(&b->k, &s, &e), 0);
	fields_put_number(&keeper, TAG_VERSION, WIRE_VERSION);
	fields_put_number(&guest, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&guest, TAG_AGENT, "test");
	assert_int_equal(link_new(LINK_GUEST, &guest_ops, b, &b->guest), 0);
	assert_int_equal(link_hello(b->k.guest.link, &keeper), 0);
	assert_int_equal(link_hello(b->guest, &guest), 0);
	assert_int_equal(move(b->k.guest.link, b->guest), 0);
	assert_int_equal(move(b->guest, b->k.guest.link), 0);
	return b;
}

/* A serving keeper; a VM has received the time. */
static struct box *box_new(struct world *w, int log, bool machine)
{
	struct box *b = box_greet(w, log, machine);

	for (unsigned int i = 0; b->k.phase != PHASE_SERVING && i < TELLINGS_MAX; i++) {
		assert_int_equal(move(b->k.guest.link, b->guest), 0);
		assert_int_equal(move(b->guest, b->k.guest.link), 0);
	}
	assert_int_equal(b->k.phase, PHASE_SERVING);
	return b;
}

static void box_free(struct box *b)
{
	keeper_done(&b->k);
	(void)link_free(b->guest);
	audit_chain_close(&b->chain);
	free(b);
}

static int accept_one(struct box *b, int listener)
{
	int fd = -1;

	UNTIL(b, (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0);
	return fd;
}

static size_t read_some(int fd, size_t *total)
{
	static char chunk[65536];
	ssize_t k = recv(fd, chunk, sizeof(chunk), 0);

	*total += k > 0 ? (size_t)k : 0;
	return *total;
}

/* ---- the time ---- */

/* Exchanges all pending bytes; returns true if that woke a VM. */
static bool told(struct box *b)
{
	unsigned int before = b->woken;

	assert_int_equal(move(b->k.guest.link, b->guest), 0);
	return b->woken > before;
}

static void pause_ms(unsigned int ms)
{
	const struct timespec t = { .tv_nsec = ms * NSEC_PER_MSEC };

	assert_int_equal(nanosleep(&t, NULL), 0);
}

TEST_WITH(containers_have_the_time, world_setup, world_teardown)
{
	struct box *b = box_greet(WORLD(state), memory_log(), false);

	assert_int_equal(b->k.phase, PHASE_SERVING);
	assert_false(told(b));
	box_free(b);
}

/* The sandbox's CA goes to containers and to VMs; without one, the field is missing. */
TEST(hello_has_the_ca)
{
	static const char *const cas[] = { NULL, "", "a certificate" };
	const struct spec spec = { .id = "abcdefghijklmnop", .workspace = "/", .limits.pids = 64 };

	for (size_t i = 0; i < 2 * ARRAY_SIZE(cas); i++) {
		const struct keeper k = { .spec = &spec,
					  .engine = i % 2 ? &unit_vm : &unit_container,
					  .ca = cas[i / 2] };
		_cleanup_buf_ struct buf b = BUF_INIT(4096);
		_cleanup_free_ char *ca = NULL;
		struct err e = ERR_INIT;
		struct fields f;
		bool oom = false;

		greet_put(&k, &b);
		assert_int_equal(b.err, 0);
		assert_int_equal(fields_parse(MESSAGE_HELLO_KEEPER, b.data, b.len, &f, &e), 0);
		assert_int_equal(fields_has(&f, TAG_CWD), i % 2);
		ca = fields_copy(&f, TAG_CA, &oom);
		if (i / 2 < 2)
			assert_null(ca);
		else
			assert_string_equal(ca, cas[2]);
	}
}

/* A VM gets the time after its own HELLO, not with the keeper's. The keeper serves once the VM
 * has it; a slow VM gets it again, but not for ever. */
TEST_WITH(told_the_time, world_setup, world_teardown)
{
	uint64_t before = clock_wall();
	struct box *b = box_greet(WORLD(state), memory_log(), true);

	for (unsigned int i = 0; i < TELLINGS_MAX; i++) {
		assert_true(told(b));
		assert_in_range(b->time, before, clock_wall());
		assert_int_equal(b->k.phase, PHASE_HELLO);
		pause_ms(40);
		before = clock_wall();
		assert_int_equal(move(b->guest, b->k.guest.link), 0);
	}
	assert_false(told(b));
	assert_int_equal(b->k.phase, PHASE_SERVING);
	box_free(b);
}

/* An unsolicited message of the guest is not an answer. */
TEST_WITH(only_an_answer_counts, world_setup, world_teardown)
{
	struct box *b = box_greet(WORLD(state), memory_log(), true);
	uint8_t pong[WIRE_HEADER + 8] = { [3] = 8, [8] = WIRE_PONG };
	struct err e = ERR_INIT;

	assert_int_equal(link_feed(b->k.guest.link, pong, sizeof(pong), &e), 0);
	assert_int_equal(b->k.phase, PHASE_HELLO);
	assert_true(told(b));
	box_free(b);
}

/* A guest on its way to sleep for a snapshot gets no time; it gets it when it wakes. */
TEST_WITH(not_on_its_way_to_sleep, world_setup, world_teardown)
{
	struct box *b = box_new(WORLD(state), memory_log(), true);

	keeper_wake(&b->k);
	assert_true(told(b));
	b->k.save.begun = true;
	assert_int_equal(link_sleep(b->k.guest.link), 0);
	pause_ms(40);
	assert_int_equal(move(b->guest, b->k.guest.link), 0);
	assert_false(told(b));
	b->k.save.begun = false;
	box_free(b);
}

/* ---- questions ---- */

TEST_WITH(questions, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	char longest[256];

	assert_int_equal(outcome(b, WIRE_OP_ASK, "web.allowed.test", 0), WIRE_DONE);
	assert_int_equal(outcome(b, WIRE_OP_ASK, "A.Allowed.TEST", 0), WIRE_DONE);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, ""), 0);
	assert_int_equal(outcome(b, WIRE_OP_ASK, "denied.test", 0), WIRE_PERMISSION);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "\"host\":\"denied.test\""), 1);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "asked for by DNS"), 1);
	/* The keeper does not look up invalid names, as for a container. */
	memset(longest, 'a', sizeof(longest) - 1);
	longest[255] = '\0';
	for (size_t i = 0; i < 255; i += 5)
		longest[i] = i % 2 ? 'b' : '-';
	assert_int_equal(outcome(b, WIRE_OP_ASK, longest, 0), WIRE_PERMISSION);
	assert_int_equal(outcome(b, WIRE_OP_ASK, "", 0), WIRE_PERMISSION);
	assert_int_equal(outcome(b, WIRE_OP_ASK, "93.184.0.1", 0), WIRE_PERMISSION);
	assert_int_equal(outcome(b, WIRE_OP_ASK, ".allowed.test", 0), WIRE_PERMISSION);
	assert_int_equal(outcome(b, WIRE_OP_ASK, "a.allowed.test.", 0), WIRE_PERMISSION);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, ""), 1);
	assert_int_equal(w->queries, 0);
	box_free(b);
}

/* ---- refused ---- */

TEST_WITH(refused, world_setup, world_teardown)
{
	static const char *const wrong[] = {
		"",
		".allowed.test",
		"a.allowed.test:7000",
		"a.allowed.test:7000/tcp",
		"10.0.0/8",
		"93.184.0.0/16",
		"a b.test",
		"[93.184.0.1]",
		"127.0.0.1",
		"[::1]",
		"127.9.9.9",
		"198.18.1.0",
		"::1",
		"[::ffff:127.0.0.1",
		"allowed.test\n",
		"0x7f.1",
	};
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	unsigned int before = w->queries;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(outcome(b, WIRE_OP_CONNECT, wrong[i], i < 12 ? 7000 : 5353),
				 WIRE_PERMISSION);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, ""), 0);
	assert_int_equal(outcome(b, WIRE_OP_CONNECT, "denied.test", 443), WIRE_PERMISSION);
	assert_int_equal(outcome(b, WIRE_OP_CONNECT, "web.allowed.test", 444), WIRE_PERMISSION);
	assert_int_equal(outcome(b, WIRE_OP_CONNECT, "93.184.0.2", PORT), WIRE_PERMISSION);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "\"verdict\":\"deny\""), 3);
	assert_int_equal(w->queries, before);
	/* Allowed, but the name does not exist. */
	assert_int_equal(outcome(b, WIRE_OP_CONNECT, "nx.allowed.test", PORT), WIRE_NOT_FOUND);
	assert_int_equal(outcome(b, WIRE_OP_CONNECT, "private.allowed.test", PORT),
			 WIRE_PERMISSION);
	assert_int_equal(outcome(b, WIRE_OP_CONNECT, "93.184.0.1", PORT), WIRE_IO);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "\"verdict\":\"allow\""), 3);
	assert_int_equal(broker_budget(b->k.egress->broker)->streams, 0);
	assert_int_equal(b->k.egress->n_sockets, 0);
	box_free(b);
}

TEST_WITH(no_log_no_egress, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct box *b = box_new(w, open("/dev/full", O_WRONLY | O_APPEND | O_CLOEXEC), true);
	_listening_ server = world_listen("93.184.0.1", PORT);

	assert_int_equal(outcome(b, WIRE_OP_CONNECT, "93.184.0.1", PORT), WIRE_TOO_MANY);
	assert_int_equal(outcome(b, WIRE_OP_CONNECT, "93.184.0.1", PORT), WIRE_TOO_MANY);
	assert_true(accept4(server, NULL, NULL, 0) < 0 && errno == EAGAIN);
	box_free(b);
}

/* A container's guest may open no channel: doing so ends the link. */
TEST_WITH(containers_ask_nothing, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), false);

	(void)ask(b, WIRE_OP_ASK, "web.allowed.test", 0);
	assert_int_equal(move(b->guest, b->k.guest.link), -EPROTO);
	box_free(b);
}

/* ---- streams ---- */

TEST_WITH(a_stream, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	_listening_ server = world_listen("93.184.0.1", PORT);
	_cleanup_close_ int fd = -EBADF;
	struct talk *t = ask(b, WIRE_OP_CONNECT, "a.allowed.test", PORT);
	size_t got = 0;

	fd = accept_one(b, server);
	UNTIL(b, t->accepted);
	/* The server speaks first. */
	assert_int_equal(send(fd, "220", 3, MSG_NOSIGNAL), 3);
	UNTIL(b, t->got == 3);
	assert_memory_equal(t->first, "220", 3);
	send_all(b, t, "request", 7);
	UNTIL(b, read_some(fd, &got) == 7);
	/* The server ends first; later bytes of the guest still arrive, with their end. */
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	UNTIL(b, t->eof);
	send_all(b, t, "more", 4);
	assert_int_equal(link_eof(b->guest, t->ch, 0), 0);
	assert_int_equal(link_close(b->guest, t->ch, WIRE_DONE, NULL), 0); /* in the same round */
	UNTIL(b, read_some(fd, &got) == 11);
	UNTIL(b, broker_budget(b->k.egress->broker)->streams == 0);
	assert_int_equal(recv(fd, &got, 1, 0), 0);
	assert_false(t->closed); /* but by us */
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS,
					"\"verdict\":\"allow\",\"host\":\"a.allowed.test\""),
			 1);
	assert_int_equal(
		chain_recorded(b->chain.fd, AUDIT_EGRESS, "\"bytes_out\":11,\"bytes_in\":3"), 1);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "reset"), 0);
	assert_null(b->k.egress->connections);
	assert_int_equal(b->k.egress->n_sockets, 0);
	box_free(b);
}

/* The guest ends first; later bytes of the server arrive, and the guest closes. */
TEST_WITH(the_other_half, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	_listening_ server = world_listen("93.184.0.1", PORT);
	struct talk *t = ask(b, WIRE_OP_CONNECT, "93.184.0.1", PORT);
	int fd = accept_one(b, server);
	size_t got = 0;

	UNTIL(b, t->accepted);
	send_all(b, t, "all", 3);
	assert_int_equal(link_eof(b->guest, t->ch, 0), 0);
	UNTIL(b, read_some(fd, &got) == 3 && recv(fd, &got, 1, MSG_PEEK) == 0);
	assert_int_equal(send(fd, "answer", 6, MSG_NOSIGNAL), 6);
	(void)fd_close(fd);
	UNTIL(b, t->eof && broker_budget(b->k.egress->broker)->streams == 0);
	assert_int_equal(t->got, 6);
	assert_false(t->closed);
	assert_int_equal(b->k.egress->n_sockets, 0);
	assert_non_null(b->k.egress->connections); /* until the guest closes it */
	assert_int_equal(link_close(b->guest, t->ch, WIRE_DONE, NULL), 0);
	UNTIL(b, !b->k.egress->connections);
	assert_int_equal(
		chain_recorded(b->chain.fd, AUDIT_EGRESS, "\"bytes_out\":3,\"bytes_in\":6"), 1);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "reset"), 0);
	box_free(b);
}

TEST_WITH(a_reset_from_outside, world_setup, world_teardown)
{
	const struct linger reset = { .l_onoff = 1 };
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	_listening_ server = world_listen("93.184.0.1", PORT);
	struct talk *t = ask(b, WIRE_OP_CONNECT, "93.184.0.1", PORT);
	int fd = accept_one(b, server);

	UNTIL(b, t->accepted);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
	(void)fd_close(fd);
	UNTIL(b, t->closed);
	assert_int_equal(t->code, WIRE_IO);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "reset by the other side"), 1);
	assert_null(b->k.egress->connections);
	box_free(b);
}

/* With a server that would never have ended; then before any dial. */
TEST_WITH(a_reset_from_inside, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	_listening_ server = world_listen("93.184.0.1", PORT);
	struct talk *t = ask(b, WIRE_OP_CONNECT, "93.184.0.1", PORT);
	int fd = accept_one(b, server), k = -1;
	char c;

	UNTIL(b, t->accepted);
	assert_int_equal(link_close(b->guest, t->ch, WIRE_GONE, NULL), 0);
	UNTIL(b, (k = (int)recv(fd, &c, 1, 0)) >= 0 || errno != EAGAIN);
	assert_int_equal(k, -1);
	assert_int_equal(errno, ECONNRESET);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "reset by the sandbox"), 1);
	(void)fd_close(fd);
	t = ask(b, WIRE_OP_CONNECT, "stall.allowed.test", PORT);
	assert_int_equal(turn(b), 0);
	assert_int_equal(broker_budget(b->k.egress->broker)->streams, 1);
	assert_int_equal(link_close(b->guest, t->ch, WIRE_GONE, NULL), 0);
	UNTIL(b, broker_budget(b->k.egress->broker)->streams == 0);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "reset by the sandbox"), 2);
	assert_null(b->k.egress->connections);
	box_free(b);
}

TEST_WITH(a_policy_that_changes, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	_listening_ server = world_listen("93.184.0.1", PORT);
	struct talk *t = ask(b, WIRE_OP_CONNECT, "93.184.0.1", PORT);
	_cleanup_close_ int fd = accept_one(b, server);
	struct ruleset *none = NULL;

	assert_true(fd >= 0);
	UNTIL(b, t->accepted);
	assert_int_equal(ruleset_new(NULL, 0, &none), 0);
	broker_set_rules(b->k.egress->broker, none);
	UNTIL(b, t->closed);
	assert_int_equal(t->code, WIRE_PERMISSION);
	assert_null(b->k.egress->connections);
	box_free(b);
}

/* A request for another name: nothing of it is sent, and the guest gets an error. */
TEST_WITH(first_bytes, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	_listening_ server = world_listen("93.184.0.1", 443);
	struct talk *t = ask(b, WIRE_OP_CONNECT, "web.allowed.test", 443);
	int fd = accept_one(b, server);
	size_t got = 0;

	UNTIL(b, t->accepted);
	send_all(b, t, "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", 36);
	UNTIL(b, t->closed);
	assert_int_equal(t->code, WIRE_PERMISSION);
	assert_int_equal(read_some(fd, &got), 0);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS,
					"\"verdict\":\"deny\",\"host\":\"web.allowed.test\""),
			 1);
	(void)fd_close(fd);
	box_free(b);
}

/* ---- too much ---- */

/* A server that does not read stops the guest at its credit; the keeper buffers no more bytes. */
TEST_WITH(a_server_that_does_not_read, world_setup, world_teardown)
{
	static const char bytes[65536];
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	_listening_ server = world_listen("93.184.0.1", PORT);
	struct talk *t = ask(b, WIRE_OP_CONNECT, "93.184.0.1", PORT);
	int fd = accept_one(b, server);
	size_t sent = 0, got = 0;

	UNTIL(b, t->accepted);
	for (unsigned int idle = 0; idle < 200;) {
		ssize_t k = link_data(b->guest, t->ch, 0, bytes, sizeof(bytes));

		assert_true(k >= 0);
		sent += (size_t)k;
		idle = k == 0 ? idle + 1 : 0;
		assert_int_equal(turn(b), 0);
		assert_true(b->k.egress->held <= WIRE_CREDIT_START);
	}
	assert_true(b->k.egress->held > 0);
	assert_int_equal(link_eof(b->guest, t->ch, 0), 0);
	UNTIL(b, read_some(fd, &got) == sent);
	UNTIL(b, recv(fd, &got, 1, MSG_PEEK) == 0);
	assert_int_equal(b->k.egress->held, 0);
	(void)fd_close(fd);
	UNTIL(b, t->eof);
	box_free(b);
}

/* A guest that gives no credit stops its own stream; another stream continues. */
TEST_WITH(a_guest_that_gives_no_credit, world_setup, world_teardown)
{
	static const char bytes[65536];
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	_listening_ server = world_listen("93.184.0.1", PORT);
	struct talk *t = ask(b, WIRE_OP_CONNECT, "93.184.0.1", PORT), *other;
	int fd = accept_one(b, server), second;
	size_t sent = 0;

	t->lazy = true;
	UNTIL(b, t->accepted);
	for (unsigned int idle = 0; idle < 200;) {
		ssize_t k = send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);

		sent += k > 0 ? (size_t)k : 0;
		idle = k > 0 ? 0 : idle + 1;
		assert_int_equal(turn(b), 0);
	}
	assert_int_equal(t->got, WIRE_CREDIT_START);
	assert_true(sent > t->got);
	other = ask(b, WIRE_OP_CONNECT, "93.184.0.1", PORT);
	second = accept_one(b, server);
	UNTIL(b, other->accepted);
	assert_int_equal(send(second, "hello", 5, MSG_NOSIGNAL), 5);
	UNTIL(b, other->got == 5);
	/* Then the server reads. */
	(void)fd_close(fd);
	t->lazy = false;
	assert_int_equal(link_consumed(b->guest, t->ch, 0, t->unread), 0);
	UNTIL(b, t->eof);
	assert_int_equal(t->got, sent);
	(void)fd_close(second);
	box_free(b);
}

/*
 * Ended streams whose last bytes the guest never reads take no place: exactly as many as the policy
 * allows can be opened again.
 */
TEST_WITH(ends_that_are_never_read, world_setup, world_teardown)
{
	/* Slightly more than the credit, so that the socket pair accepts it in any state: a full
	 * pair is writable again only after three quarters were read, by whole skbs. */
	static const char bytes[WIRE_CREDIT_START + 1024];
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	_listening_ server = world_listen("93.184.0.1", PORT);
	const unsigned int streams = (unsigned int)b->spec.egress.streams;
	struct talk *t;
	int fds[8];

	assert_int_equal(streams, ARRAY_SIZE(fds));
	for (unsigned int i = 0; i < 3 * streams; i++) {
		size_t sent = 0;
		int fd;

		t = ask(b, WIRE_OP_CONNECT, "93.184.0.1", PORT);
		t->lazy = true;
		fd = accept_one(b, server);
		UNTIL(b, t->accepted);
		assert_int_equal(link_eof(b->guest, t->ch, 0), 0);
		UNTIL(b, ({
			      ssize_t k = send(fd, bytes, sizeof(bytes) - sent, MSG_NOSIGNAL);

			      sent += k > 0 ? (size_t)k : 0;
			      sent == sizeof(bytes);
		      }));
		(void)fd_close(fd);
		UNTIL(b, broker_budget(b->k.egress->broker)->streams == 0);
		assert_true(b->k.egress->n_sockets <= streams);
	}
	for (unsigned int i = 0; i < streams; i++) {
		t = ask(b, WIRE_OP_CONNECT, "93.184.0.1", PORT);
		fds[i] = accept_one(b, server);
		UNTIL(b, t->accepted);
	}
	assert_int_equal(outcome(b, WIRE_OP_CONNECT, "93.184.0.1", PORT), WIRE_TOO_MANY);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "\"detail\":\"streams\""), 1);
	assert_true(b->k.egress->n_sockets <= streams + 1);
	for (unsigned int i = 0; i < streams; i++)
		(void)fd_close(fds[i]);
	box_free(b);
}

/* A channel for every number: refused, and the number of refusals is limited too. */
TEST_WITH(many_channels, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	_cleanup_buf_ struct buf f = BUF_INIT(128), frame = BUF_INIT(256);
	struct err e = ERR_INIT;
	int r = 0;

	fields_put_number(&f, TAG_PORT, PORT);
	fields_put_text(&f, TAG_HOST, "stall.allowed.test");
	/* Hand-made frames, because our link would not send them. They answer no CLOSE. */
	for (uint32_t ch = 1; r == 0 && ch < 2 * 4096; ch += 2) {
		buf_reset(&frame);
		(void)buf_put_be(&frame, f.len, 4);
		(void)buf_put_be(&frame, ch, 4);
		(void)buf_put_be(&frame, (uint64_t)WIRE_OPEN << 24 | WIRE_OP_CONNECT << 16, 4);
		(void)buf_put(&frame, f.data, f.len);
		r = link_feed(b->k.guest.link, frame.data, frame.len, &e);
		if (ch % 64 == 1)
			keeper_round(&b->k);
		assert_true(broker_budget(b->k.egress->broker)->streams <= b->spec.egress.streams);
		assert_true(b->k.egress->n_sockets <= b->spec.egress.streams + 1);
	}
	assert_int_equal(r, -EPROTO);
	assert_non_null(strstr(e.msg, "too many"));
	box_free(b);
}

/* The policy's budget counts all bytes, on any stream. */
TEST_WITH(the_budget_of_bytes, world_setup, world_teardown)
{
	static const char bytes[65536];
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	_listening_ server = world_listen("93.184.0.1", PORT);
	struct budget_limits few = { .bytes_out = 100000,
				     .bytes_in = 1 << 20,
				     .streams = 8,
				     .streams_per_minute = 1000,
				     .names = 64 };
	struct talk *t;
	size_t got = 0;
	int fd;

	budget_init(broker_budget(b->k.egress->broker), &few);
	t = ask(b, WIRE_OP_CONNECT, "93.184.0.1", PORT);
	fd = accept_one(b, server);
	UNTIL(b, t->accepted);
	for (unsigned int i = 0; i < 4 && !t->closed; i++)
		(void)link_data(b->guest, t->ch, 0, bytes, sizeof(bytes));
	UNTIL(b, ({
		      (void)read_some(fd, &got);
		      t->closed;
	      }));
	assert_int_equal(t->code, WIRE_TOO_MANY);
	assert_true(got <= 100000);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "\"detail\":\"bytes_out\""), 1);
	(void)fd_close(fd);
	assert_int_equal(outcome(b, WIRE_OP_CONNECT, "93.184.0.1", PORT), WIRE_TOO_MANY);
	box_free(b);
}

/* The keeper ends with streams in every state: each has its end in the log, and nothing leaks. */
TEST_WITH(an_end_with_streams, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct box *b = box_new(w, memory_log(), true);
	_listening_ server = world_listen("93.184.0.1", PORT);
	struct talk *t = ask(b, WIRE_OP_CONNECT, "93.184.0.1", PORT);
	int fd = accept_one(b, server);

	UNTIL(b, t->accepted);
	(void)ask(b, WIRE_OP_CONNECT, "stall.allowed.test", PORT);
	assert_int_equal(turn(b), 0);
	egress_done(&b->k);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "the sandbox ended"), 2);
	(void)fd_close(fd);
	box_free(b);
}

/* A stream from its request to its end, or as far as it gets. */
static void try_one(struct box *b, int server)
{
	_cleanup_buf_ struct buf f = BUF_INIT(512);
	struct talk *t = &b->talks[b->n++];

	fields_put_number(&f, TAG_PORT, PORT);
	fields_put_text(&f, TAG_HOST, "93.184.0.1");
	if (link_open(b->guest, WIRE_OP_CONNECT, &f, NULL, &t->ch) < 0)
		return;
	for (unsigned int i = 0; i < 1000 && !b->k.ended && !t->closed && !t->eof; i++) {
		int fd;

		if (move(b->guest, b->k.guest.link) < 0)
			return;
		keeper_check(&b->k, loop_once(b->k.loop, clock_mono() + NSEC_PER_MSEC));
		keeper_round(&b->k);
		if (move(b->k.guest.link, b->guest) < 0)
			return;
		fd = accept4(server, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0 && send(fd, "x", 1, MSG_NOSIGNAL) == 1)
			(void)fd_close(fd);
	}
	assert_true(b->k.ended || t->closed || t->eof);
}

/* With a fault anywhere, the guest gets an error or the keeper ends, and nothing leaks. */
TEST_WITH(anything_may_fail, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	_listening_ server = world_listen("93.184.0.1", PORT);
	bool more = true;

	for (unsigned int n = 1; more; n++) {
		size_t fds = fail_count_fds();
		struct box *b = box_new(w, memory_log(), true);

		fail_arm(n, EIO);
		try_one(b, server);
		more = fail_reached();
		fail_off();
		box_free(b);
		assert_int_equal(fail_count_fds(), fds);
		assert_true(n < 1000);
	}
}

/*
 * A stream that the guest has closed in both directions, with bytes for a slow server pending:
 * broker and keeper both hold it. Then each call fails in turn.
 */
static struct box *box_left(struct world *w, int server, int *ret_fd)
{
	static const char bytes[65536];
	struct box *b = box_new(w, memory_log(), true);
	struct talk *t = ask(b, WIRE_OP_CONNECT, "93.184.0.1", PORT);
	int fd = accept_one(b, server);

	UNTIL(b, t->accepted);
	for (unsigned int idle = 0; idle < 50;) {
		ssize_t k = link_data(b->guest, t->ch, 0, bytes, sizeof(bytes));

		assert_true(k >= 0);
		idle = k == 0 ? idle + 1 : 0;
		assert_int_equal(turn(b), 0);
	}
	assert_true(b->k.egress->held > 0);
	assert_int_equal(link_eof(b->guest, t->ch, 0), 0);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	UNTIL(b, t->eof);
	assert_int_equal(link_close(b->guest, t->ch, WIRE_DONE, NULL), 0);
	assert_int_equal(turn(b), 0);
	assert_non_null(b->k.egress->connections);
	*ret_fd = fd;
	return b;
}

TEST_WITH(one_that_was_left_may_fail, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	_listening_ server = world_listen("93.184.0.1", PORT);
	bool more = true;

	for (unsigned int n = 1; more; n++) {
		size_t fds = fail_count_fds(), got = 0;
		int fd = -EBADF;
		struct box *b = box_left(w, server, &fd);

		fail_arm(n, EIO);
		for (unsigned int i = 0; i < 2000 && !b->k.ended && b->k.egress->connections; i++) {
			(void)read_some(fd, &got);
			keeper_check(&b->k, loop_once(b->k.loop, clock_mono() + NSEC_PER_MSEC));
			keeper_round(&b->k);
		}
		more = fail_reached();
		fail_off();
		(void)fd_close(fd);
		box_free(b);
		assert_int_equal(fail_count_fds(), fds);
		assert_true(n < 1000);
	}
}

/* The stream leaves the keeper's list once, although broker and keeper both remove it. */
TEST_WITH(one_that_was_left_is_given_up_once, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	_listening_ server = world_listen("93.184.0.1", PORT);
	int fd = -EBADF;
	struct box *b = box_left(w, server, &fd);

	connections_done(&b->k); /* the broker still exists, and reports */
	assert_null(b->k.egress->connections);
	assert_null(b->k.egress->over);
	assert_int_equal(b->k.egress->n_sockets, 0);
	assert_int_equal(b->k.egress->held, 0);
	(void)fd_close(fd);
	box_free(b);
}
