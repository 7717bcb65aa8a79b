/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs work that would block the event loop (starting or ending a sandbox, making an image) in a
 * child process: forked, without exec, with only the result pipe open. If the child dies, the job
 * fails, and the usual cleanup reclaims its unfinished work.
 */
#pragma once

#include "base/err.h"
#include "base/json-util.h"
#include "base/loop.h"

struct jobs;
struct job;

enum {
	JOB_RESULT_MAX = JSON_SIZE_MAX + 1, /* one line of JSON */
	JOB_OWNER_MAX = 63,
	JOBS_WAITING_MAX = 4096, /* for all owners; one owner gets at most the free rest */
};

/*
 * Makes a queue with `parallel` slots. Jobs wait by owner, each owner's in order: a free slot goes
 * to the waiting owner with the fewest running jobs, and among equals to the one served longest
 * ago. The last free slot is reserved for an owner without a running job, so that one owner's flood
 * does not delay another.
 */
int jobs_new(struct loop *loop, size_t parallel, struct jobs **ret, struct err *e);

/* Limits an owner to `each` running jobs, and the queue to `waiting` waiting jobs. */
void jobs_limit(struct jobs *j, size_t each, size_t waiting);

/* Drops waiting jobs. Running children continue, and their results are lost. */
struct jobs *jobs_free(struct jobs *j);

/*
 * work() runs in the child, with the trace_request() of job_start(), and returns its result (NULL
 * is {}) or an error. The loop calls done() with the result, of which it may keep a reference, or
 * with an error; never after job_abandon(). `owner` (copied) is the name of the API key, "" for the
 * operator. -EAGAIN: too many jobs of this owner wait.
 */
struct job_ops {
	int (*work)(void *arg, json_t **ret, struct err *e);
	void (*done)(void *arg, const json_t *result, const struct err *e);
};
int job_start(struct jobs *j, const char *owner, const struct job_ops *ops, void *arg,
	      struct job **ret, struct err *e);

/*
 * Drops a job whose result is no longer wanted; `arg` is not used after this. A waiting job is
 * removed. A running job continues to its end, because half a start is worse than a whole one; then
 * forget(), if given, is called instead of done(), with the result and `world`, which must outlive
 * the job.
 */
void job_abandon(struct job *j, void (*forget)(void *world, const json_t *result), void *world);

/* The same for a job that can be interrupted: a running child gets SIGTERM. */
void job_kill(struct job *j);

/* Number of running and waiting jobs. */
size_t jobs_running(const struct jobs *j);

/*
 * Hides details of the host from a client: logs the message of `e`, which may name or quote files
 * of the host, and replaces it by this text. The error number stays. Does nothing with `all` (the
 * client is an administrator). Returns e->num.
 */
int job_conceal(bool all, struct err *e, const char *fmt, ...) _printf_(3, 4);

/* The same for a policy that does not compile; the number becomes -ENOEXEC: not a client's error.
 */
int job_conceal_policy(bool all, const char *agent, struct err *e);
