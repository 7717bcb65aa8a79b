/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What would keep the loop waiting (to start a sandbox, to end one, to make an image) is done by a
 * child: forked, not executed, with nothing open but the pipe that its result comes through. If it
 * dies, that is an error like another, and what it left half made is reclaimed like anybody's.
 */
#pragma once

#include "err.h"
#include "json-util.h"
#include "loop.h"

struct jobs;
struct job;

enum {
	JOB_RESULT_MAX = JSON_SIZE_MAX + 1, /* no child writes more: a line of JSON */
	JOB_OWNER_MAX = 63,
	JOBS_WAITING_MAX = 4096, /* of all owners; one may have no more than are left for others */
};

/*
 * `parallel` slots. Jobs wait by owner, and each owner's in order: a free slot goes to the waiting
 * owner with the fewest running jobs, and among equals to the one served longest ago. The last free
 * slot is kept for an owner without a running job, so a newcomer never waits for one flood's end.
 */
int jobs_new(struct loop *loop, size_t parallel, struct jobs **ret, struct err *e);

/* No owner runs more than `each` at once, and no more than `waiting` wait in all. */
void jobs_limit(struct jobs *j, size_t each, size_t waiting);

/* Jobs that run go on and tell nobody; those that wait are forgotten. */
struct jobs *jobs_free(struct jobs *j);

/*
 * work() is called in the child, with trace_request() as it was at job_start(), and returns its
 * result (NULL is {}) or an error. done() is called from the loop, with a result that it may keep a
 * reference of, or with an error; not after job_abandon(). `owner` is the name of the key that it
 * is for, "" for the operator; it is copied. -EAGAIN: too many of this owner wait.
 */
struct job_ops {
	int (*work)(void *arg, json_t **ret, struct err *e);
	void (*done)(void *arg, const json_t *result, const struct err *e);
};
int job_start(struct jobs *j, const char *owner, const struct job_ops *ops, void *arg,
	      struct job **ret, struct err *e);

/* Nobody wants its result any more: `arg` is not used after this. One that waits is forgotten; one
 * that runs goes on to its end, for half a start is worse than a whole one; forget(), if given, is
 * then called with its result instead of done(), and with `world`, which outlives the job. */
void job_abandon(struct job *j, void (*forget)(void *world, const json_t *result), void *world);

/* The same for one that is better not done than done in vain: it gets SIGTERM if it runs. */
void job_kill(struct job *j);

/* Running and waiting jobs. */
size_t jobs_running(const struct jobs *j);

/*
 * For work() of a client who may not look into the host: logs what `e` says, which may name files
 * of the host or quote them, and puts this text in its place. The number stays. With `all` (the
 * client is an administrator) nothing is done. Returns e->num.
 */
int job_conceal(bool all, struct err *e, const char *fmt, ...) _printf_(3, 4);

/* The same for a policy that does not compile; the number becomes -ENOEXEC, for no client can help
 * it. */
int job_conceal_policy(bool all, const char *agent, struct err *e);
