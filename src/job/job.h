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
	JOB_RESULT_MAX = 15 * 1024 * 1024,
	JOBS_WAITING_MAX = 4096,
};

/* `parallel` of them at once; the others wait in order. */
int jobs_new(struct loop *loop, size_t parallel, struct jobs **ret, struct err *e);
/* Jobs that run go on and tell nobody; those that wait are forgotten. */
struct jobs *jobs_free(struct jobs *j);

/*
 * work() is called in the child, with trace_request() as it was at job_start(), and returns its
 * result (NULL is {}) or an error. done() is called from the loop, with a result that it may keep a
 * reference of, or with an error; not after job_abandon(). -EAGAIN: too many wait.
 */
struct job_ops {
	int (*work)(void *arg, json_t **ret, struct err *e);
	void (*done)(void *arg, const json_t *result, const struct err *e);
};
int job_start(struct jobs *j, const struct job_ops *ops, void *arg, struct job **ret,
	      struct err *e);

/* Nobody wants its result any more: `arg` is not used after this. One that waits is forgotten; one
 * that runs goes on to its end, for half a start is worse than a whole one; forget() is then called
 * with its result instead of done(), with no arg, if given. */
void job_abandon(struct job *j, void (*forget)(struct jobs *j, const json_t *result));

/* The same for one that is better not done than done in vain: it gets SIGTERM if it runs. */
void job_kill(struct job *j);
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
