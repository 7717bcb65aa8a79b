/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands. A command is forked; then it has executed its program (the report pipe closes empty:
 * ACCEPT) or has failed to (CLOSE with the reason); then it has ended. The channel is closed once
 * the process is reaped and its output has ended, in either order.
 *
 * The child is a fork, not a vfork: between becoming the user and execve(2) the user's other
 * processes can stop it, and PID 1 must not wait for it.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "guest/child.h"
#include "guest/flow.h"
#include "guest/standby.h"

enum {
	GRACE_SEC = 1, /* how long to wait for a killed command's output */
};

struct command {
	struct job job;
	pid_t group;
	struct loop_fd report;
	struct loop_timer grace;
	struct inflow in;
	struct outflow out, err;
	int terminal; /* used to set the size, not for reading */
	bool started, ended;
	int status;
	struct rusage usage;
};

static struct command *command_of(struct job *j)
{
	return (struct command *)j;
}

static uint64_t micros(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_usec;
}

static void put_exit(const struct command *c, struct buf *b)
{
	if (WIFSIGNALED(c->status)) {
		fields_put_number(b, TAG_SIGNAL, (uint64_t)WTERMSIG(c->status));
	} else {
		fields_put_number(b, TAG_CODE, (uint64_t)WEXITSTATUS(c->status));
	}
	fields_put_number(b, TAG_USER_US, micros(&c->usage.ru_utime));
	fields_put_number(b, TAG_SYSTEM_US, micros(&c->usage.ru_stime));
	fields_put_number(b, TAG_MAX_RSS, (uint64_t)c->usage.ru_maxrss);
}

/* Sends the result once the process and its output have ended. May free the command. */
static void finish(struct job *j)
{
	_cleanup_buf_ struct buf b = BUF_INIT(128);
	struct command *c = command_of(j);
	struct guest *g = j->guest;

	if (j->ch == 0 || !c->started || outflow_running(&c->out) || outflow_running(&c->err))
		return;
	/* Output mostly ends with the process. Reaping it now sends all frames together. */
	if (!c->ended) {
		job_reap(j);
		return;
	}
	met_tell(g);
	put_exit(c, &b);
	guest_check(g, b.err ? b.err : link_eof(g->link, j->ch, 2));
	guest_check(g, link_msg(g->link, j->ch, WIRE_MSG_EXIT, &b));
	job_close(j, WIRE_DONE, NULL);
}

static void stop_reporting(struct command *c)
{
	loop_del_fd(&c->report);
	c->report.fd = fd_close(c->report.fd);
}

/*
 * Reads the child's report: empty (the program runs now) or the reason of a failure. Returns false
 * if the command may have been freed.
 */
static bool take_report(struct command *c)
{
	struct guest *g = c->job.guest;
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	struct failure fail;
	size_t waiting;
	ssize_t k = read(c->report.fd, &fail, sizeof(fail));

	if (k < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	stop_reporting(c);
	if (k == (ssize_t)sizeof(fail)) {
		fail.text[sizeof(fail.text) - 1] = '\0';
		job_close(&c->job, fail.code < WIRE_CODE_MAX ? fail.code : WIRE_IO, fail.text);
		return false;
	}
	c->started = true;
	fields_put_number(&b, TAG_PID, (uint64_t)c->group);
	(void)link_pending(g->link, &waiting);
	guest_check(g, b.err ? b.err : link_accept(g->link, c->job.ch, &b));
	if (waiting == 0)
		guest_hold(g, false);
	met_watch(g);
	standby_want(g);
	outflow_wake(&c->out);
	outflow_wake(&c->err);
	return true;
}

static void on_report(struct loop_fd *src, uint32_t events)
{
	(void)take_report(src->arg);
}

/* The grace period is over: sends what is in the pipes, even if others still hold them open. */
static void on_grace(struct loop_timer *t)
{
	struct command *c = t->arg;

	/* Limiting one may end the command, if it was the last thing to wait for. */
	if (outflow_running(&c->err) && outflow_running(&c->out))
		outflow_limit(&c->err);
	outflow_limit(outflow_running(&c->out) ? &c->out : &c->err);
}

/* The process has ended, only its output is left. May free the command. */
static void wind_up(struct command *c)
{
	uint64_t end = clock_mono() + GRACE_SEC * NSEC_PER_SEC;

	if (WIFSIGNALED(c->status) && loop_set_timer(c->job.guest->loop, &c->grace, end) < 0)
		on_grace(&c->grace);
	else
		finish(&c->job);
}

static void command_ended(struct job *j, int status, const struct rusage *usage)
{
	struct command *c = command_of(j);

	(void)FAULT("guest-reaped");
	c->ended = true;
	c->status = status;
	c->usage = *usage;
	/* SIGCHLD may arrive before the report was read; the report is complete by now. */
	if (!c->started && !take_report(c))
		return;
	if (!j->orphan)
		wind_up(c);
}

static void command_data(struct job *j, unsigned int stream, const void *data, size_t n)
{
	struct command *c = command_of(j);

	if (stream == 0)
		inflow_data(&c->in, data, n);
	else
		guest_check(j->guest, link_consumed(j->guest->link, j->ch, stream, n));
}

static void command_eof(struct job *j, unsigned int stream)
{
	if (stream == 0)
		inflow_eof(&command_of(j)->in);
}

static void command_msg(struct job *j, enum wire_msg kind, const struct fields *f)
{
	struct command *c = command_of(j);
	struct winsize size = { 0 };

	if (kind == WIRE_MSG_SIGNAL) {
		job_signal_group(j, c->group, (int)fields_number(f, TAG_NUMBER, 0));
	} else if (kind == WIRE_MSG_RESIZE && c->terminal >= 0) {
		size.ws_col = (unsigned short)fields_number(f, TAG_COLUMNS, 0);
		size.ws_row = (unsigned short)fields_number(f, TAG_ROWS, 0);
		(void)ioctl(c->terminal, TIOCSWINSZ, &size);
	}
}

static void command_wake(struct job *j)
{
	struct command *c = command_of(j);

	if (!c->started)
		return;
	outflow_wake(&c->out);
	outflow_wake(&c->err);
}

static void release(struct command *c)
{
	stop_reporting(c);
	loop_del_timer(&c->grace);
	inflow_done(&c->in);
	outflow_done(&c->out);
	outflow_done(&c->err);
	c->terminal = fd_close(c->terminal);
}

static void command_closed(struct job *j)
{
	struct command *c = command_of(j);

	job_signal_group(j, c->group, SIGKILL);
	if (j->pid > 0) /* the child may not lead a group yet */
		(void)kill(j->pid, SIGKILL);
	release(c);
}

/* Stops reading a command. One that has not started is unknown to clients, and not adopted. */
static bool command_orphaned(struct job *j)
{
	struct command *c = command_of(j);

	if (!c->started)
		return false;
	loop_del_timer(&c->grace);
	outflow_pause(&c->out);
	outflow_pause(&c->err);
	inflow_orphan(&c->in);
	return true;
}

static void command_done(struct job *j)
{
	release(command_of(j));
}

static bool command_runs(const struct job *j)
{
	return j->ch != 0 && ((const struct command *)j)->started;
}

static const struct job_ops ops = {
	.data = command_data,
	.eof = command_eof,
	.msg = command_msg,
	.wake = command_wake,
	.closed = command_closed,
	.ended = command_ended,
	.orphaned = command_orphaned,
	.runs = command_runs,
	.done = command_done,
};

/* ---- starting ---- */

static int make_terminal(const struct fields *f, struct ends *x)
{
	struct winsize size = { .ws_col = (unsigned short)fields_number(f, TAG_COLUMNS, 0),
				.ws_row = (unsigned short)fields_number(f, TAG_ROWS, 0) };
	int unlock = 0, number;
	char name[32];

	x->out = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (x->out < 0 || ioctl(x->out, TIOCSPTLCK, &unlock) < 0 ||
	    ioctl(x->out, TIOCSWINSZ, &size) < 0)
		return -errno;
	x->child_in = ioctl(x->out, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (x->child_in < 0 && ioctl(x->out, TIOCGPTN, &number) == 0) { /* gVisor */
		(void)snprintf(name, sizeof(name), "/dev/pts/%d", number);
		x->child_in = open(name, O_RDWR | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
	}
	x->in = fcntl(x->out, F_DUPFD_CLOEXEC, 3);
	return x->child_in < 0 || x->in < 0 ? -errno : 0;
}

static int make_ends(const struct fields *f, struct ends *x)
{
	int r = ends_pipe(0, &x->report, &x->child_report);

	if (r == 0 && fields_has(f, TAG_COLUMNS))
		return make_terminal(f, x);
	if (r == 0 && fields_has(f, TAG_STDIN))
		r = ends_pipe(1, &x->in, &x->child_in);
	if (r == 0)
		r = ends_pipe(0, &x->out, &x->child_out);
	if (r == 0)
		r = ends_pipe(0, &x->err, &x->child_err);
	return r;
}

static pid_t fork_command(const struct guest *g, const struct fields *f, const struct ends *x)
{
	bool terminal = fields_has(f, TAG_COLUMNS);
	pid_t pid = fork();

	if (pid == 0)
		child_exec(&(struct child_spec){
			.fields = f,
			.in = x->child_in >= 0 ? x->child_in : g->null,
			.out = terminal ? x->child_in : x->child_out,
			.err = terminal ? x->child_in : x->child_err,
			.terminal = terminal,
			.report = x->child_report,
		});
	return pid < 0 ? -errno : pid;
}

/* Returns the pid or -errno; our ends are in *x. */
static pid_t start(struct guest *g, const struct fields *f, struct ends *x)
{
	pid_t pid = standby_take(g, f, x);
	int r;

	if (pid > 0)
		return pid;
	r = make_ends(f, x);
	return r < 0 ? r : fork_command(g, f, x);
}

/* Turns the started process into a command; takes our ends. */
static void adopt(struct guest *g, struct command *c, uint32_t ch, pid_t pid, bool terminal,
		  struct ends *x)
{
	job_add(g, &c->job, &ops, pid, ch);
	c->group = pid;
	c->terminal = terminal ? fcntl(x->out, F_DUPFD_CLOEXEC, 3) : -EBADF;
	inflow_init(&c->in, &c->job, 0, TAKE_FD(x->in));
	c->in.terminal = terminal;
	outflow_init(&c->out, &c->job, 1, TAKE_FD(x->out), finish);
	outflow_init(&c->err, &c->job, 2, TAKE_FD(x->err), finish);
	c->report = (struct loop_fd){ .cb = on_report, .arg = c, .fd = -EBADF };
	c->grace = (struct loop_timer){ .cb = on_grace, .arg = c };
}

void exec_open(struct guest *g, uint32_t ch, const struct fields *f)
{
	struct ends x = ENDS_INIT;
	struct command *c = calloc(1, sizeof(*c));
	int r = c ? 0 : -ENOMEM, report;

	if (r == 0)
		r = FAULT("guest-exec");
	if (r == 0)
		r = start(g, f, &x);
	if (r < 0) {
		free(c);
		ends_close(&x);
		guest_refuse(g, ch, code_of_errno(-r), strerror(-r));
		return;
	}
	(void)FAULT("guest-forked");
	report = TAKE_FD(x.report);
	adopt(g, c, ch, r, fields_has(f, TAG_COLUMNS), &x);
	ends_close(&x);
	r = loop_add_fd(g->loop, &c->report, report, EPOLLIN);
	if (r < 0) {
		(void)fd_close(report);
		command_closed(&c->job);
		job_close(&c->job, code_of_errno(-r), strerror(-r));
	}
}

static struct command *find_orphan(const struct guest *g, pid_t pid)
{
	for (struct job *j = g->jobs; j; j = j->next)
		if (j->orphan && j->ops == &ops && command_of(j)->group == pid)
			return command_of(j);
	return NULL;
}

void exec_adopt(struct guest *g, uint32_t ch, const struct fields *f)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	struct command *c = find_orphan(g, (pid_t)fields_number(f, TAG_PID, 0));

	if (!c) {
		guest_refuse(g, ch, WIRE_NOT_FOUND,
			     "no command of that number waits to be adopted");
		return;
	}
	job_adopt(&c->job, ch);
	fields_put_number(&b, TAG_PID, (uint64_t)c->group);
	guest_check(g, b.err ? b.err : link_accept(g->link, ch, &b));
	/* Repeats the ends of streams on the new channel. */
	if (!outflow_running(&c->out))
		guest_check(g, link_eof(g->link, ch, 1));
	if (!outflow_running(&c->err) && c->terminal < 0)
		guest_check(g, link_eof(g->link, ch, 2));
	command_wake(&c->job);
	met_watch(g);
	if (c->ended)
		wind_up(c);
}
