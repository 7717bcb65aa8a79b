/* SPDX-License-Identifier: Apache-2.0 */
/* Concurrent starts: how many run at a time, how many in all, and what a failure does. */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandbox/starters.h"
#include "unit.h"

/* Shared with the children. */
struct counts {
	unsigned int want, there, running, most, tries, fail_at;
};

static struct counts *counts_new(unsigned int want)
{
	struct counts *c =
		mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(c != MAP_FAILED);
	c->want = want;
	return c;
}

static unsigned int missing(void *arg)
{
	struct counts *c = arg;
	unsigned int there = __atomic_load_n(&c->there, __ATOMIC_SEQ_CST);

	return c->want > there ? c->want - there : 0;
}

static void said(unsigned int being_started, void *arg)
{
	struct counts *c = arg;

	c->most = MAX(c->most, being_started + 1);
}

static int start(void *arg, struct err *e)
{
	struct counts *c = arg;
	unsigned int n = __atomic_add_fetch(&c->tries, 1, __ATOMIC_SEQ_CST);

	if (n == c->fail_at)
		return err_set(e, -ENOSPC, "start %u failed", n);
	(void)__atomic_add_fetch(&c->there, 1, __ATOMIC_SEQ_CST);
	return 0;
}

TEST(as_many_as_are_missing)
{
	for (unsigned int max = 1; max <= STARTERS_MAX; max++)
		for (unsigned int want = 0; want < 10; want++) {
			struct counts *c = counts_new(want);
			const struct starters_work w = {
				.missing = missing, .say = said, .start = start, .arg = c
			};
			struct err e = ERR_INIT;

			assert_int_equal(starters_run(&w, max, &e), 0);
			assert_int_equal(c->there, want);
			assert_int_equal(c->tries, want);
			assert_true(c->most <= MIN(max, want));
			(void)munmap(c, sizeof(*c));
		}
	assert_in_range(starters_fit(), 1, STARTERS_MAX);
}

/* Each start waits for the others: one after the other, they would never end. */
struct meeting {
	struct counts *counts;
	int ends[2];
};

static unsigned int missing_there(void *arg)
{
	return missing(((struct meeting *)arg)->counts);
}

static int start_together(void *arg, struct err *e)
{
	struct meeting *m = arg;
	struct counts *c = m->counts;
	char byte;

	if (__atomic_add_fetch(&c->running, 1, __ATOMIC_SEQ_CST) == STARTERS_MAX)
		for (int i = 1; i < STARTERS_MAX; i++)
			assert_int_equal(write(m->ends[1], "x", 1), 1);
	else if (read(m->ends[0], &byte, 1) != 1)
		return err_set(e, -EIO, "the others did not come");
	(void)__atomic_add_fetch(&c->there, 1, __ATOMIC_SEQ_CST);
	return 0;
}

TEST(at_the_same_time)
{
	struct meeting m = { .counts = counts_new(STARTERS_MAX) };
	const struct starters_work w = { .missing = missing_there,
					 .start = start_together,
					 .arg = &m };
	struct err e = ERR_INIT;

	assert_int_equal(pipe(m.ends), 0);
	assert_int_equal(starters_run(&w, STARTERS_MAX, &e), 0);
	assert_int_equal(m.counts->there, STARTERS_MAX);
	(void)close(m.ends[0]);
	(void)close(m.ends[1]);
	(void)munmap(m.counts, sizeof(*m.counts));
}

TEST(a_failure_ends_it)
{
	struct counts *c = counts_new(100);
	const struct starters_work w = { .missing = missing, .start = start, .arg = c };
	struct err e = ERR_INIT;

	c->fail_at = 3;
	assert_int_equal(starters_run(&w, 2, &e), -ENOSPC);
	assert_string_equal(e.msg, "start 3 failed");
	assert_in_range(c->tries, 3, 4);
	(void)munmap(c, sizeof(*c));
}

static int die(void *arg, struct err *e)
{
	(void)arg;
	(void)e;
	(void)raise(SIGKILL);
	return 0;
}

TEST(a_killed_child_is_a_failure)
{
	struct counts *c = counts_new(1);
	const struct starters_work w = { .missing = missing, .start = die, .arg = c };
	struct err e = ERR_INIT;

	assert_int_equal(starters_run(&w, 1, &e), -EIO);
	assert_non_null(strstr(e.msg, "was killed"));
	(void)munmap(c, sizeof(*c));
}
