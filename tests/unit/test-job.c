/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "fail.h"
#include "job/job.h"

struct world {
	struct loop *loop;
	struct jobs *jobs;
	unsigned int done, wanted;
	unsigned int refused; /* could not be started */
	struct err e;
	char text[64];
	char order[256]; /* the names of tasks, as they ended */
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

static struct world *world_new(size_t parallel)
{
	struct world *w = calloc(1, sizeof(*w));
	struct err e = ERR_INIT;

	assert_non_null(w);
	assert_int_equal(loop_new(&w->loop), 0);
	assert_int_equal(jobs_new(w->loop, parallel, &w->jobs, &e), 0);
	return w;
}

static int setup(void **state)
{
	*state = world_new(1);
	return 0;
}

static int setup_four(void **state)
{
	*state = world_new(4);
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

	assert_int_equal(job_start(w->jobs, "", ops, w, &j, &e), 0);
	return j;
}

static const struct job_ops work_ops = { works, finish }, fail_ops = { fails, finish },
			    die_ops = { dies, finish }, sleep_ops = { sleeps, finish };

static void run(struct world *w, unsigned int n)
{
	w->wanted = w->done + n;
	assert_int_equal(loop_run(w->loop), 0);
}

TEST_WITH(results_and_errors, setup, teardown)
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

/* A killed job does not block the next ones, and has no callback. */
TEST_WITH(one_that_is_killed, setup, teardown)
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

static void forget(void *arg, const json_t *result)
{
	*(unsigned int *)arg += json_object_get(result, "text") != NULL;
}

TEST_WITH(one_that_nobody_wants, setup, teardown)
{
	struct world *w = *state;
	unsigned int forgotten = 0;

	job_abandon(start(w, &work_ops), forget, &forgotten);
	(void)start(w, &work_ops);
	run(w, 1);
	assert_int_equal(forgotten, 1);
	assert_int_equal(w->done, 1);
}

/* ---- owners ---- */

/* A job that logs its end; a job of gate_ops ends when it is released. */
struct task {
	struct world *w;
	const char *name;
	struct job *job;
};

static void task_done(void *arg, const json_t *result, const struct err *e)
{
	const bool refused = strncmp(e->msg, "cannot start", 12) == 0;
	struct task *t = arg;

	/* A refused job has no owner any more; abandoning it is still allowed. */
	if (refused)
		job_abandon(t->job, NULL, NULL);
	t->job = NULL;
	(void)strcat(t->w->order, t->name);
	t->w->refused += refused;
	finish(t->w, result, e);
}

static const struct job_ops gate_ops = { sleeps, task_done }, quick_ops = { works, task_done };

static struct task *ask(struct world *w, struct task *t, const char *name,
			const struct job_ops *ops)
{
	const char owner[2] = { name[0], 0 };
	struct err e = ERR_INIT;

	*t = (struct task){ .w = w, .name = name };
	assert_int_equal(job_start(w->jobs, owner, ops, t, &t->job, &e), 0);
	return t;
}

static void let_go(struct task *t)
{
	job_kill(t->job);
	t->job = NULL;
}

/* A single owner leaves a slot free for a newcomer; each owner's jobs keep their order. */
TEST_WITH(a_newcomer_finds_a_slot, setup_four, teardown)
{
	struct world *w = *state;
	struct task a[8], b[2];
	static const char *const names[] = { "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7" };

	for (size_t i = 0; i < 8; i++)
		(void)ask(w, &a[i], names[i], &gate_ops);
	assert_int_equal(jobs_running(w->jobs), 8);
	(void)ask(w, &b[0], "b0", &quick_ops);
	(void)ask(w, &b[1], "b1", &quick_ops);
	run(w, 2);
	assert_string_equal(w->order, "b0b1");
	assert_int_equal(jobs_running(w->jobs), 8);
	for (size_t i = 8; i > 0; i--)
		let_go(&a[i - 1]);
	assert_int_equal(jobs_running(w->jobs), 3); /* they end */
	(void)ask(w, &b[0], "b2", &quick_ops);
	while (jobs_running(w->jobs) > 0)
		assert_int_equal(loop_once(w->loop, UINT64_MAX), 0);
	assert_string_equal(w->order, "b0b1b2");
}

/* A free slot goes to the owner with the fewest jobs, in turn. */
TEST_WITH(slots_are_shared, setup_four, teardown)
{
	struct world *w = *state;
	struct task a[6], b[3], c[3];
	static const char *const an[] = { "a0", "a1", "a2", "a3", "a4", "a5" };
	static const char *const bn[] = { "b0", "b1", "b2" }, *const cn[] = { "c0", "c1", "c2" };

	for (size_t i = 0; i < 6; i++)
		(void)ask(w, &a[i], an[i], i < 3 ? &gate_ops : &quick_ops);
	for (size_t i = 0; i < 3; i++)
		(void)ask(w, &b[i], bn[i], i < 1 ? &gate_ops : &quick_ops);
	for (size_t i = 0; i < 3; i++)
		(void)ask(w, &c[i], cn[i], &quick_ops);
	/* a0 a1 a2 b0 run. The free slot goes to c, which has none, until c has no jobs left;
	 * the other owners would take the last slot. */
	let_go(&a[0]);
	run(w, 3);
	assert_string_equal(w->order, "c0c1c2");
	/* A second free slot: a and b have one each and take turns, with one slot left. */
	let_go(&a[1]);
	run(w, 5);
	assert_int_equal(strlen(w->order), 16);
	assert_non_null(strstr(w->order, "a3"));
	assert_true(strstr(w->order, "b1") < strstr(w->order, "a4"));
	assert_true(strstr(w->order, "a3") < strstr(w->order, "b2"));
	assert_true(strstr(w->order, "b2") < strstr(w->order, "a5"));
	let_go(&a[2]);
	let_go(&b[0]);
	while (jobs_running(w->jobs) > 0)
		assert_int_equal(loop_once(w->loop, UINT64_MAX), 0);
}

/* An owner with many jobs cannot keep another out of the queue. */
TEST_WITH(an_owner_cannot_fill_the_queue, setup_four, teardown)
{
	struct world *w = *state;
	static struct job *waiting[JOBS_WAITING_MAX];
	struct err e = ERR_INIT;
	struct job *runs[4];
	size_t n = 0, others = 0;

	for (size_t i = 0; i < 3; i++)
		assert_int_equal(job_start(w->jobs, "a", &sleep_ops, w, &runs[i], &e), 0);
	assert_int_equal(job_start(w->jobs, "b", &sleep_ops, w, &runs[3], &e), 0);
	while (job_start(w->jobs, "a", &work_ops, w, &waiting[n], &e) == 0)
		n++;
	assert_int_equal(e.num, -EAGAIN);
	assert_int_equal(n, JOBS_WAITING_MAX / 2);
	for (others = 0; job_start(w->jobs, "b", &work_ops, w, &waiting[n], &e) == 0; others++)
		n++;
	assert_int_equal(others, JOBS_WAITING_MAX / 4);
	assert_int_equal(job_start(w->jobs, "c", &work_ops, w, &waiting[n], &e), 0);
	n++;
	assert_int_equal(jobs_running(w->jobs), n + 4);
	/* Waiting jobs can be dropped: from the middle, the first, the last. */
	for (size_t i = 0; i < n; i++)
		job_abandon(waiting[(i * 1021) % n], NULL, NULL);
	assert_int_equal(jobs_running(w->jobs), 4);
	for (size_t i = 0; i < 4; i++)
		job_kill(runs[i]);
	while (jobs_running(w->jobs) > 0)
		assert_int_equal(loop_once(w->loop, UINT64_MAX), 0);
	assert_int_equal(w->done, 0);
}

/* ---- failures ---- */

/* Waits until no child is left, not even a zombie. */
static void reap_all(struct world *w)
{
	siginfo_t info;

	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
		assert_int_equal(loop_once(w->loop, clock_mono() + 10 * NSEC_PER_MSEC), 0);
	assert_int_equal(errno, ECHILD);
}

static int large(void *arg, json_t **ret, struct err *e)
{
	_cleanup_free_ char *text = malloc(JSON_SIZE_MAX);

	assert_non_null(text);
	memset(text, '"', JSON_SIZE_MAX);
	*ret = json_stringn(text, JSON_SIZE_MAX);
	return 0;
}

/* An error; its child is gone, and the next job runs. */
TEST_WITH(a_result_that_is_too_large, setup, teardown)
{
	static const struct job_ops large_ops = { .work = large, .done = finish };
	struct world *w = *state;
	struct err e = ERR_INIT;
	struct job *j;

	assert_int_equal(job_start(w->jobs, "a", &large_ops, w, &j, &e), 0);
	run(w, 1);
	assert_int_equal(w->e.num, -EIO);
	reap_all(w);
	assert_int_equal(job_start(w->jobs, "a", &work_ops, w, &j, &e), 0);
	run(w, 1);
	reap_all(w);
}

/* No owner exceeds its limit, and the queue has a limit. */
TEST_WITH(limits_of_a_pool, setup_four, teardown)
{
	struct world *w = *state;
	struct err e = ERR_INIT;
	struct job *runs[3], *waits, *none;

	jobs_limit(w->jobs, 1, 2);
	assert_int_equal(job_start(w->jobs, "a", &sleep_ops, w, &runs[0], &e), 0);
	assert_int_equal(job_start(w->jobs, "a", &sleep_ops, w, &waits, &e), 0);
	assert_int_equal(job_start(w->jobs, "a", &sleep_ops, w, &none, &e), -EAGAIN);
	assert_int_equal(job_start(w->jobs, "b", &sleep_ops, w, &runs[1], &e), 0);
	assert_int_equal(job_start(w->jobs, "c", &sleep_ops, w, &runs[2], &e), 0);
	assert_int_equal(jobs_running(w->jobs), 4);
	job_abandon(waits, NULL, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(runs); i++)
		job_kill(runs[i]);
	reap_all(w);
}

static int start_one(struct world *w)
{
	struct err e = ERR_INIT;
	struct job *j = NULL;
	int r = job_start(w->jobs, "a", &work_ops, w, &j, &e);

	if (r < 0) {
		assert_int_equal(jobs_running(w->jobs), 0);
		return r;
	}
	fail_off();
	run(w, 1);
	reap_all(w);
	return 0;
}

TEST_WITH(every_failure_of_a_start, setup, teardown)
{
	FAIL_SWEEP(start_one(*state));
}

/* A queued job that fails to start reports an error, and later jobs still run. */
TEST_WITH(a_start_that_fails_later, setup, teardown)
{
	struct world *w = *state;
	struct rlimit was, none;
	struct task t[4];

	(void)ask(w, &t[0], "a0", &quick_ops);
	(void)ask(w, &t[1], "a1", &quick_ops);
	(void)ask(w, &t[2], "b0", &quick_ops);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = (struct rlimit){ .rlim_cur = 3, .rlim_max = was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	while (jobs_running(w->jobs) > 0)
		assert_int_equal(loop_once(w->loop, UINT64_MAX), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_string_equal(w->order, "a1b0a0");
	assert_int_equal(w->refused, 2);
	(void)ask(w, &t[3], "a2", &quick_ops);
	run(w, 1);
	assert_string_equal(w->order, "a1b0a0a2");
	assert_string_equal(w->text, "here");
}
