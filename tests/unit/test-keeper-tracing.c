/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace lines for clients: who gets them, what the keeper requests from guest and warden for them,
 * and that nothing waits for a reader. The test plays guest and warden.
 */
#include "test-keeper.h"

#include "base/trace.h"

enum {
	MANY = 8000,  /* lines, more than a reader's credit */
	BURST = 3000, /* lines at once, more than a guest's limit per second */
};

static void begin(struct bench *b, void **state)
{
	struct keeper_note note = { 0 };
	uint64_t last = 0;

	bench_init(b, state);
	b->spec.id = "abcdefghijklmnop";
	bench_start(b, false);
	bench_greet(b, &note);
	bench_say_go(b);
	give_records_(b, &last, RECORDS_AT_START);
	peer_say_hello(b->client, false);
	UNTIL(b->client, b->client->hello);
}

/* The next note, except those about records. */
static struct keeper_note next_note(struct bench *b)
{
	struct pollfd p = { .fd = b->warden, .events = POLLIN };
	int files[NOTE_FILES_MAX];
	struct keeper_note note;
	size_t n;

	do {
		for (int i = 0; poll(&p, 1, 1) == 0; i++) {
			assert_true(i < PATIENCE_S * 1000);
			peer_step(b->client, 1);
		}
		assert_int_equal(note_receive(b->warden, &note, files, &n), 0);
	} while (note.kind == NOTE_WANT_RECORDS || note.kind == NOTE_DIRTY);
	return note;
}

static struct talk *read_lines(struct bench *b, struct peer *client)
{
	struct talk *t = peer_open(client, WIRE_OP_TRACE, NULL);

	UNTIL2(client, b->guest, t->accepted || t->closed);
	return t;
}

/* The channel on which the keeper requests the guest's lines. */
static struct talk *wanted(struct bench *b)
{
	struct talk *t;

	UNTIL2(b->guest, b->client, b->guest->n > 0 && !b->guest->talks[b->guest->n - 1].closed);
	t = &b->guest->talks[b->guest->n - 1];
	assert_int_equal(t->op, WIRE_OP_TRACE);
	assert_int_equal(link_accept(b->guest->l, t->ch, NULL), 0);
	return t;
}

static void say(struct bench *b, const struct talk *t, const char *line)
{
	assert_int_equal(link_data(b->guest->l, t->ch, 0, line, strlen(line)),
			 (ssize_t)strlen(line));
}

TEST_IN_DIR(a_reader_hears_all_three)
{
	const struct trace_line own = {
		.us = 5, .kind = TRACE_NOTE, .process = "warden", .text = "hello"
	};
	_cleanup_bench_ struct bench b;
	struct talk *t, *guest;
	struct keeper_note note;
	char line[TRACE_LINE_MAX];
	int fds[2];

	begin(&b, state);
	t = read_lines(&b, b.client);
	assert_true(t->accepted);
	note = next_note(&b);
	assert_int_equal(note.kind, NOTE_WANT_TRACE);
	assert_int_equal(note.value, 1);
	UNTIL(b.client, strstr(t->out[0], " state   serving, 1 clients, 0 commands"));
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(note_send(b.warden, NOTE_TRACE, 0, fds, 1), 0);
	(void)close(fds[0]);
	assert_true(write(fds[1], line, trace_format(&own, line)) > 0);
	UNTIL(b.client, strstr(t->out[0], "0.000005 warden - - note    hello\n"));
	/* Untrusted bytes cannot forge a line or contain an escape sequence. */
	guest = wanted(&b);
	say(&b, guest, "state in\033[31mside\nnonsense\n9.000001 warden - - state forged\n");
	UNTIL2(b.client, b.guest, strstr(t->out[0], "forged"));
	assert_non_null(strstr(t->out[0], " guest  abcdefghijklmnop - state   in\\x1b[31mside\n"));
	assert_non_null(strstr(t->out[0], " guest  abcdefghijklmnop - log     nonsense\n"));
	assert_non_null(
		strstr(t->out[0],
		       " guest  abcdefghijklmnop - log     9.000001 warden - - state forged\n"));
	/* Tracing ends everywhere with the last reader. */
	assert_int_equal(link_close(b.client->l, t->ch, WIRE_DONE, NULL), 0);
	UNTIL2(b.client, b.guest, guest->closed);
	note = next_note(&b);
	assert_int_equal(note.kind, NOTE_WANT_TRACE);
	assert_int_equal(note.value, 0);
	(void)close(fds[1]);
}

/* The pipe, a line in it and the end of the guest all arrive while the keeper is not scheduled. */
TEST_IN_DIR(the_last_line_of_the_warden)
{
	const struct trace_line own = {
		.us = 5, .kind = TRACE_STATE, .process = "warden", .text = "the sandbox ends"
	};
	_cleanup_bench_ struct bench b;
	char line[TRACE_LINE_MAX];
	struct talk *t;
	int fds[2], status;

	begin(&b, state);
	t = read_lines(&b, b.client);
	assert_int_equal(next_note(&b).kind, NOTE_WANT_TRACE);
	(void)wanted(&b);
	assert_int_equal(kill(b.keeper, SIGSTOP), 0);
	assert_int_equal(waitpid(b.keeper, &status, WUNTRACED), b.keeper);
	assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(note_send(b.warden, NOTE_TRACE, 0, fds, 1), 0);
	(void)close(fds[0]);
	assert_true(write(fds[1], line, trace_format(&own, line)) > 0);
	assert_int_equal(shutdown(b.guest->fd, SHUT_RDWR), 0);
	assert_int_equal(kill(b.keeper, SIGCONT), 0);
	UNTIL(b.client, b.client->ended);
	assert_non_null(strstr(t->out[0], " warden - - state   the sandbox ends\n"));
	assert_int_equal(bench_end(&b), KEEPER_GUEST_GONE);
	(void)close(fds[1]);
}

TEST_IN_DIR(there_is_a_most_of_readers)
{
	_cleanup_bench_ struct bench b;
	struct talk *t = NULL;

	begin(&b, state);
	for (int i = 0; i < TRACE_READERS_MAX; i++)
		assert_true(read_lines(&b, b.client)->accepted);
	t = read_lines(&b, b.client);
	assert_true(t->closed);
	assert_int_equal(t->code, WIRE_TOO_MANY);
}

/* A reader that reads nothing slows no one down; its lost lines are counted. */
TEST_IN_DIR(a_reader_that_does_not_read)
{
	_cleanup_bench_ struct bench b;
	_cleanup_peer_ struct peer *other = NULL;
	_cleanup_buf_ struct buf path = BUF_INIT(64);
	struct talk *t, *guest;
	size_t before, got;

	begin(&b, state);
	other = bench_client(&b);
	t = read_lines(&b, b.client);
	t->lazy = true;
	before = t->got[0];
	guest = wanted(&b);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(link_ping(other->l, (uint64_t)i), 0);
		if (i % 64 == 0)
			peer_step(other, 1);
	}
	/* Others are served, and the bytes received stay within the credit. */
	UNTIL2(b.client, other, t->got[0] - before > WIRE_CREDIT_START - TRACE_LINE_MAX);
	fields_put_text(&path, TAG_PATH, "/tmp");
	(void)peer_open(other, WIRE_OP_STAT, &path);
	UNTIL2(b.guest, other, b.guest->talks[b.guest->n - 1].op == WIRE_OP_STAT);
	peer_step(b.client, 10);
	got = t->got[0] - before;
	assert_true(got <= WIRE_CREDIT_START);
	t->lazy = false;
	assert_int_equal(link_consumed(b.client->l, t->ch, 0, got), 0);
	t->got[0] = 0;
	memset(t->out, 0, sizeof(t->out));
	UNTIL2(b.client, b.guest, (say(&b, guest, "state go on\n"), strstr(t->out[0], " lost ")));
	assert_non_null(strstr(t->out[0], " lines dropped: they were not read\n"));
}

/* A flooding guest slows no one down either. */
TEST_IN_DIR(a_guest_that_floods)
{
	_cleanup_bench_ struct bench b;
	struct talk *t, *guest;
	size_t limit;

	begin(&b, state);
	t = read_lines(&b, b.client);
	guest = wanted(&b);
	for (int i = 0; i < BURST; i++) {
		UNTIL2(b.guest, b.client, link_credit(b.guest->l, guest->ch, 0) > 16);
		say(&b, guest, "state flood\n");
	}
	UNTIL2(b.guest, b.client,
	       (say(&b, guest, "state on\n"),
		strstr(t->out[0], "lines of the guest dropped") || t->got[0] > 2 * sizeof(t->out)));
	limit = (size_t)3 * BURST * TRACE_LINE_MAX;
	assert_true(t->got[0] < limit);
}

int main(void)
{
#ifndef HUTCH_TRACE
	(void)puts("1..0 # SKIP built without trace points");
	return 0;
#endif
	return unit_run_as_root("the keeper's ids are taken by root, and clients are root", NULL,
				NULL);
}
