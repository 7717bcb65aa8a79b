/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child writes one line of JSON, {"result": ...} or {"errno": n, "message": ...}, and exits. The
 * pipe's end is the job's end: the child is reaped then (SIGCHLD stays its default: wardens that a
 * child has started are nobody's children soon after).
 */
#include "job.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buf.h"
#include "clock.h"
#include "fd.h"
#include "log.h"
#include "proc.h"
#include "trace.h"

struct job {
	struct jobs *jobs;
	const struct job_ops *ops;
	void *arg;
	bool abandoned;
	char request[TRACE_ID_MAX + 1]; /* that it is done for; "": none */
	void (*forget)(struct jobs *j, const json_t *result);
	struct job *next; /* of those that wait */
	/* of one that runs */
	struct proc proc;
	struct loop_fd pipe;
	struct buf result;
};

struct jobs {
	struct loop *loop;
	size_t parallel, running, n_waiting;
	struct job *first, **last;
};

static void job_free(struct job *j)
{
	loop_del_fd(&j->pipe);
	(void)fd_close(j->pipe.fd);
	(void)fd_close(j->proc.pidfd);
	buf_done(&j->result);
	free(j);
}

/* ---- the child ---- */

static json_t *report(int r, json_t *result, const struct err *e)
{
	if (r < 0)
		return JSON_OBJECT({ "errno", json_integer(-r) },
				   { "message", json_string(e->msg) });
	return JSON_OBJECT({ "result", result ? result : json_object() });
}

static _noreturn_ void work(const struct job *j, int out)
{
	_cleanup_json_ json_t *all = NULL;
	_cleanup_free_ char *text = NULL;
	json_t *result = NULL;
	struct err e = ERR_INIT;
	sigset_t none;
	int r;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	/* Connections of clients are not ours to hold open. */
	if (out != 3 && dup3(out, 3, O_CLOEXEC) < 0)
		_exit(1);
	(void)close_range(4, ~0U, 0);
	log_forked();
	trace_set_request(j->request);
	r = j->ops->work(j->arg, &result, &e);
	all = report(r, result, &e);
	text = all ? json_write_line(all) : NULL;
	_exit(text && fd_write_all(3, text, strlen(text)) == 0 ? 0 : 1);
}

/* ---- the parent ---- */

static void next(struct jobs *jobs);

static int read_report(const struct job *j, json_t **ret, struct err *e)
{
	const char *message = NULL;
	struct err own = ERR_INIT;
	uint64_t number = 0;
	_cleanup_json_ json_t *all = NULL;

	if (json_read(buf_text(&j->result), j->result.len, &all, &own) < 0)
		return err_set(e, -EIO, "a process died on the way");
	if (json_get_u64(all, "errno", 4095, &number, &own) == 0 && number > 0) {
		(void)json_get_string(all, "message", ERR_MSG_MAX, &message, &own);
		return err_set(e, -(int)number, "%s", message ? message : "?");
	}
	*ret = json_incref(json_object_get(all, "result"));
	return *ret ? 0 : err_set(e, -EIO, "a process had no result");
}

static void finish(struct job *j)
{
	_cleanup_json_ json_t *result = NULL;
	struct jobs *jobs = j->jobs;
	struct err e = ERR_INIT;
	siginfo_t info;
	int r = read_report(j, &result, &e);

	(void)proc_wait(&j->proc, clock_mono() + NSEC_PER_SEC, &info);
	jobs->running--;
	if (!j->abandoned)
		j->ops->done(j->arg, r < 0 ? NULL : result, &e);
	else if (j->forget && r == 0)
		j->forget(jobs, result);
	job_free(j);
	next(jobs);
}

static void on_pipe(struct loop_fd *src, uint32_t events)
{
	struct job *j = src->arg;
	char *room = buf_reserve(&j->result, 4096);
	ssize_t n = room ? RETRY_EINTR(read(j->pipe.fd, room, 4096)) : 0;

	if (n > 0)
		buf_commit(&j->result, (size_t)n);
	else
		finish(j);
}

static int start(struct job *j)
{
	_cleanup_close_ int in = -EBADF, out = -EBADF;
	int fds[2], r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	in = fds[0];
	out = fds[1];
	r = proc_fork(&j->proc);
	if (r > 0)
		work(j, out);
	if (r == 0)
		r = loop_add_fd(j->jobs->loop, &j->pipe, in, EPOLLIN);
	if (r < 0)
		return r;
	j->pipe.fd = TAKE_FD(in);
	j->jobs->running++;
	return 0;
}

static void next(struct jobs *jobs)
{
	while (jobs->first && jobs->running < jobs->parallel) {
		struct job *j = jobs->first;
		struct err e = ERR_INIT;
		int r = start(j);

		jobs->first = j->next;
		if (!jobs->first)
			jobs->last = &jobs->first;
		jobs->n_waiting--;
		if (r == 0)
			continue;
		(void)err_set(&e, r, "cannot start a process: %s", strerror(-r));
		j->ops->done(j->arg, NULL, &e);
		job_free(j);
	}
}

int job_start(struct jobs *jobs, const struct job_ops *ops, void *arg, struct job **ret,
	      struct err *e)
{
	struct job *j;
	int r;

	if (jobs->n_waiting == JOBS_WAITING_MAX)
		return err_set(e, -EAGAIN, "too much is asked for at once: try again");
	j = calloc(1, sizeof(*j));
	if (!j)
		return err_oom(e);
	*j = (struct job){ .jobs = jobs, .ops = ops, .arg = arg, .proc = PROC_INIT };
	(void)snprintf(j->request, sizeof(j->request), "%s", trace_request());
	j->result = (struct buf)BUF_INIT(JOB_RESULT_MAX);
	j->pipe = (struct loop_fd){ .cb = on_pipe, .arg = j, .fd = -EBADF };
	/* What could fail fails here and not in a callback, if it is its turn. */
	if (jobs->running < jobs->parallel && !jobs->first) {
		r = start(j);
		if (r < 0) {
			job_free(j);
			return err_set(e, r, "cannot start a process: %s", strerror(-r));
		}
	} else {
		*jobs->last = j;
		jobs->last = &j->next;
		jobs->n_waiting++;
	}
	*ret = j;
	return 0;
}

void job_abandon(struct job *j, void (*forget)(struct jobs *jobs, const json_t *result))
{
	struct jobs *jobs = j->jobs;

	j->abandoned = true;
	j->forget = forget;
	for (struct job **p = &jobs->first; *p; p = &(*p)->next) {
		if (*p != j)
			continue;
		*p = j->next;
		if (!*p)
			jobs->last = p;
		jobs->n_waiting--;
		job_free(j);
		return;
	}
}

void job_kill(struct job *j)
{
	if (j->proc.pidfd >= 0)
		(void)proc_signal(&j->proc, SIGTERM);
	job_abandon(j, NULL);
}

int jobs_new(struct loop *loop, size_t parallel, struct jobs **ret, struct err *e)
{
	struct jobs *j = calloc(1, sizeof(*j));

	if (!j)
		return err_oom(e);
	*j = (struct jobs){ .loop = loop, .parallel = parallel };
	j->last = &j->first;
	*ret = j;
	return 0;
}

struct jobs *jobs_free(struct jobs *j)
{
	while (j && j->first) {
		struct job *one = j->first;

		j->first = one->next;
		job_free(one);
	}
	free(j);
	return NULL;
}

size_t jobs_running(const struct jobs *j)
{
	return j->running + j->n_waiting;
}

/* ---- what clients are not told ---- */

int job_conceal(bool all, struct err *e, const char *fmt, ...)
{
	char text[ERR_MSG_MAX];
	va_list ap;

	assert(e->num < 0);
	if (all)
		return e->num;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_error("%s: %s", text, e->msg);
	return err_set(e, e->num, "%s; the operator sees why in hutchd's log", text);
}

int job_conceal_policy(bool all, const char *agent, struct err *e)
{
	if (all)
		return e->num;
	(void)job_conceal(all, e, "the policy of agent '%s' does not compile on this host", agent);
	return e->num = -ENOEXEC;
}
