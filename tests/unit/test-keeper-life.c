/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadline, pause and resume between clients and a warden, which the test plays: requests that the
 * keeper forwards, its handling of answers, and operations that it refuses during a pause.
 */
#include "test-keeper.h"

enum {
	LIMIT_MS = 300,
	LONGER_MS = 1200,
};

/* The next note about life; requests for records are answered silently. */
static uint64_t next_order(struct bench *b)
{
	static uint64_t last = 100;

	for (;;) {
		struct pollfd p = { .fd = b->warden, .events = POLLIN };
		int files[NOTE_FILES_MAX];
		struct keeper_note note;
		size_t n;

		for (int i = 0; poll(&p, 1, 1) == 0; i++) {
			assert_true(i < PATIENCE_S * 1000);
			peer_step(b->client, 1);
		}
		assert_int_equal(note_receive(b->warden, &note, files, &n), 0);
		if (note.kind == NOTE_LIFE)
			return note.value;
		assert_true(note.kind == NOTE_WANT_RECORDS || note.kind == NOTE_DIRTY);
		if (note.kind == NOTE_WANT_RECORDS)
			give_records_(b, &last, note.value);
	}
}

static void answer(struct bench *b, enum life_result result, bool paused, uint64_t ms)
{
	const struct life_answer a = { .result = result, .paused = paused, .ms = ms };

	assert_int_equal(note_send(b->warden, NOTE_LIFE_NOW, life_answer_pack(&a), NULL, 0), 0);
}

static struct talk *ask(struct peer *p, uint64_t timeout, uint64_t then, uint64_t want)
{
	_cleanup_buf_ struct buf f = BUF_INIT(64);

	if (timeout > 0)
		fields_put_number(&f, TAG_TIMEOUT, timeout);
	if (then > 0)
		fields_put_number(&f, TAG_ON_TIMEOUT, then);
	if (want > 0)
		fields_put_number(&f, TAG_WANT, want);
	return peer_open(p, WIRE_OP_LIFE, &f);
}

/* A serving keeper; the test plays guest and warden. */
static void begin(struct bench *b, void **state)
{
	struct keeper_note note = { 0 };
	uint64_t last = 0;

	bench_init(b, state);
	b->spec.id = "abcdefghijklmnop";
	b->spec.limits.idle = LIMIT_MS;
	bench_start(b, false);
	bench_greet(b, &note);
	bench_say_go(b);
	give_records_(b, &last, RECORDS_AT_START);
	peer_say_hello(b->client, false);
	UNTIL(b->client, b->client->hello);
}

/* Runs one order to its end. */
static struct talk *change(struct bench *b, uint64_t want, bool paused)
{
	struct talk *t = ask(b->client, 0, 0, want);

	(void)next_order(b);
	answer(b, LIFE_DONE, paused, 0);
	UNTIL(b->client, t->closed);
	assert_int_equal(t->code, WIRE_DONE);
	return t;
}

TEST(orders_and_answers_fit)
{
	struct life_order o;
	struct life_answer a;

	(void)state;
	for (unsigned int i = 0; i < 27; i++) {
		const struct life_order one = { .timeout = i % 3 == 2 ? UINT32_MAX : i % 3,
						.on_timeout = (enum life_then)(i / 3 % 3),
						.want = (enum life_want)(i / 9) };

		assert_true(life_order_unpack(life_order_pack(&one), &o));
		assert_int_equal(o.timeout, one.timeout);
		assert_int_equal(o.on_timeout, one.on_timeout);
		assert_int_equal(o.want, one.want);
	}
	assert_false(life_order_unpack(UINT64_C(3) << 32, &o));
	assert_false(life_order_unpack(UINT64_C(3) << 34, &o));
	assert_false(life_order_unpack(UINT64_C(1) << 36, &o));
	for (unsigned int i = 0; i < 2 * LIFE_RESULTS; i++) {
		const struct life_answer one = { .result = (enum life_result)(i / 2),
						 .paused = i % 2,
						 .ms = UINT64_C(1790000000123) };

		assert_true(life_answer_unpack(life_answer_pack(&one), &a));
		assert_int_equal(a.result, one.result);
		assert_int_equal(a.paused, one.paused);
		assert_int_equal(a.ms, one.ms);
	}
	assert_false(life_answer_unpack((uint64_t)LIFE_RESULTS << 48, &a));
	assert_false(life_answer_unpack(UINT64_C(1) << 57, &a));
	assert_true(life_answer_unpack(life_answer_pack(&(struct life_answer){ .ms = UINT64_MAX }),
				       &a));
	assert_int_equal(a.ms, (UINT64_C(1) << 48) - 1);
}

TEST_IN_DIR(is_passed_on_and_answered)
{
	_cleanup_bench_ struct bench b;
	struct life_order o;
	struct talk *t;

	begin(&b, state);
	t = ask(b.client, 5000, WIRE_TIMEOUT_PAUSES, WIRE_PAUSED);
	assert_true(life_order_unpack(next_order(&b), &o));
	assert_int_equal(o.timeout, 5000);
	assert_int_equal(o.on_timeout, THEN_PAUSE);
	assert_int_equal(o.want, WANT_PAUSED);
	assert_false(t->accepted || t->closed);
	answer(&b, LIFE_DONE, true, 0);
	UNTIL(b.client, t->closed);
	assert_true(t->accepted);
	assert_int_equal(t->code, WIRE_DONE);
	assert_int_equal(t->want, WIRE_PAUSED);
	assert_int_equal(t->deadline, 0);

	t = ask(b.client, 0, 0, WIRE_RUNNING);
	assert_true(life_order_unpack(next_order(&b), &o));
	assert_true(o.timeout == 0 && o.on_timeout == THEN_AS_BEFORE && o.want == WANT_RUNNING);
	answer(&b, LIFE_DONE, false, UINT64_C(1790000000123));
	UNTIL(b.client, t->closed);
	assert_int_equal(t->want, WIRE_RUNNING);
	assert_int_equal(t->deadline, UINT64_C(1790000000123));

	/* A mere question. */
	t = ask(b.client, 0, 0, 0);
	assert_int_equal(next_order(&b), 0);
	answer(&b, LIFE_DONE, false, 9);
	UNTIL(b.client, t->closed);
	assert_int_equal(t->deadline, 9);
}

TEST_IN_DIR(refusals_say_why)
{
	static const struct {
		enum life_result result;
		uint64_t code;
		const char *text;
	} cases[] = {
		{ LIFE_ALREADY, WIRE_EXISTS, "the sandbox is running already" },
		{ LIFE_NO_FREEZER, WIRE_UNSUPPORTED,
		  "cannot pause this sandbox: there is no freezer: see 'hutch receipt'" },
		{ LIFE_TOO_LATE, WIRE_INVALID,
		  "the policy's ttl has 60 s left: the deadline cannot be in 90 s" },
		{ LIFE_FAILED, WIRE_IO,
		  "the request failed and changed nothing: see the sandbox's log" },
	};
	_cleanup_bench_ struct bench b;

	begin(&b, state);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct talk *t = ask(b.client, 90000, 0, 0);

		(void)next_order(&b);
		answer(&b, cases[i].result, false, 60000);
		UNTIL(b.client, t->closed);
		assert_false(t->accepted);
		assert_int_equal(t->code, cases[i].code);
		assert_string_equal(t->text, cases[i].text);
	}
}

/* Answers come in the order of the requests; answers to a disconnected client are dropped. */
TEST_IN_DIR(everybody_gets_their_own)
{
	_cleanup_bench_ struct bench b;
	_cleanup_peer_ struct peer *second = NULL;
	struct talk *first, *other, *third, *fourth;
	struct peer *gone;

	begin(&b, state);
	second = bench_client(&b);
	gone = bench_client(&b);
	first = ask(b.client, 1000, 0, 0);
	(void)next_order(&b);
	(void)ask(gone, 2000, 0, 0);
	peer_write(gone);
	assert_int_equal(next_order(&b), 2000);
	peer_free(gone);
	other = ask(second, 3000, 0, 0);
	peer_write(second);
	assert_int_equal(next_order(&b), 3000);
	/* A request that its client closes before the answer. */
	third = ask(b.client, 4000, 0, 0);
	assert_int_equal(next_order(&b), 4000);
	assert_int_equal(link_close(b.client->l, third->ch, WIRE_DONE, NULL), 0);
	fourth = ask(b.client, 5000, 0, 0); /* after that close */
	assert_int_equal(next_order(&b), 5000);
	for (uint64_t i = 1; i <= 5; i++)
		answer(&b, LIFE_DONE, false, i);
	UNTIL2(b.client, second, first->closed && other->closed && fourth->closed);
	assert_int_equal(first->deadline, 1);
	assert_int_equal(other->deadline, 3);
	assert_int_equal(fourth->deadline, 5);
	assert_int_equal(change(&b, WIRE_RUNNING, false)->code, WIRE_DONE);
	assert_false(third->accepted || b.client->ended || second->ended);
}

TEST_IN_DIR(too_many_are_refused)
{
	_cleanup_bench_ struct bench b;
	struct talk *t, *first = NULL;

	begin(&b, state);
	for (size_t i = 0; i < LIFE_QUEUE; i++) {
		t = ask(b.client, 1000 + i, 0, 0);
		first = first ? first : t;
		assert_int_equal(next_order(&b), 1000 + i);
	}
	t = ask(b.client, 1, 0, 0);
	UNTIL(b.client, t->closed);
	assert_int_equal(t->code, WIRE_TOO_MANY);
	answer(&b, LIFE_DONE, false, 0);
	UNTIL(b.client, first->closed);
	assert_int_equal(first->code, WIRE_DONE);
}

TEST_IN_DIR(nothing_is_asked_of_a_paused_guest)
{
	_cleanup_bench_ struct bench b;
	_cleanup_buf_ struct buf f = BUF_INIT(64);
	struct talk *t;

	begin(&b, state);
	(void)change(&b, WIRE_PAUSED, true);
	t = peer_exec(b.client, .script = "true");
	UNTIL(b.client, t->closed);
	assert_int_equal(t->code, WIRE_UNSUPPORTED);
	assert_string_equal(t->text, "the sandbox is paused: hutch resume abcdefghijklmnop");
	fields_put_text(&f, TAG_PATH, "/");
	t = peer_open(b.client, WIRE_OP_STAT, &f);
	UNTIL(b.client, t->closed);
	assert_int_equal(t->code, WIRE_UNSUPPORTED);
	peer_step(b.guest, 50);
	assert_int_equal(b.guest->n, 0);
	(void)change(&b, WIRE_RUNNING, false);
	(void)peer_exec(b.client, .script = "true");
	UNTIL2(b.client, b.guest, b.guest->n == 1);
	/* The deadline does the same without a request. */
	assert_int_equal(note_send(b.warden, NOTE_PAUSED, 0, NULL, 0), 0);
	do {
		t = peer_open(b.client, WIRE_OP_STAT, &f);
		UNTIL(b.client, t->closed || b.guest->n > 1);
		peer_step(b.guest, 1);
	} while (!t->closed);
	assert_int_equal(t->code, WIRE_UNSUPPORTED);
}

TEST_IN_DIR(time_limits_stand_still)
{
	_cleanup_bench_ struct bench b;
	_cleanup_buf_ struct buf f = BUF_INIT(64);
	struct talk *t;
	uint64_t end;

	begin(&b, state);
	t = peer_exec(b.client, .script = "x", .timeout = LIMIT_MS);
	UNTIL2(b.client, b.guest, b.guest->n == 1);
	fields_put_number(&f, TAG_PID, 7);
	assert_int_equal(link_accept(b.guest->l, b.guest->talks[0].ch, &f), 0);
	UNTIL2(b.client, b.guest, t->accepted);
	(void)change(&b, WIRE_PAUSED, true);
	end = clock_mono() + LONGER_MS * NSEC_PER_MSEC;
	while (clock_mono() < end)
		peer_step(b.client, 10);
	assert_false(t->closed);
	(void)change(&b, WIRE_RUNNING, false);
	UNTIL2(b.client, b.guest, t->closed);
	assert_int_equal(t->code, WIRE_TIMEOUT);
}

TEST_IN_DIR(idleness_stands_still)
{
	_cleanup_bench_ struct bench b;
	uint64_t end;

	begin(&b, state);
	(void)change(&b, WIRE_PAUSED, true);
	peer_free(b.client);
	end = clock_mono() + LONGER_MS * NSEC_PER_MSEC;
	while (clock_mono() < end)
		assert_int_equal(waitpid(b.keeper, NULL, WNOHANG), 0);
	b.client = bench_client(&b);
	(void)change(&b, WIRE_RUNNING, false);
	peer_free(b.client);
	b.client = NULL;
	assert_int_equal(bench_end(&b), KEEPER_IDLE);
}

/* The keeper trusts the warden, but ignores answers that make no sense. */
TEST_IN_DIR(answers_that_nobody_has_asked_for)
{
	for (int i = 0; i < 2; i++) {
		_cleanup_bench_ struct bench b;

		begin(&b, state);
		if (i == 1) {
			(void)ask(b.client, 1, 0, 0);
			(void)next_order(&b);
		}
		assert_int_equal(
			note_send(b.warden, NOTE_LIFE_NOW, i == 0 ? 0 : UINT64_MAX, NULL, 0), 0);
		assert_int_equal(bench_end(&b), KEEPER_FAILED);
	}
}

int main(void)
{
	return unit_run_as_root("the keeper's ids are taken by root, and clients are root", NULL,
				NULL);
}
