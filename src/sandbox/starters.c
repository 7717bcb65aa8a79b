/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child writes its error to a pipe before it exits. The end of the pipe without an error and exit
 * status 0 mean success; a killed child has no status 0.
 */
#include "sandbox/starters.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

struct starter {
	pid_t pid;
	int report;
};

struct starters {
	struct starter list[STARTERS_MAX];
	unsigned int n;
};

unsigned int starters_fit(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus < 1 ? 1 : (unsigned int)MIN(cpus, (long)STARTERS_MAX);
}

static _noreturn_ void start_one(const struct starters_work *w, int report)
{
	struct err e = ERR_INIT;
	int r = w->start(w->arg, &e);

	if (r < 0)
		(void)fd_write_all(report, &e, sizeof(e));
	_exit(r < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}

static int add(struct starters *s, const struct starters_work *w, struct err *e)
{
	int fds[2];
	pid_t pid;

	assert(s->n < STARTERS_MAX);
	if (fd_pipe(0, &fds[0], &fds[1]) < 0)
		return err_errno(e, "cannot make a pipe");
	if (w->say)
		w->say(s->n, w->arg);
	pid = fork();
	if (pid == 0)
		start_one(w, fds[1]);
	(void)close(fds[1]);
	if (pid < 0) {
		(void)err_errno(e, "cannot make a process");
		(void)close(fds[0]);
		return e->num;
	}
	s->list[s->n++] = (struct starter){ .pid = pid, .report = fds[0] };
	return 0;
}

/* The result of a child that has ended or is about to. */
static int finish(struct starter *one, struct err *e)
{
	_cleanup_close_ int report = one->report;
	struct err said = ERR_INIT;
	ssize_t n = RETRY_EINTR(read(report, &said, sizeof(said)));
	int status = 0;

	if (RETRY_EINTR(waitpid(one->pid, &status, 0)) < 0)
		return err_errno(e, "cannot wait for a start");
	if (n == (ssize_t)sizeof(said) && said.num < 0) {
		*e = said;
		return e->num;
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS)
		return err_set(e, -EIO, "a process that started a sandbox was killed");
	return 0;
}

/* Waits until one has ended. */
static int wait_one(struct starters *s, struct err *e)
{
	struct pollfd fds[STARTERS_MAX];
	unsigned int i = 0;
	struct starter one;

	for (unsigned int k = 0; k < s->n; k++)
		fds[k] = (struct pollfd){ .fd = s->list[k].report, .events = POLLIN };
	/* If poll() fails, wait for the first. */
	if (RETRY_EINTR(poll(fds, s->n, -1)) > 0)
		while (i + 1 < s->n && !fds[i].revents)
			i++;
	one = s->list[i];
	s->list[i] = s->list[--s->n];
	return finish(&one, e);
}

int starters_run(const struct starters_work *w, unsigned int max, struct err *e)
{
	struct starters s = { .n = 0 };
	struct err later = ERR_INIT;
	int r = 0;

	assert(max > 0 && max <= STARTERS_MAX);
	for (;;) {
		while (r == 0 && s.n < max && w->missing(w->arg) > s.n)
			r = add(&s, w, e);
		if (s.n == 0)
			return r;
		if (wait_one(&s, r == 0 ? e : &later) < 0 && r == 0)
			r = e->num;
	}
}
