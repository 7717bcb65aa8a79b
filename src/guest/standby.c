/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/standby.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/child.h"
#include "guest/guest-confine.h"
#include "guest/vm.h"

static struct {
	bool wanted;
	uint64_t last; /* when the last command was started */
	pid_t pid;     /* 0: no standby */
	int order;     /* the pipe for its OPEN */
	struct ends ends;
	struct loop_fd report; /* becomes readable when the waiting standby ends */
	struct loop_timer idle;
} standby = { .order = -EBADF, .ends = ENDS_INIT, .report.fd = -EBADF };

void ends_close(struct ends *x)
{
	int *all = (int *)x;

	for (size_t i = 0; i < sizeof(*x) / sizeof(int); i++)
		all[i] = fd_close(all[i]);
}

int ends_pipe(int ours, int *ret_ours, int *ret_theirs)
{
	int p[2];

	if (fd_pipe(0, &p[0], &p[1]) < 0)
		return -errno;
	*ret_ours = p[ours];
	*ret_theirs = p[1 - ours];
	return fcntl(p[ours], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/* ---- the child ---- */

/*
 * Closes inherited descriptors: an open copy of another command's pipe would hide its EOF. The
 * standby also ends when PID 1 closes `order`, so it must not hold that end itself.
 */
static int close_others(const struct guest *g, int order)
{
	const struct ends *x = &standby.ends;
	int kept[] = { STDERR_FILENO,  g->null,	      order,	    x->child_report,
		       x->child_in,    x->child_out,  x->child_err, vm_users_fd(0),
		       vm_users_fd(1), confine_fd(0), confine_fd(1) };

	return fd_close_others(STDERR_FILENO, kept, ARRAY_SIZE(kept));
}

_noreturn_ static void wait_for_order(const struct guest *g, int order)
{
	static char open[STANDBY_OPEN_MAX];
	const struct ends *x = &standby.ends;
	struct err e = ERR_INIT;
	struct fields f;
	struct user u;
	ssize_t n;

	(void)prctl(PR_SET_NAME, STANDBY_NAME);
	if (close_others(g, order) < 0)
		_exit(0);
	child_session();
	(void)user_find(NULL, &u, &e); /* reads the files early; rechecked later */
	n = RETRY_EINTR(read(order, open, sizeof(open)));
	if (n <= 0 || fields_parse(MESSAGE_EXEC, open, (size_t)n, &f, &e) < 0)
		_exit(0);
	child_exec(&(struct child_spec){
		.fields = &f,
		.in = fields_has(&f, TAG_STDIN) ? x->child_in : g->null,
		.out = x->child_out,
		.err = x->child_err,
		.report = x->child_report,
		.session = true,
	});
}

/* ---- PID 1 ---- */

void standby_want(struct guest *g)
{
	const uint64_t now = clock_mono();

	(void)g;
	standby.wanted = standby.last != 0 && now - standby.last < STANDBY_MS * NSEC_PER_MSEC;
	standby.last = now;
}

static void stop_watching(void)
{
	loop_del_fd(&standby.report);
	loop_del_timer(&standby.idle);
	standby.report.fd = -EBADF;
}

void standby_drop(struct guest *g)
{
	(void)g;
	stop_watching();
	standby.order = fd_close(standby.order);
	ends_close(&standby.ends);
	/* Not reaped yet, else standby_ended() would have been called. It may be stopped. */
	if (standby.pid > 0)
		(void)kill(standby.pid, SIGKILL);
	standby.pid = 0;
	standby.wanted = false;
}

void standby_ended(struct guest *g, pid_t pid)
{
	if (pid <= 0 || pid != standby.pid)
		return;
	standby.pid = 0;
	standby_drop(g);
}

static void on_report(struct loop_fd *src, uint32_t events)
{
	(void)events;
	standby_drop(src->arg);
}

static void on_idle(struct loop_timer *t)
{
	standby_drop(t->arg);
}

static int make_ends(int *ret_order)
{
	struct ends *x = &standby.ends;
	int r = ends_pipe(1, &standby.order, ret_order);

	if (r == 0)
		r = ends_pipe(0, &x->report, &x->child_report);
	if (r == 0)
		r = ends_pipe(1, &x->in, &x->child_in);
	if (r == 0)
		r = ends_pipe(0, &x->out, &x->child_out);
	if (r == 0)
		r = ends_pipe(0, &x->err, &x->child_err);
	return r;
}

static int start(struct guest *g)
{
	_cleanup_close_ int order = -EBADF;
	int r = make_ends(&order);

	if (r < 0)
		return r;
	standby.pid = fork();
	if (standby.pid == 0)
		wait_for_order(g, order);
	return standby.pid < 0 ? -errno : 0;
}

void standby_make(struct guest *g)
{
	struct ends *x = &standby.ends;
	int r;

	if (!standby.wanted || standby.pid != 0 || g->asleep || g->ended)
		return;
	standby.wanted = false;
	r = start(g);
	x->child_report = fd_close(x->child_report);
	x->child_in = fd_close(x->child_in);
	x->child_out = fd_close(x->child_out);
	x->child_err = fd_close(x->child_err);
	standby.report = (struct loop_fd){ .cb = on_report, .arg = g, .fd = x->report };
	standby.idle = (struct loop_timer){ .cb = on_idle, .arg = g };
	if (r == 0)
		r = loop_add_fd(g->loop, &standby.report, x->report, EPOLLIN);
	if (r == 0)
		r = loop_set_timer(g->loop, &standby.idle,
				   clock_mono() + STANDBY_MS * NSEC_PER_MSEC);
	if (r < 0)
		standby_drop(g);
}

pid_t standby_take(struct guest *g, const struct fields *f, struct ends *ret)
{
	pid_t pid = standby.pid;

	if (pid <= 0 || f->len > STANDBY_OPEN_MAX || fields_has(f, TAG_COLUMNS))
		return 0;
	/* The pipe takes the whole OPEN, or nothing if the standby has just ended. */
	if (write(standby.order, f->data, f->len) != (ssize_t)f->len) {
		standby_drop(g);
		return 0;
	}
	/* A root user of the sandbox may have stopped it, which is not possible with PID 1. */
	(void)kill(pid, SIGCONT);
	stop_watching();
	standby.order = fd_close(standby.order);
	standby.pid = 0;
	*ret = standby.ends;
	standby.ends = (struct ends)ENDS_INIT;
	if (!fields_has(f, TAG_STDIN))
		ret->in = fd_close(ret->in);
	return pid;
}
