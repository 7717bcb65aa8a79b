/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A keeper's rules, sockets, unwritable log and floods of denials. There is no guest: the test
 * moves a client's link by hand, a socket to the proxy plays the sandbox's program, and the
 * resolver is a socket that only counts queries.
 */
#include "unit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/str.h"
#include "fail.h"
#include "keeper/serve.h"
#include "test-chain.h"
#include "unit-engine.h"

enum {
	PATIENCE_S = 120,
	QUIET_MS = 300, /* long enough for an unwanted event to happen */
};

struct box {
	struct spec spec;
	struct audit_chain chain;
	struct keeper k;
	struct client *client;
	struct link *ours; /* the client's end */
	bool accepted, closed;
	uint64_t code;
	char text[WIRE_TEXT_MAX + 1];
	int resolver, proxy; /* the keeper has a copy of the proxy's file descriptor */
};

static const char *allow[] = { "web.hutch.test:443", ".wild.hutch.test:443", "10.1.0.0/16:5432" };
static const char *deny[] = { "no.wild.hutch.test", "dead.hutch.test:25" };

/* ---- a client ---- */

static void on_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	((struct box *)arg)->accepted = true;
}

static void on_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct box *b = arg;
	const char *text = "";
	size_t pos = 0, n = 0;

	(void)fields_next(f, TAG_TEXT, &pos, &text, &n);
	(void)snprintf(b->text, sizeof(b->text), "%.*s", (int)n, text);
	b->code = fields_number(f, TAG_CODE, 256);
	b->closed = true;
}

static const struct link_ops client_ops = { .accepted = on_accepted, .closed = on_closed };

static void move(struct link *from, struct link *to)
{
	struct err e = ERR_INIT;
	const void *data;
	size_t n;

	while ((data = link_pending(from, &n)) && n > 0) {
		char copy[4096];
		size_t k = MIN(n, sizeof(copy));

		memcpy(copy, data, k);
		link_wrote(from, k);
		assert_int_equal(link_feed(to, copy, k, &e), 0);
	}
}

/* Adds a rule; returns the code with which the keeper closes the channel. */
static uint64_t add(struct box *b, const char *rule, bool denied)
{
	_cleanup_buf_ struct buf f = BUF_INIT(4096);
	uint32_t ch = 0;

	b->accepted = b->closed = false;
	fields_put_text(&f, TAG_RULE, rule);
	if (denied)
		fields_put_flag(&f, TAG_DENY);
	assert_int_equal(link_open(b->ours, WIRE_OP_EGRESS, &f, NULL, &ch), 0);
	move(b->ours, b->client->port.link);
	move(b->client->port.link, b->ours);
	assert_true(b->closed);
	assert_int_equal(b->accepted, b->code == WIRE_DONE);
	return b->code;
}

/* ---- the keeper ---- */

static int udp_on_loopback(uint16_t *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	socklen_t n = sizeof(a);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static void greet(struct box *b)
{
	_cleanup_buf_ struct buf f = BUF_INIT(64);

	fields_put_number(&f, TAG_VERSION, WIRE_VERSION);
	b->client = client_new(&b->k, -EBADF);
	assert_non_null(b->client);
	assert_int_equal(link_new(LINK_KEEPER, &client_ops, b, &b->ours), 0);
	link_with_client(b->ours);
	assert_int_equal(link_hello(b->ours, &f), 0);
	move(b->ours, b->client->port.link);
	move(b->client->port.link, b->ours);
}

static int start_keeper(struct box *b, struct err *e)
{
	const struct keeper_start s = { .spec = &b->spec,
					.engine = &unit_container,
					.guest = -EBADF,
					.listener = -EBADF,
					.chain = &b->chain,
					.warden = -EBADF };

	return keeper_init(&b->k, &s, e);
}

static struct box *box_new(int log)
{
	struct box *b = calloc(1, sizeof(*b));
	struct err e = ERR_INIT;
	char resolver[32];
	uint16_t port;

	assert_non_null(b);
	b->resolver = udp_on_loopback(&port);
	(void)snprintf(resolver, sizeof(resolver), "127.0.0.1:%u", port);
	assert_int_equal(setenv("HUTCH_RESOLVER", resolver, 1), 0);
	b->chain = (struct audit_chain){ .fd = log };
	b->spec = (struct spec){ .user = "user", .workspace = "/" };
	b->spec.egress.allow = (struct spec_list){ allow, ARRAY_SIZE(allow) };
	b->spec.egress.deny = (struct spec_list){ deny, ARRAY_SIZE(deny) };
	b->spec.egress.bytes_out = b->spec.egress.bytes_in = 1 << 20;
	b->spec.egress.streams = b->spec.egress.names = 64;
	b->spec.egress.streams_per_minute = 100000;
	assert_int_equal(start_keeper(b, &e), 0);
	b->k.phase = PHASE_SERVING;
	b->proxy = -EBADF;
	greet(b);
	return b;
}

static void box_free(struct box *b)
{
	keeper_done(&b->k);
	(void)link_free(b->ours);
	audit_chain_close(&b->chain);
	(void)fd_close(b->resolver);
	(void)fd_close(b->proxy);
	free(b);
}

static bool may(const struct box *b, const char *text)
{
	struct err e = ERR_INIT;
	struct target t;

	assert_int_equal(target_parse(text, strlen(text), &t, &e), 0);
	return ruleset_check(b->k.egress->rules, &t).allowed;
}

/* ---- a program ---- */

static void open_proxy(struct box *b)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	b->proxy = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(b->proxy, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(b->proxy, 128), 0);
	assert_true(egress_start(&b->k, UINT64_C(1) << CAPTURE_PROXY,
				 (const int[]){ fcntl(b->proxy, F_DUPFD_CLOEXEC, 0) }, 1));
}

static int ask_proxy(const struct box *b, const char *target)
{
	struct sockaddr_in a;
	socklen_t n = sizeof(a);
	char line[128];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int len = snprintf(line, sizeof(line), "CONNECT %s HTTP/1.1\r\n\r\n", target);

	assert_int_equal(getsockname(b->proxy, (struct sockaddr *)&a, &n), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(send(fd, line, (size_t)len, MSG_NOSIGNAL), len);
	return fd;
}

/* The status code of the proxy's answer. */
static unsigned int answer(struct box *b, int fd)
{
	uint64_t end = clock_mono() + PATIENCE_S * NSEC_PER_SEC;
	char text[512] = "";
	unsigned int status = 0;

	while (recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT) <= 0) {
		assert_true(clock_mono() < end);
		assert_true(loop_once(b->k.loop, clock_mono() + 10 * NSEC_PER_MSEC) >= 0);
	}
	assert_int_equal(sscanf(text, "HTTP/1.%*1[01] %3u ", &status), 1);
	(void)fd_close(fd);
	return status;
}

static void rest(struct box *b, unsigned int ms)
{
	uint64_t end = clock_mono() + ms * NSEC_PER_MSEC;

	while (clock_mono() < end)
		assert_true(loop_once(b->k.loop, end) >= 0);
}

static bool was_asked(struct box *b)
{
	char byte;

	return recv(b->resolver, &byte, 1, 0) > 0;
}

/* ---- tests ---- */

TEST(rules_of_the_spec)
{
	struct box *b = box_new(memory_log());

	assert_true(may(b, "web.hutch.test:443"));
	assert_false(may(b, "web.hutch.test:80"));
	assert_true(may(b, "a.wild.hutch.test:443"));
	assert_false(may(b, "no.wild.hutch.test:443"));
	assert_true(may(b, "10.1.2.3:5432"));
	assert_false(may(b, "10.2.2.3:5432"));
	box_free(b);
}

TEST(wrong_specs)
{
	static const char *const wrong[] = { "web.hutch.test", "*.hutch.test:443", "", "a b:1" };

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct box b = { .spec = { .user = "user", .workspace = "/" } };
		struct err e = ERR_INIT;

		b.spec.egress.allow = (struct spec_list){ (const char **)&wrong[i], 1 };
		assert_int_equal(start_keeper(&b, &e), -EINVAL);
		assert_non_null(strstr(e.msg, "is not a rule of the spec"));
		assert_null(b.k.egress);
	}
}

/* Without an allow rule there is no broker, no socket is accepted, and no rule can be added. */
TEST(nothing_allowed)
{
	struct box b = { .spec = { .user = "user", .workspace = "/" }, .chain = AUDIT_CHAIN_INIT };
	struct err e = ERR_INIT;

	b.spec.egress.deny = (struct spec_list){ deny, ARRAY_SIZE(deny) };
	assert_int_equal(start_keeper(&b, &e), 0);
	assert_null(b.k.egress);
	assert_false(egress_start(&b.k, 1, (const int[]){ 0 }, 1));
	b.k.phase = PHASE_SERVING;
	greet(&b);
	assert_int_equal(add(&b, "web.hutch.test:443", false), WIRE_INVALID);
	assert_non_null(strstr(b.text, "has no network"));
	keeper_done(&b.k);
	(void)link_free(b.ours);
}

TEST(live_rules)
{
	struct box *b = box_new(memory_log());

	assert_false(may(b, "api.hutch.test:443"));
	assert_int_equal(add(b, "api.hutch.test:443", false), WIRE_DONE);
	assert_true(may(b, "api.hutch.test:443"));
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_POLICY,
					"\"change\":\"allow\",\"rule\":\"api.hutch.test:443\""),
			 1);
	/* The opposite rule replaces it, and is replaced in turn. */
	assert_int_equal(add(b, "api.hutch.test:443", true), WIRE_DONE);
	assert_false(may(b, "api.hutch.test:443"));
	assert_int_equal(b->k.egress->n_live, 1);
	assert_int_equal(add(b, "api.hutch.test:443", false), WIRE_DONE);
	assert_true(may(b, "api.hutch.test:443"));
	assert_int_equal(b->k.egress->n_live, 1);
	/* Added rules never override a deny rule of the policy; an added deny rule can be
	 * reverted. */
	assert_int_equal(add(b, "no.wild.hutch.test:443", false), WIRE_DONE);
	assert_false(may(b, "no.wild.hutch.test:443"));
	assert_int_equal(add(b, "web.hutch.test:443", true), WIRE_DONE);
	assert_false(may(b, "web.hutch.test:443"));
	assert_int_equal(add(b, "web.hutch.test:443", false), WIRE_DONE);
	assert_true(may(b, "web.hutch.test:443"));
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_POLICY, "\"change\""), 6);
	box_free(b);
}

/* Sends a rule and moves all pending bytes; returns whether the keeper has closed the channel. */
static bool try_to_add(struct box *b, const char *rule)
{
	_cleanup_buf_ struct buf f = BUF_INIT(4096);
	struct err e = ERR_INIT;
	const void *data;
	uint32_t ch = 0;
	size_t n;

	b->accepted = b->closed = false;
	fields_put_text(&f, TAG_RULE, rule);
	if (link_open(b->ours, WIRE_OP_EGRESS, &f, NULL, &ch) < 0)
		return false;
	while ((data = link_pending(b->ours, &n)) && n > 0) {
		if (link_feed(b->client->port.link, data, n, &e) < 0)
			return false;
		link_wrote(b->ours, n);
	}
	while ((data = link_pending(b->client->port.link, &n)) && n > 0) {
		if (link_feed(b->ours, data, n, &e) < 0)
			return false;
		link_wrote(b->client->port.link, n);
	}
	return b->closed;
}

/* If an allow rule fails for lack of memory, the deny rule that it would replace stays. */
TEST(a_deny_is_not_forgotten)
{
	bool more = true;
	unsigned int refused = 0;

	for (unsigned int n = 1; more; n++) {
		struct box *b = box_new(memory_log());
		bool told, changed;

		assert_int_equal(add(b, "web.hutch.test:443", true), WIRE_DONE);
		assert_int_equal(add(b, "api.hutch.test:443", false), WIRE_DONE);
		fail_arm(n, EIO);
		told = try_to_add(b, "web.hutch.test:443");
		more = fail_reached();
		fail_off();
		changed = told && b->code == WIRE_DONE;
		if (told && b->code == WIRE_INVALID && strstr(b->text, "memory"))
			refused++;
		/* The next change of any rule rebuilds all of them. */
		if (told && !changed) {
			assert_false(may(b, "web.hutch.test:443"));
			assert_int_equal(add(b, "other.hutch.test:443", false), WIRE_DONE);
			assert_false(may(b, "web.hutch.test:443"));
			assert_true(may(b, "api.hutch.test:443"));
			assert_int_equal(b->k.egress->n_live, 3);
		}
		box_free(b);
		assert_true(n < 1000);
	}
	assert_true(refused > 0);
}

TEST(wrong_live_rules)
{
	struct box *b = box_new(memory_log());

	assert_int_equal(add(b, "api.hutch.test", false), WIRE_INVALID);
	assert_non_null(strstr(b->text, "port"));
	assert_int_equal(add(b, "*.hutch.test:443", false), WIRE_INVALID);
	assert_int_equal(add(b, "api.hutch.test:70000", true), WIRE_INVALID);
	assert_int_equal(b->k.egress->n_live, 0);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_POLICY, ""), 0);
	box_free(b);
}

/* A full log: no rule is added, and an allowed stream is refused before the lookup. */
TEST(a_log_that_cannot_be_written)
{
	struct box *b = box_new(open("/dev/full", O_WRONLY | O_APPEND | O_CLOEXEC));

	open_proxy(b);
	assert_int_equal(add(b, "api.hutch.test:443", false), WIRE_INVALID);
	assert_non_null(strstr(b->text, "audit log"));
	assert_false(may(b, "api.hutch.test:443"));
	assert_int_equal(answer(b, ask_proxy(b, "web.hutch.test:443")), 503);
	rest(b, QUIET_MS);
	assert_false(was_asked(b));
	box_free(b);
}

/* The positive control, with a working log: the resolver gets a query. */
TEST(a_log_that_can)
{
	struct box *b = box_new(memory_log());
	uint64_t end = clock_mono() + PATIENCE_S * NSEC_PER_SEC;
	int fd;

	open_proxy(b);
	fd = ask_proxy(b, "web.hutch.test:443");
	while (!was_asked(b)) {
		assert_true(clock_mono() < end);
		rest(b, 10);
	}
	(void)fd_close(fd);
	assert_int_equal(answer(b, ask_proxy(b, "other.hutch.test:443")), 403);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS, "\"host\":\"other.hutch.test\""),
			 1);
	assert_int_equal(chain_recorded(b->chain.fd, AUDIT_EGRESS,
					"\"reason\":\"not allowed by the policy\""),
			 1);
	box_free(b);
}

/* A few denials of a flood are recorded; the rest is counted exactly. */
TEST(a_flood)
{
	enum {
		MANY = 100
	};
	struct box *b = box_new(memory_log());
	unsigned int single, sums = 0;

	open_proxy(b);
	for (unsigned int i = 0; i < MANY; i++)
		assert_int_equal(answer(b, ask_proxy(b, "other.hutch.test:443")), 403);
	rest(b, 2500);
	single = chain_recorded(b->chain.fd, AUDIT_EGRESS, "other.hutch.test");
	for (unsigned int n = 1; n <= MANY; n++) {
		char text[64];

		(void)snprintf(text, sizeof(text),
			       "\"text\":\"other.hutch.test:443\",\"count\":%u}", n);
		sums += n * chain_recorded(b->chain.fd, AUDIT_EGRESS_SUM, text);
	}
	assert_true(single >= AUDIT_TALLY_SINGLE && single < MANY);
	assert_int_equal(single + sums, MANY);
	box_free(b);
}

/* Notes that a warden would never send; the caller keeps the sockets. */
TEST(bad_notes)
{
	struct box *b = box_new(memory_log());
	int files[2] = { fcntl(b->resolver, F_DUPFD_CLOEXEC, 0),
			 fcntl(b->resolver, F_DUPFD_CLOEXEC, 0) };

	assert_false(egress_start(&b->k, 0, files, 1));
	assert_false(egress_start(&b->k, 3, files, 1));
	assert_false(egress_start(&b->k, 1, files, 2));
	assert_false(egress_start(&b->k, UINT64_C(1) << CAPTURE_SOCKETS, files, 1));
	assert_false(egress_start(&b->k, UINT64_MAX, files, 2));
	assert_null(b->k.egress->capture);
	assert_true(fcntl(files[0], F_GETFD) >= 0);
	open_proxy(b);
	assert_false(egress_start(&b->k, 1, files, 1)); /* twice */
	(void)fd_close(files[0]);
	(void)fd_close(files[1]);
	box_free(b);
}
