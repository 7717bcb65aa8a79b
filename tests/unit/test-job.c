/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <signal.h>
#include <string.h>

#include "clock.h"
#include "fail.h"
#include "job.h"

struct world {
	struct loop *loop;
	struct jobs *jobs;
	unsigned int done, wanted;
	struct err e;
	char text[64];
};

static void finish(void *arg, const json_t *result, const struct err *e)
{
	struct world *w = arg;

	w->e = *e;
	(void)snprintf(w->text, sizeof(w->text), "%s",
		       json_string_value(json_object_get(result, "text")) ?: "");
	if (++w->done == w->wanted)
		loop_stop(w->loop, 0);
}

static int works(void *arg, json_t **ret, struct err *e)
{
	*ret = JSON_OBJECT({ "text", json_string("here") });
	return *ret ? 0 : err_oom(e);
}

static int fails(void *arg, json_t **ret, struct err *e)
{
	return err_set(e, -ENOSPC, "it is full");
}

static int dies(void *arg, json_t **ret, struct err *e)
{
	(void)raise(SIGKILL);
	return 0;
}

static int sleeps(void *arg, json_t **ret, struct err *e)
{
	(void)sleep(100);
	return 0;
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct err e = ERR_INIT;

	assert_non_null(w);
	assert_int_equal(loop_new(&w->loop), 0);
	assert_int_equal(jobs_new(w->loop, 1, &w->jobs, &e), 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	assert_int_equal(jobs_running(w->jobs), 0);
	(void)jobs_free(w->jobs);
	(void)loop_free(w->loop);
	free(w);
	return 0;
}

static struct job *start(struct world *w, const struct job_ops *ops)
{
	struct err e = ERR_INIT;
	struct job *j = NULL;

	assert_int_equal(job_start(w->jobs, ops, w, &j, &e), 0);
	return j;
}

static const struct job_ops work_ops = { works, finish }, fail_ops = { fails, finish },
			    die_ops = { dies, finish }, sleep_ops = { sleeps, finish };

static void run(struct world *w, unsigned int n)
{
	w->wanted = w->done + n;
	assert_int_equal(loop_run(w->loop), 0);
}

static void results_and_errors(void **state)
{
	struct world *w = *state;

	(void)start(w, &work_ops);
	run(w, 1);
	assert_string_equal(w->text, "here");
	(void)start(w, &fail_ops);
	run(w, 1);
	assert_int_equal(w->e.num, -ENOSPC);
	assert_string_equal(w->e.msg, "it is full");
	(void)start(w, &die_ops);
	run(w, 1);
	assert_int_equal(w->e.num, -EIO);
}

/* The one that is killed does not hold up those behind it, and is not heard of. */
static void one_that_is_killed(void **state)
{
	struct world *w = *state;
	struct job *first = start(w, &sleep_ops), *second = start(w, &fail_ops);
	uint64_t began = clock_mono();

	(void)start(w, &work_ops);
	assert_int_equal(jobs_running(w->jobs), 3);
	job_kill(second); /* waits still */
	assert_int_equal(jobs_running(w->jobs), 2);
	job_kill(first);
	run(w, 1);
	assert_string_equal(w->text, "here");
	assert_int_equal(w->done, 1);
	assert_true(clock_mono() - began < 60 * NSEC_PER_SEC);
}

static unsigned int forgotten;

static void forget(struct jobs *j, const json_t *result)
{
	forgotten += json_object_get(result, "text") != NULL;
}

static void one_that_nobody_wants(void **state)
{
	struct world *w = *state;

	forgotten = 0;
	job_abandon(start(w, &work_ops), forget);
	(void)start(w, &work_ops);
	run(w, 1);
	assert_int_equal(forgotten, 1);
	assert_int_equal(w->done, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(results_and_errors, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_is_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_nobody_wants, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
