/* SPDX-License-Identifier: Apache-2.0 */
#include "test-egress.h"

#include <sys/ioctl.h>

#include "egress/pump.h"
#include "fail.h"

/* A pump and the far ends of both of its sockets. */
struct rig {
	struct world *w;
	struct pump pump;
	int client, server;
	uint64_t out, in; /* budgets */
	bool ended;
	enum pump_end why;
};

static struct pump_pool pool;

static void on_end(struct pump *p, enum pump_end why)
{
	struct rig *r = p->arg;

	assert_false(r->ended);
	r->ended = true;
	r->why = why;
}

static void rig_start(struct rig *r, struct world *w, uint64_t idle_ms, uint64_t life_ms)
{
	int client[2], server[2];

	r->w = w;
	if (r->out == 0)
		r->out = r->in = UINT64_MAX / 2;
	r->pump.end = on_end;
	r->pump.arg = r;
	r->pump.dir[PUMP_CLIENT].budget = &r->out;
	r->pump.dir[PUMP_SERVER].budget = &r->in;
	world_pair(client);
	world_pair(server);
	r->client = client[0];
	r->server = server[0];
	assert_int_equal(pump_start(&r->pump, w->loop, &pool, client[1], idle_ms * NSEC_PER_MSEC,
				    life_ms * NSEC_PER_MSEC),
			 0);
	assert_int_equal(pump_connect(&r->pump, server[1]), 0);
}

static void rig_done(struct rig *r)
{
	if (!r->ended)
		pump_stop(&r->pump, false);
	(void)fd_close(r->client);
	(void)fd_close(r->server);
	assert_int_equal(pool.lent, 0);
}

static void put(int fd, const void *data, size_t n)
{
	assert_int_equal(send(fd, data, n, MSG_NOSIGNAL), n);
}

TEST_WITH(small_both_ways_and_half_close, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	size_t fds = fail_count_fds();
	struct rig r = { 0 };

	rig_start(&r, w, 60000, 60000);
	put(r.client, "hello", 5);
	world_expect(w, r.server, "hello", 5);
	put(r.server, "welcome", 7);
	world_expect(w, r.client, "welcome", 7);
	assert_int_equal(shutdown(r.client, SHUT_WR), 0);
	world_expect_end(w, r.server, 0);
	/* The other direction continues. */
	put(r.server, "and more", 8);
	world_expect(w, r.client, "and more", 8);
	assert_false(r.ended);
	assert_int_equal(shutdown(r.server, SHUT_WR), 0);
	world_expect_end(w, r.client, 0);
	WORLD_UNTIL(w, r.ended);
	assert_int_equal(r.why, PUMP_ENDED);
	assert_int_equal(r.pump.dir[PUMP_CLIENT].bytes, 5);
	assert_int_equal(r.pump.dir[PUMP_SERVER].bytes, 15);
	rig_done(&r);
	assert_int_equal(fail_count_fds(), fds + 2 * pool.n);
}

/* Sends `n` bytes of a pattern and reads them at the other end, in odd pieces. */
static void bulk(struct rig *r, int from, int to, size_t n)
{
	size_t sent = 0, got = 0;
	char block[70001], seen[50021];

	WORLD_UNTIL(r->w, ({
			    ssize_t k;

			    for (size_t i = 0; i < sizeof(block); i++)
				    block[i] = (char)((sent + i) * 7 + ((sent + i) >> 11));
			    k = sent < n ? send(from, block, MIN(sizeof(block), n - sent),
						MSG_NOSIGNAL)
					 : 0;
			    sent += k > 0 ? (size_t)k : 0;
			    k = world_recv(to, seen, sizeof(seen));
			    for (ssize_t i = 0; i < k; i++)
				    if (seen[i] !=
					(char)((got + (size_t)i) * 7 + ((got + (size_t)i) >> 11)))
					    fail_msg("byte %zu differs", got + (size_t)i);
			    got += k > 0 ? (size_t)k : 0;
			    got == n;
		    }));
}

TEST_WITH(bulk_is_exact, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct rig r = { 0 };
	size_t n = 48 * 1024 * 1024 + 12345;

	for (int i = 0; i < 2; i++) {
		r = (struct rig){ 0 };
		pool.no_pipes = i == 1;
		rig_start(&r, w, 60000, 60000);
		bulk(&r, r.client, r.server, n);
		bulk(&r, r.server, r.client, n);
		assert_int_equal(r.pump.dir[PUMP_CLIENT].bytes, n);
		assert_int_equal(r.pump.dir[PUMP_SERVER].bytes, n);
		assert_int_equal(r.out, UINT64_MAX / 2 - n);
		rig_done(&r);
	}
	pool.no_pipes = false;
}

TEST_WITH(resets_are_passed_on, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct rig r = { 0 };

	rig_start(&r, w, 60000, 60000);
	put(r.client, "x", 1);
	world_expect(w, r.server, "x", 1);
	world_reset(r.client);
	world_expect_end(w, r.server, -ECONNRESET);
	assert_int_equal(r.why, PUMP_RESET_CLIENT);
	r.client = -EBADF;
	rig_done(&r);

	r = (struct rig){ 0 };
	rig_start(&r, w, 60000, 60000);
	world_reset(r.server);
	world_expect_end(w, r.client, -ECONNRESET);
	assert_int_equal(r.why, PUMP_RESET_SERVER);
	r.server = -EBADF;
	rig_done(&r);
}

/* Fills all buffers between a sender and a receiver that does not read. */
static void stuff(struct rig *r, int from)
{
	static const char zero[65536];
	unsigned int quiet = 0;

	WORLD_UNTIL(r->w, ({
			    quiet = send(from, zero, sizeof(zero), MSG_NOSIGNAL) < 0 ? quiet + 1
										     : 0;
			    quiet > 50;
		    }));
}

TEST_WITH(zero_window_stalls_nobody_else, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct rig stuck = { 0 }, fine = { 0 };

	rig_start(&stuck, w, 60000, 60000);
	rig_start(&fine, w, 60000, 60000);
	stuff(&stuck, stuck.client);
	assert_false(stuck.ended);
	bulk(&fine, fine.client, fine.server, 4 * 1024 * 1024);
	/* The other direction of the blocked pump continues. */
	put(stuck.server, "ok", 2);
	world_expect(w, stuck.client, "ok", 2);
	/* A reset by the side that is not being read is noticed. */
	world_reset(stuck.client);
	stuck.client = -EBADF;
	WORLD_UNTIL(w, stuck.ended);
	assert_int_equal(stuck.why, PUMP_RESET_CLIENT);
	rig_done(&stuck);
	rig_done(&fine);
}

/* The sender has ended before the receiver reads. */
TEST_WITH(late_reader_gets_everything, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct rig r = { 0 };
	size_t total = 0;
	char buf[65536];
	ssize_t k = 0;

	rig_start(&r, w, 60000, 60000);
	assert_int_equal(shutdown(r.server, SHUT_WR), 0);
	world_expect_end(w, r.client, 0);
	stuff(&r, r.client);
	assert_int_equal(shutdown(r.client, SHUT_WR), 0);
	world_rest(w, 100);
	assert_false(r.ended);
	WORLD_UNTIL(w, ({
			    k = world_recv(r.server, buf, sizeof(buf));
			    total += k > 0 ? (size_t)k : 0;
			    k == 0;
		    }));
	WORLD_UNTIL(w, r.ended);
	assert_int_equal(r.why, PUMP_ENDED);
	assert_int_equal(r.pump.dir[PUMP_CLIENT].bytes, total);
	rig_done(&r);
}

TEST_WITH(timers, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct rig r = { 0 };
	uint64_t start = clock_mono();

	rig_start(&r, w, 500, 60000);
	world_rest(w, 300);
	put(r.client, "x", 1); /* a byte restarts the idle timeout */
	world_rest(w, 300);
	assert_false(r.ended);
	WORLD_UNTIL(w, r.ended);
	assert_int_equal(r.why, PUMP_IDLE);
	assert_true(clock_mono() - start >= 800 * NSEC_PER_MSEC);
	rig_done(&r);

	/* Bytes do not extend the total timeout. */
	r = (struct rig){ 0 };
	rig_start(&r, w, 60000, 200);
	while (!r.ended) {
		(void)!send(r.client, "x", 1, MSG_NOSIGNAL);
		world_rest(w, 10);
	}
	assert_int_equal(r.why, PUMP_LIFE);
	rig_done(&r);
}

TEST_WITH(budgets_are_exact, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct rig r = { .out = 10, .in = 100000 };
	static const char zero[200000];

	rig_start(&r, w, 60000, 60000);
	put(r.client, "0123456789", 10);
	world_expect(w, r.server, "0123456789", 10);
	assert_int_equal(r.out, 0);
	world_rest(w, 30);
	assert_false(r.ended); /* used up is not exceeded */
	put(r.client, "!", 1);
	world_expect_end(w, r.server, -ECONNRESET);
	assert_int_equal(r.why, PUMP_SPENT_OUT);
	assert_int_equal(r.pump.dir[PUMP_CLIENT].bytes, 10);
	rig_done(&r);

	r = (struct rig){ .out = 10, .in = 100000 };
	rig_start(&r, w, 60000, 60000);
	put(r.server, zero, sizeof(zero));
	WORLD_UNTIL(w, r.ended);
	assert_int_equal(r.why, PUMP_SPENT_IN);
	assert_int_equal(r.pump.dir[PUMP_SERVER].bytes + r.in, 100000);
	rig_done(&r);
}

/* End of file still works when the budget is used up. */
TEST_WITH(spent_budget_and_end, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct rig r = { .out = 3, .in = 3 };

	rig_start(&r, w, 60000, 60000);
	put(r.client, "abc", 3);
	put(r.server, "def", 3);
	world_expect(w, r.server, "abc", 3);
	world_expect(w, r.client, "def", 3);
	assert_int_equal(shutdown(r.client, SHUT_WR), 0);
	assert_int_equal(shutdown(r.server, SHUT_WR), 0);
	WORLD_UNTIL(w, r.ended);
	assert_int_equal(r.why, PUMP_ENDED);
	rig_done(&r);
}

static int pool_done(void **state)
{
	pump_pool_done(&pool);
	return 0;
}

int main(void)
{
	return unit_run(NULL, pool_done);
}
