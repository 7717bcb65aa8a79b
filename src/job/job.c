/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child writes one line of JSON, {"result": ...} or {"errno": n, "message": ...}, and exits. The
 * job ends when the pipe closes. The child is reaped when its pidfd becomes readable, because the
 * loop must not block. SIGCHLD keeps its default: wardens that a child starts are reparented soon.
 *
 * An owner exists while it has a job. The list of owners is sorted by the time of their last slot,
 * the oldest first. Invariant between calls: no owner waits that could have a slot, because
 * everything that frees a slot calls next().
 */
#include "job/job.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/str.h"
#include "base/trace.h"

struct owner {
	char name[JOB_OWNER_MAX + 1];
	size_t running, n_waiting;
	struct job *first, **last; /* queue of waiting jobs */
	struct owner *next;
};

struct job {
	struct jobs *jobs;
	struct owner *owner;
	const struct job_ops *ops;
	void *arg;
	bool abandoned;
	char request[TRACE_ID_MAX + 1]; /* trace id of the request, or "" */
	void (*forget)(void *world, const json_t *result);
	void *world;
	struct job *next; /* in owner.first or jobs.ending */
	/* running jobs only */
	struct proc proc;
	struct loop_fd pipe, end;
	struct buf result;
};

struct jobs {
	struct loop *loop;
	size_t parallel, running, n_waiting;
	size_t each, waiting;
	struct job *ending;   /* result delivered, child not reaped yet */
	struct owner *owners; /* served longest ago first */
};

static void job_free(struct job *j)
{
	loop_del_fd(&j->pipe);
	loop_del_fd(&j->end);
	(void)fd_close(j->pipe.fd);
	(void)fd_close(j->proc.pidfd);
	buf_done(&j->result);
	free(j);
}

/* ---- owners ---- */

static struct owner *find_owner(const struct jobs *jobs, const char *name)
{
	struct owner *o = jobs->owners;

	while (o && !str_eq(o->name, name))
		o = o->next;
	return o;
}

static void append_owner(struct jobs *jobs, struct owner *o)
{
	struct owner **p = &jobs->owners;

	while (*p)
		p = &(*p)->next;
	o->next = NULL;
	*p = o;
}

static void unlink_owner(struct jobs *jobs, const struct owner *o)
{
	struct owner **p = &jobs->owners;

	while (*p != o)
		p = &(*p)->next;
	*p = o->next;
}

static struct owner *get_owner(struct jobs *jobs, const char *name)
{
	struct owner *o = find_owner(jobs, name);

	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	(void)snprintf(o->name, sizeof(o->name), "%s", name);
	o->last = &o->first;
	append_owner(jobs, o);
	return o;
}

/* Frees an owner without jobs. */
static void put_owner(struct jobs *jobs, struct owner *o)
{
	if (o->running > 0 || o->n_waiting > 0)
		return;
	unlink_owner(jobs, o);
	free(o);
}

/* The last free slot is reserved for an owner without a running job. */
static bool may_run(const struct jobs *jobs, const struct owner *o)
{
	const size_t left = jobs->parallel - jobs->running;

	if (o->running >= jobs->each)
		return false;
	return left > 1 || (left == 1 && o->running == 0);
}

/* Returns the owner whose turn it is, or NULL. */
static struct owner *pick(const struct jobs *jobs)
{
	struct owner *best = NULL;

	for (struct owner *o = jobs->owners; o; o = o->next)
		if (o->first && may_run(jobs, o) && (!best || o->running < best->running))
			best = o;
	return best;
}

static void wait_behind(struct job *j)
{
	*j->owner->last = j;
	j->owner->last = &j->next;
	j->owner->n_waiting++;
	j->jobs->n_waiting++;
}

/* Removes a waiting job from its queue; false if it does not wait. */
static bool leave_queue(struct job *j)
{
	struct owner *o = j->owner; /* NULL: the job has ended */

	for (struct job **p = o ? &o->first : NULL; p && *p; p = &(*p)->next) {
		if (*p != j)
			continue;
		*p = j->next;
		if (!*p)
			o->last = p;
		o->n_waiting--;
		j->jobs->n_waiting--;
		return true;
	}
	return false;
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
	/* Close all other file descriptors: the child must not hold client connections open. */
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
		return err_set(e, -EIO, "the helper process died without a result");
	if (json_get_u64(all, "errno", 4095, &number, &own) == 0 && number > 0) {
		(void)json_get_string(all, "message", ERR_MSG_MAX, &message, &own);
		return err_set(e, -(int)number, "%s", message ? message : "?");
	}
	*ret = json_incref(json_object_get(all, "result"));
	return *ret ? 0 : err_set(e, -EIO, "the helper process gave no result");
}

static void unlink_ending(const struct job *j)
{
	struct job **p = &j->jobs->ending;

	while (*p != j)
		p = &(*p)->next;
	*p = j->next;
}

static void on_end(struct loop_fd *src, uint32_t events)
{
	struct job *j = src->arg;
	siginfo_t info;

	unlink_ending(j);
	(void)proc_wait(&j->proc, clock_mono(), &info);
	job_free(j);
}

/* Closes the pipe, so that a child that still writes ends at once, and waits for its end. */
static void reap(struct job *j)
{
	struct jobs *jobs = j->jobs;

	loop_del_fd(&j->pipe);
	j->pipe.fd = fd_close(j->pipe.fd);
	j->end = (struct loop_fd){ .cb = on_end, .arg = j, .fd = -EBADF };
	if (loop_add_fd(jobs->loop, &j->end, j->proc.pidfd, EPOLLIN) < 0) {
		proc_done(&j->proc);
		job_free(j);
		return;
	}
	j->next = jobs->ending;
	jobs->ending = j;
}

static void finish(struct job *j)
{
	_cleanup_json_ json_t *result = NULL;
	struct jobs *jobs = j->jobs;
	struct err e = ERR_INIT;
	int r = read_report(j, &result, &e);

	jobs->running--;
	j->owner->running--;
	put_owner(jobs, j->owner);
	j->owner = NULL;
	/* Waiting jobs come before a job that done() starts. */
	next(jobs);
	if (!j->abandoned)
		j->ops->done(j->arg, r < 0 ? NULL : result, &e);
	else if (j->forget && r == 0)
		j->forget(j->world, result);
	reap(j);
}

static void on_pipe(struct loop_fd *src, uint32_t events)
{
	struct job *j = src->arg;
	char *room = buf_reserve(&j->result, 4096);
	ssize_t n = room ? RETRY_EINTR(read(j->pipe.fd, room, 4096)) : 0;

	if (n > 0)
		buf_commit(&j->result, (size_t)n);
	if (!room)
		(void)proc_signal(&j->proc, SIGKILL);
	if (n <= 0)
		finish(j);
}

/* Adds the pipe to the loop before the fork: if that fails, no child runs in vain. */
static int start(struct job *j)
{
	_cleanup_close_ int in = -EBADF, out = -EBADF;
	int r = fd_pipe(0, &in, &out);

	if (r < 0)
		return r;
	r = loop_add_fd(j->jobs->loop, &j->pipe, in, EPOLLIN);
	if (r < 0)
		return r;
	(void)TAKE_FD(in); /* j->pipe owns it */
	r = proc_fork(&j->proc);
	if (r > 0)
		work(j, out);
	if (r < 0)
		return r;
	j->jobs->running++;
	j->owner->running++;
	unlink_owner(j->jobs, j->owner);
	append_owner(j->jobs, j->owner);
	return 0;
}

static void next(struct jobs *jobs)
{
	struct owner *o;

	while ((o = pick(jobs))) {
		struct job *j = o->first;
		struct err e = ERR_INIT;
		int r;

		(void)leave_queue(j);
		r = start(j);
		if (r == 0)
			continue;
		put_owner(jobs, o);
		j->owner = NULL;
		(void)err_set(&e, r, "cannot start a process: %s", strerror(-r));
		j->ops->done(j->arg, NULL, &e);
		job_free(j);
	}
}

static struct job *job_new(struct jobs *jobs, struct owner *o, const struct job_ops *ops, void *arg)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	*j = (struct job){ .jobs = jobs, .owner = o, .ops = ops, .arg = arg, .proc = PROC_INIT };
	(void)snprintf(j->request, sizeof(j->request), "%s", trace_request());
	j->result = (struct buf)BUF_INIT(JOB_RESULT_MAX);
	j->pipe = (struct loop_fd){ .cb = on_pipe, .arg = j, .fd = -EBADF };
	return j;
}

/* Starts the job at once if it can, so that errors reach the caller and not a callback. */
static int start_or_wait(struct jobs *jobs, struct owner *o, struct job *j, struct err *e)
{
	int r;

	if (o->first || !may_run(jobs, o)) {
		/* However many jobs one owner has, there is room for another owner. */
		if (o->n_waiting >= jobs->waiting - jobs->n_waiting)
			return err_set(e, -EAGAIN, "too many requests at once: try again");
		wait_behind(j);
		return 0;
	}
	r = start(j);
	return r < 0 ? err_set(e, r, "cannot start a process: %s", strerror(-r)) : 0;
}

int job_start(struct jobs *jobs, const char *owner, const struct job_ops *ops, void *arg,
	      struct job **ret, struct err *e)
{
	struct owner *o = get_owner(jobs, owner);
	struct job *j = o ? job_new(jobs, o, ops, arg) : NULL;
	int r = j ? start_or_wait(jobs, o, j, e) : err_oom(e);

	if (r == 0) {
		*ret = j;
		return 0;
	}
	if (j)
		job_free(j);
	if (o)
		put_owner(jobs, o);
	return r;
}

void job_abandon(struct job *j, void (*forget)(void *world, const json_t *result), void *world)
{
	struct jobs *jobs = j->jobs;

	j->abandoned = true;
	j->forget = forget;
	j->world = world;
	if (!leave_queue(j))
		return;
	put_owner(jobs, j->owner);
	job_free(j);
}

void job_kill(struct job *j)
{
	if (j->proc.pidfd >= 0)
		(void)proc_signal(&j->proc, SIGTERM);
	job_abandon(j, NULL, NULL);
}

int jobs_new(struct loop *loop, size_t parallel, struct jobs **ret, struct err *e)
{
	struct jobs *j = calloc(1, sizeof(*j));

	if (!j)
		return err_oom(e);
	*j = (struct jobs){
		.loop = loop, .parallel = parallel, .each = SIZE_MAX, .waiting = JOBS_WAITING_MAX
	};
	*ret = j;
	return 0;
}

void jobs_limit(struct jobs *j, size_t each, size_t waiting)
{
	j->each = each;
	j->waiting = waiting;
}

static void owner_free(struct owner *o)
{
	while (o->first) {
		struct job *one = o->first;

		(void)leave_queue(one);
		job_free(one);
	}
	free(o);
}

struct jobs *jobs_free(struct jobs *j)
{
	while (j && j->owners) {
		struct owner *o = j->owners;

		j->owners = o->next;
		owner_free(o);
	}
	while (j && j->ending) {
		struct job *one = j->ending;

		j->ending = one->next;
		proc_done(&one->proc);
		job_free(one);
	}
	free(j);
	return NULL;
}

size_t jobs_running(const struct jobs *j)
{
	return j->running + j->n_waiting;
}

/* ---- errors hidden from clients ---- */

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
