/* SPDX-License-Identifier: Apache-2.0 */
/* Commands from before, under another keeper. The test plays the guest. */
#include "test-keeper.h"

#include "keeper/command.h"

static void bench_adopts(struct bench *b)
{
	bench_start(b, false);
	bench_go(b);
}

/* The pid in the request to the guest. */
static uint64_t pid_of(const struct talk *t)
{
	struct err e = ERR_INIT;
	struct fields f;

	assert_int_equal(t->op, WIRE_OP_ADOPT);
	assert_int_equal(fields_parse(MESSAGE_ADOPT, t->open.data, t->open.len, &f, &e), 0);
	return fields_number(&f, TAG_PID, 0);
}

static void guest_accepts(struct bench *b, const struct talk *t)
{
	_cleanup_buf_ struct buf f = BUF_INIT(64);

	fields_put_number(&f, TAG_PID, pid_of(t));
	assert_int_equal(link_accept(b->guest->l, t->ch, &f), 0);
}

static void guest_ends(struct bench *b, const struct talk *t, uint64_t code)
{
	_cleanup_buf_ struct buf f = BUF_INIT(64);

	fields_put_number(&f, TAG_CODE, code);
	fields_put_number(&f, TAG_USER_US, 1);
	fields_put_number(&f, TAG_SYSTEM_US, 1);
	fields_put_number(&f, TAG_MAX_RSS, 1);
	assert_int_equal(link_msg(b->guest->l, t->ch, WIRE_MSG_EXIT, &f), 0);
	assert_int_equal(link_close(b->guest->l, t->ch, WIRE_DONE, NULL), 0);
}

static bool record_is(const struct bench *b, uint64_t number, enum record_state state,
		      struct record_info *ret)
{
	char path[UNIT_PATH_MAX + RECORD_FILE_NAME], name[RECORD_FILE_NAME];
	_cleanup_close_ int fd = -EBADF;
	struct err e = ERR_INIT;

	record_file_name(number, name);
	(void)snprintf(path, sizeof(path), "%s/%s", b->dir->path, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && record_read(fd, ret, &e) == 0 && ret->slot.state == state;
}

static struct talk *attach(struct peer *p, const char *name)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	fields_put_flag(&b, TAG_STDIN);
	fields_put_text(&b, TAG_NAME, name);
	return peer_open(p, WIRE_OP_ATTACH, &b);
}

/* An adopted command is like any other: it has a record, input, an end. */
TEST_IN_DIR(is_taken_over)
{
	_cleanup_bench_ struct bench b;
	struct record_info i;
	struct talk *g, *t;

	bench_init(&b, state);
	ran_before(&b, 11, "job", RECORD_RUNNING);
	bench_adopts(&b);
	UNTIL2(b.guest, b.client, b.guest->n == 1);
	g = &b.guest->talks[0];
	assert_int_equal(pid_of(g), 11);
	guest_accepts(&b, g);
	assert_int_equal(link_data(b.guest->l, g->ch, 1, "more", 4), 4);
	UNTIL2(b.guest, b.client, record_is(&b, 1, RECORD_RUNNING, &i) && i.slot.bytes[0] == 4);
	assert_int_equal(i.slot.pid, 11);
	assert_int_equal(i.head.number, 1);
	assert_int_equal(i.head.start, 1);
	assert_int_equal(i.head.flags, RECORD_INPUT | RECORD_DETACHED);
	assert_string_equal(i.head.name, "job");
	assert_memory_equal(i.head.argv, "run\0it", 7);
	t = attach(b.client, "job");
	UNTIL2(b.guest, b.client, t->accepted);
	assert_int_equal(t->record, 1);
	assert_int_equal(link_data(b.client->l, t->ch, 0, "typed", 5), 5);
	UNTIL2(b.guest, b.client, g->got[0] == 5);
	assert_string_equal(g->out[0], "typed");
	guest_ends(&b, g, 5);
	UNTIL2(b.guest, b.client, t->closed && record_is(&b, 1, RECORD_ENDED, &i));
	assert_int_equal(i.slot.how, RECORD_EXITED);
	assert_int_equal(i.slot.value, 5);
}

/* An ended or unknown command cannot be adopted. A command that the guest does not know has
 * ended. */
TEST_IN_DIR(only_what_runs)
{
	_cleanup_bench_ struct bench b;
	struct record_info i;

	bench_init(&b, state);
	ran_before(&b, 11, "", RECORD_ENDED);
	ran_before(&b, 12, "", RECORD_STARTING);
	ran_before(&b, 0, "", RECORD_RUNNING);
	ran_before(&b, UINT32_MAX, "", RECORD_RUNNING);
	ran_before(&b, 13, "", RECORD_RUNNING);
	bench_adopts(&b);
	UNTIL2(b.guest, b.client, b.guest->n == 1);
	assert_int_equal(pid_of(&b.guest->talks[0]), 13);
	assert_int_equal(link_close(b.guest->l, b.guest->talks[0].ch, WIRE_NOT_FOUND, "none"), 0);
	UNTIL2(b.guest, b.client, record_is(&b, 1, RECORD_ENDED, &i));
	assert_int_equal(i.slot.how, RECORD_CLOSED);
	assert_int_equal(i.slot.value, WIRE_NOT_FOUND);
	assert_int_equal(b.guest->n, 1);
}

/* A wrong list does no harm: the rest is adopted, and clients are served. */
TEST_IN_DIR(the_list_may_be_wrong)
{
	for (unsigned int way = 0; way < 2; way++) {
		_cleanup_bench_ struct bench b;
		struct talk *t;

		bench_init(&b, state);
		ran_before(&b, 11, "", RECORD_RUNNING);
		ran_before(&b, 12, "", RECORD_RUNNING);
		if (way == 0)
			assert_int_equal(ftruncate(b.adopt, 2 * RECORD_BLOCKS - 1), 0);
		else
			assert_int_equal(pwrite(b.adopt, "x", 1, RECORD_BLOCKS + 100), 1);
		bench_adopts(&b);
		t = peer_exec(b.client, .script = "x");
		UNTIL2(b.guest, b.client, b.guest->n == 2);
		assert_int_equal(pid_of(&b.guest->talks[0]), 11);
		assert_int_equal(b.guest->talks[1].op, WIRE_OP_EXEC);
		assert_false(t->closed);
	}
}

TEST_IN_DIR(too_many_are_left)
{
	_cleanup_bench_ struct bench b;

	bench_init(&b, state);
	for (unsigned int i = 1; i <= RELAYS_EXEC + 3; i++)
		ran_before(&b, i, "", RECORD_RUNNING);
	bench_adopts(&b);
	UNTIL2(b.guest, b.client, b.guest->n == RELAYS_EXEC);
	assert_int_equal(pid_of(&b.guest->talks[RELAYS_EXEC - 1]), RELAYS_EXEC);
	for (int i = 0; i < 10; i++)
		peer_step(b.guest, 5);
	assert_int_equal(b.guest->n, RELAYS_EXEC);
}

/* A command without a record is not adopted, and everything else continues. */
TEST_IN_DIR(not_without_a_record)
{
	_cleanup_bench_ struct bench b;
	_cleanup_buf_ struct buf f = BUF_INIT(64);
	struct talk *t;

	bench_init(&b, state);
	b.no_records = true;
	ran_before(&b, 11, "", RECORD_RUNNING);
	bench_adopts(&b);
	fields_put_text(&f, TAG_PATH, "/x");
	t = peer_open(b.client, WIRE_OP_STAT, &f);
	UNTIL2(b.guest, b.client, b.guest->n == 1);
	assert_int_equal(b.guest->talks[0].op, WIRE_OP_STAT);
	assert_false(t->closed);
}

TEST_IN_DIR(not_after_go)
{
	_cleanup_bench_ struct bench b;

	bench_init(&b, state);
	bench_adopts(&b);
	ran_before(&b, 11, "", RECORD_RUNNING);
	assert_int_equal(note_send(b.warden, NOTE_ADOPT, 0, &b.adopt, 1), 0);
	assert_int_equal(bench_end(&b), KEEPER_FAILED);
}

/* ---- the other half: records ---- */

TEST(what_runs_is_written_down)
{
	_cleanup_close_ int fd = memfd_create("commands", MFD_CLOEXEC);
	struct command c[4] = { 0 };
	struct relay r[5] = { 0 };
	struct keeper k = { .relays.list = r };
	struct err e = ERR_INIT;
	struct record_info i;

	for (size_t n = 0; n < ARRAY_SIZE(r); n++) {
		r[n] = (struct relay){ .pid = 20 + (uint32_t)n, .guest_ch = 2 };
		r[n].next = n + 1 < ARRAY_SIZE(r) ? &r[n + 1] : NULL;
		if (n == ARRAY_SIZE(c))
			continue; /* a file operation */
		r[n].command = &c[n];
		c[n].record = (struct record){ .fd = -EBADF, .number = n + 1 };
		record_begin(&c[n].record, &c[n].head);
		command_runs(&c[n], r[n].pid);
		c[n].begun = true;
	}
	r[0].guest_ch = 0; /* it has closed */
	r[2].pid = 0;	   /* it has not started */
	c[3].over = true;
	assert_int_equal(adopt_write(&k, fd), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(record_list_next(fd, &i, &e), 1);
	assert_int_equal(i.slot.pid, 21);
	assert_int_equal(i.head.number, 2);
	assert_int_equal(record_list_next(fd, &i, &e), 0);
	assert_true(adopt_write(&k, -EBADF) < 0);
}

int main(void)
{
	return unit_run_as_root("the keeper's ids are taken by root, and clients are root", NULL,
				NULL);
}
