/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to ports: their limit, the owner's share of it, and when they end. */
#include "test-keeper.h"

#include <sys/mman.h>

static struct talk *open_port(struct peer *p, bool owner)
{
	_cleanup_buf_ struct buf f = BUF_INIT(64);

	fields_put_number(&f, TAG_PORT, 80);
	if (owner)
		fields_put_flag(&f, TAG_OWNERS);
	return peer_open(p, WIRE_OP_PORT, &f);
}

static struct talk *ask_stat(struct peer *p)
{
	_cleanup_buf_ struct buf f = BUF_INIT(64);

	fields_put_text(&f, TAG_PATH, "/");
	return peer_open(p, WIRE_OP_STAT, &f);
}

static void expect_refused(struct bench *b, struct talk *t, const char *text)
{
	UNTIL2(b->guest, b->client, t->closed);
	assert_int_equal(t->code, WIRE_TOO_MANY);
	assert_string_equal(t->text, text);
}

static const char full[] = "too many connections to ports of the sandbox at once";

/* Connections to a port that does not answer leave room for commands and files, and vice versa. */
TEST(ports_take_no_room_from_others)
{
	_cleanup_bench_ struct bench b;
	struct talk *t;

	bench_scripted(&b, state);
	for (int i = 0; i < RELAYS_PORT; i++)
		(void)open_port(b.client, true);
	UNTIL2(b.guest, b.client, b.guest->n == RELAYS_PORT);
	expect_refused(&b, open_port(b.client, true), full);
	for (int i = 0; i < RELAYS_EXEC; i++)
		(void)peer_exec(b.client, .script = "x");
	UNTIL2(b.guest, b.client, b.guest->n == RELAYS_PORT + RELAYS_EXEC);
	expect_refused(&b, peer_exec(b.client, .script = "x"), "too many commands at once");
	for (int i = 0; i < RELAYS_FILES; i++)
		(void)ask_stat(b.client);
	UNTIL2(b.guest, b.client, b.guest->n == RELAYS_PORT + RELAYS_EXEC + RELAYS_FILES);
	expect_refused(&b, ask_stat(b.client), "too many operations on files at once");
	/* One connection ends, which makes room for one. */
	assert_int_equal(link_close(b.client->l, b.client->talks[0].ch, WIRE_DONE, NULL), 0);
	UNTIL2(b.guest, b.client, b.guest->talks[0].closed);
	t = open_port(b.client, true);
	UNTIL2(b.guest, b.client, b.guest->n == RELAYS_PORT + RELAYS_EXEC + RELAYS_FILES + 1);
	assert_false(t->closed);
}

static void fill(struct bench *b)
{
	for (int i = 0; i < RELAYS_PUBLIC; i++)
		(void)open_port(b->client, false);
	UNTIL2(b->guest, b->client, b->guest->n == RELAYS_PUBLIC);
}

/* Connections of strangers leave room for the owner. */
TEST(some_room_is_the_owners)
{
	_cleanup_bench_ struct bench b;
	struct err e = ERR_INIT;
	struct talk *last;
	struct fields f;

	bench_scripted(&b, state);
	fill(&b);
	expect_refused(&b, open_port(b.client, false), full);
	for (int i = RELAYS_PUBLIC; i < RELAYS_PORT; i++)
		(void)open_port(b.client, true);
	UNTIL2(b.guest, b.client, b.guest->n == RELAYS_PORT);
	expect_refused(&b, open_port(b.client, true), full);
	/* The guest does not learn whose connection it is. */
	last = &b.guest->talks[RELAYS_PORT - 1];
	assert_int_equal(fields_parse(MESSAGE_PORT, last->open.data, last->open.len, &f, &e), 0);
}

/* Time skipped for the keeper, which is another process, and for us. */
static _Atomic uint64_t *skipped;

uint64_t __wrap_clock_mono(void);
uint64_t __real_clock_mono(void);

uint64_t __wrap_clock_mono(void)
{
	return __real_clock_mono() + *skipped;
}

/* Skips this much time; the keeper notices. */
static void pass_time(struct bench *b, uint64_t ms)
{
	struct talk *t;

	*skipped += ms * NSEC_PER_MSEC;
	t = ask_stat(b->client);
	assert_int_equal(link_close(b->guest->l, asked(b)->ch, WIRE_IO, NULL), 0);
	UNTIL2(b->guest, b->client, t->closed);
}

/* Sends a byte from the program at a port. */
static void say(struct bench *b, size_t i)
{
	size_t before = b->client->talks[i].got[0];

	if (!b->client->talks[i].accepted)
		assert_int_equal(link_accept(b->guest->l, b->guest->talks[i].ch, NULL), 0);
	assert_int_equal(link_data(b->guest->l, b->guest->talks[i].ch, 0, "x", 1), 1);
	UNTIL2(b->guest, b->client, b->client->talks[i].got[0] == before + 1);
}

static void expect_let_in(struct bench *b, bool owner)
{
	struct talk *t = open_port(b->client, owner), *g = asked(b);

	assert_int_equal(g->op, WIRE_OP_PORT);
	assert_false(t->closed);
}

/* The longest idle stranger makes room, for a stranger and for the owner. */
TEST(who_is_quiet_makes_room)
{
	_cleanup_bench_ struct bench b;

	bench_scripted(&b, state);
	fill(&b);
	pass_time(&b, PORT_QUIET_MS / 2);
	say(&b, 0);
	expect_refused(&b, open_port(b.client, false), full);
	pass_time(&b, PORT_QUIET_MS / 2);
	expect_let_in(&b, false);
	UNTIL2(b.guest, b.client, b.client->talks[1].closed && b.guest->talks[1].closed);
	assert_int_equal(b.client->talks[1].code, WIRE_TIMEOUT);
	for (int i = RELAYS_PUBLIC; i < RELAYS_PORT; i++)
		expect_let_in(&b, true);
	assert_false(b.client->talks[2].closed);
	expect_let_in(&b, true);
	UNTIL2(b.guest, b.client, b.client->talks[2].closed);
	assert_false(b.client->talks[0].closed);
	assert_false(b.client->talks[3].closed);
}

/* The owner's connections are never closed to make room. */
TEST(the_owners_stay)
{
	_cleanup_bench_ struct bench b;

	bench_scripted(&b, state);
	for (int i = 0; i < RELAYS_PORT; i++)
		(void)open_port(b.client, true);
	UNTIL2(b.guest, b.client, b.guest->n == RELAYS_PORT);
	pass_time(&b, 2 * PORT_QUIET_MS);
	expect_refused(&b, open_port(b.client, true), full);
	expect_refused(&b, open_port(b.client, false), full);
}

/* A connection ends only if no byte was transferred meanwhile. */
TEST(who_says_nothing_is_closed)
{
	_cleanup_bench_ struct bench b;
	struct talk *quiet, *other;

	bench_scripted(&b, state);
	quiet = open_port(b.client, true);
	other = open_port(b.client, true);
	UNTIL2(b.guest, b.client, b.guest->n == 2);
	say(&b, 0);
	pass_time(&b, PORT_IDLE_MS - 5000);
	say(&b, 1);
	pass_time(&b, 10 * 1000);
	UNTIL2(b.guest, b.client, quiet->closed && b.guest->talks[0].closed);
	assert_int_equal(quiet->code, WIRE_TIMEOUT);
	assert_string_equal(quiet->text, "it was quiet for too long");
	say(&b, 1);
	assert_false(other->closed);
}

int main(void)
{
	skipped = mmap(NULL, sizeof(*skipped), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	assert_ptr_not_equal(skipped, MAP_FAILED);
	return unit_run_as_root("the keeper's ids are taken by root, and clients are root",
				unit_dir_setup, unit_dir_teardown);
}
