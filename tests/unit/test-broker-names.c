/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generated names through the whole broker. The calls between its parts are wrapped: the lookup
 * answers with an address derived from the name, and with one that must be filtered out; dialling
 * ends the test. For every input, the matched name is looked up, the looked-up address is dialled,
 * and a denied name is neither.
 *
 * test-broker-names [COUNT [SEED]]
 */
#include "test-names.h"

#include <sys/socket.h>

#include "base/loop.h"
#include "egress/broker.h"
#include "egress/dial.h"
#include "egress/resolve.h"

static unsigned long count = 20000;
static uint64_t seed = 20261115;

static struct {
	bool asked, dialled;
	struct name name;
	resolve_cb *cb;
	void *arg;
	struct addr addr;
	uint16_t port;
	enum broker_what what;
	enum broker_reason reason;
	struct target target;
} seen;

int __wrap_resolve_start(struct resolver *r, const struct name *name, resolve_cb *cb, void *arg,
			 struct lookup **ret);
void __wrap_resolve_cancel(struct lookup *l);
int __wrap_dial_start(struct dial *d, struct loop *l, const struct addr *v, size_t n,
		      uint16_t port);

int __wrap_resolve_start(struct resolver *r, const struct name *name, resolve_cb *cb, void *arg,
			 struct lookup **ret)
{
	assert_false(seen.asked);
	seen.asked = true;
	seen.name = *name;
	seen.cb = cb;
	seen.arg = arg;
	*ret = (struct lookup *)&seen;
	return 0;
}

void __wrap_resolve_cancel(struct lookup *l)
{
	fail_msg("cancelled");
}

int __wrap_dial_start(struct dial *d, struct loop *l, const struct addr *v, size_t n, uint16_t port)
{
	assert_false(seen.dialled);
	assert_int_equal(n, 1); /* the other one is not public */
	seen.dialled = true;
	seen.addr = v[0];
	seen.port = port;
	return -ECONNREFUSED;
}

static void on_report(void *arg, const struct broker_event *ev)
{
	seen.what = ev->what;
	seen.reason = ev->reason;
	seen.target = *ev->target;
}

/* An address of 2600::/16 that only this name has. */
static struct addr address_of(const char *name)
{
	struct addr a = { .family = 6, .prefix = 128, .bytes = { 0x26 } };
	uint64_t h[2] = { 1, 2 };

	for (; *name; name++) {
		h[0] = (h[0] ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
		h[1] = (h[1] + (unsigned char)*name) * UINT64_C(0x9e3779b97f4a7c15);
	}
	memcpy(a.bytes + 2, &h[0], 7);
	memcpy(a.bytes + 9, &h[1], 7);
	return a;
}

static void answer(const char *name)
{
	static const struct addr bad[] = { { 4, 32, { 127, 0, 0, 1 } },
					   { 4, 32, { 169, 254, 169, 254 } },
					   { 6, 128, { [10] = 0xff, 0xff, 93, 184, 0, 1 } } };
	struct answer a = { .n = 2 };

	a.v[name[0] & 1] = address_of(name);
	a.v[!(name[0] & 1)] = bad[(unsigned char)name[0] % ARRAY_SIZE(bad)];
	seen.cb(seen.arg, &a);
}

static void one(struct broker *b, const char *input, size_t n, unsigned int port,
		unsigned long tally[2])
{
	struct broker_request req = { .target.port = (uint16_t)port };
	struct err e = ERR_INIT;
	char canonical[256];
	int fds[2];

	if (!slow_name(input, n, canonical)) {
		assert_int_equal(name_parse(input, n, &req.target.name, &e), -EINVAL);
		return;
	}
	assert_int_equal(name_parse(input, n, &req.target.name, &e), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	req.fd = fds[1];
	memset(&seen, 0, sizeof(seen));
	broker_open(b, &req);
	if (seen.asked)
		answer(canonical);
	(void)fd_close(fds[0]);
	assert_int_equal(broker_budget(b)->streams, 0);
	assert_string_equal(seen.target.name.text, canonical);
	if (!slow_allowed(canonical, port)) {
		tally[0]++;
		assert_false(seen.asked || seen.dialled);
		assert_int_equal(seen.what, BROKER_DENY);
		return;
	}
	tally[1]++;
	assert_true(seen.asked && seen.dialled);
	assert_string_equal(seen.name.text, canonical);
	assert_int_equal(seen.port, port);
	assert_memory_equal(&seen.addr, &(struct addr[]){ address_of(canonical) },
			    sizeof(seen.addr));
	assert_int_equal(seen.reason, BROKER_DIAL);
}

TEST(what_is_matched_is_what_is_dialled)
{
	static const struct broker_ops ops = { .report = on_report };
	_cleanup_loop_ struct loop *loop = NULL;
	_cleanup_broker_ struct broker *b = NULL;
	struct broker_conf c = {
		.ops = &ops,
		.limits = { UINT64_MAX, UINT64_MAX, 10, UINT64_MAX, UINT64_MAX },
		.resolver = "127.0.0.1:1",
	};
	unsigned long tally[2] = { 0 };
	uint64_t rng = seed;
	struct err e = ERR_INIT;
	char input[304];

	assert_int_equal(loop_new(&loop), 0);
	c.loop = loop;
	assert_int_equal(broker_new(&c, fast_rules(), &b, &e), 0);
	for (unsigned long i = 0; i < count; i++) {
		size_t n = random_input(&rng, input);

		one(b, input, n, random_port(&rng), tally);
	}
	print_message("# %lu inputs: %lu dialled, %lu denied, 0 differences\n", count, tally[1],
		      tally[0]);
	assert_true(tally[0] > count / 100 && tally[1] > count / 100);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		count = strtoul(argv[1], NULL, 10);
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 10);
	return unit_run(NULL, NULL);
}
