/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "ledger/ledger.h"

static int add(struct ledger_counter *c, void *arg)
{
	const uint64_t *n = arg;

	c->requests++;
	c->tokens += *n;
	c->usd += 2 * *n;
	return 0;
}

static int look(struct ledger_counter *c, void *arg)
{
	*(struct ledger_counter *)arg = *c;
	return 7;
}

static int refuse(struct ledger_counter *c, void *arg)
{
	c->tokens = 999;
	return -EPERM;
}

static struct ledger_counter read_counter(struct ledger *l, size_t i)
{
	struct ledger_counter c;
	struct err e = ERR_INIT;

	assert_int_equal(ledger_change(l, i, look, &c, &e), 7);
	return c;
}

static int setup(void **state)
{
	struct unit_dir *d;
	int r = unit_dir_setup(state);

	d = *state;
	return r == 0 ? setenv("HUTCH_STATE_DIR", d->path, 1) : r;
}

#define TEST_STATE(name) TEST_WITH(name, setup, unit_dir_teardown)

TEST_STATE(counts)
{
	struct ledger l, other;
	struct err e = ERR_INIT;
	uint64_t n = 5;

	assert_int_equal(ledger_open("a", &l, &e), 0);
	assert_int_equal(ledger_open("a", &other, &e), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ledger_change(&l, 2, add, &n, &e), 0);
		assert_int_equal(ledger_change(&other, 2, add, &n, &e), 0);
	}
	assert_int_equal(ledger_change(&l, 2, refuse, NULL, &e), -EPERM);
	ledger_close(&l);
	assert_int_equal(ledger_open("a", &l, &e), 0);
	assert_int_equal(read_counter(&l, 2).tokens, 30);
	assert_int_equal(read_counter(&l, 2).requests, 6);
	assert_int_equal(read_counter(&l, 2).usd, 60);
	assert_int_equal(read_counter(&l, 1).requests, 0);
	ledger_remove(&l);
	ledger_close(&l);
	ledger_close(&other);
	assert_int_equal(ledger_open("a", &l, &e), 0);
	assert_int_equal(read_counter(&l, 2).requests, 0);
	ledger_close(&l);
}

/* Processes that are killed at any moment lose no change that they have made, and make no other. */
TEST_STATE(processes)
{
	enum {
		CHILDREN = 4,
		CHANGES = 50
	};
	struct err e = ERR_INIT;
	struct ledger l;
	uint64_t n = 1;

	for (int i = 0; i < CHILDREN; i++)
		if (fork() == 0) {
			int r = ledger_open("b", &l, &e);

			for (int k = 0; r == 0 && k < CHANGES; k++)
				r = ledger_change(&l, 0, add, &n, &e);
			_exit(r == 0 ? 0 : 1);
		}
	for (int i = 0; i < CHILDREN; i++) {
		int status = 1;

		(void)wait(&status);
		assert_int_equal(status, 0);
	}
	assert_int_equal(ledger_open("b", &l, &e), 0);
	assert_int_equal(read_counter(&l, 0).requests, CHILDREN * CHANGES);
	ledger_close(&l);
}

/* One slot may be torn: the other one counts. Without any, nothing is granted. */
TEST_STATE(damage)
{
	struct err e = ERR_INIT;
	struct ledger l;
	uint64_t n = 1;
	off_t size;

	assert_int_equal(ledger_open("c", &l, &e), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(ledger_change(&l, 0, add, &n, &e), 0);
	size = lseek(l.file, 0, SEEK_END);
	/* Slot 0 has the fourth change. */
	assert_int_equal(pwrite(l.file, "torn", 4, 40), 4);
	assert_int_equal(read_counter(&l, 0).requests, 3);
	for (off_t at = 0; at < size; at += 100)
		assert_int_equal(pwrite(l.file, "torn", 4, at), 4);
	assert_int_equal(ledger_change(&l, 0, add, &n, &e), -EBADMSG);
	assert_non_null(strstr(e.msg, "damaged"));
	ledger_close(&l);
}
