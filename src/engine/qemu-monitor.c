/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU's monitor (QMP), as the keeper uses it: monitor.h. The warden starts QEMU with its guest
 * stopped; the keeper waits for QEMU's greeting and, once the jail is sealed, lets the guest
 * run. Later it saves snapshots.
 *
 * An order is a list of steps. A step sends one or more commands and ends when QEMU has answered
 * all and, for some, when an event confirms the effect. A guest may have broken into its QEMU
 * process, so nothing is trusted: an answer out of turn, a malformed line or an unexpected error
 * ends the VM. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd-pass.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/loop.h"
#include "engine/qemu.h"
#include "engine/qmp.h"

#define TEXT(x)	 TEXT_(x)
#define TEXT_(x) #x

#define COMMAND(name)		 "{\"execute\":\"" name "\"}\n"
#define COMMAND_WITH(name, args) "{\"execute\":\"" name "\",\"arguments\":{" args "}}\n"
#define CAPABILITY(name, state)	 "{\"capability\":\"" name "\",\"state\":" state "}"
/* x-ignore-shared: memory is saved and mapped without QEMU (ram.h). */
#define CAPABILITIES                                                                   \
	COMMAND_WITH("migrate-set-capabilities",                                       \
		     "\"capabilities\":[" CAPABILITY("events", "true") "," CAPABILITY( \
			     "x-ignore-shared", "true") "]")

struct step {
	const char *send;    /* NULL: none */
	unsigned int more;   /* further commands in `send`, after the first */
	bool file;	     /* passes monitor.file along */
	bool patient;	     /* no deadline: a pause may have frozen QEMU */
	enum qmp_line until; /* event to wait for as well; QMP_RETURN: none */
};

struct monitor {
	struct loop *loop;
	struct loop_fd qmp;
	struct loop_timer timer;
	const struct monitor_user *user;
	void *arg;
	uint64_t patience;
	const struct step *step; /* the first unfinished one */
	size_t left;		 /* unfinished steps */
	unsigned int awaited;	 /* answers that the current step still waits for */
	bool seen;		 /* the current step's event */
	bool failed;		 /* the last snapshot */
	bool full;		 /* QEMU reported a full disk since the last STOP */
	bool broken;		 /* failed() was called: no further calls */
	void (*done)(void *arg);
	void (*saved)(void *arg, bool saved);
	int file;
	char in[QMP_LINE_MAX];
	size_t n;
};

enum {
	STEP_S = 60, /* without time to read or write data */
};

/* QEMU_FD_STATE as a literal: the preprocessor cannot print an enum. */
#define STATE_FD 8
static_assert(STATE_FD == QEMU_FD_STATE, "the descriptor in the command below");

static const struct step hello[] = {
	{ .until = QMP_GREETING },
	{ .send = COMMAND("qmp_capabilities") },
};

static const struct step boot[] = {
	{ .send = COMMAND("cont"), .until = QMP_RESUME },
};

/* No RESUME follows if the VM runs already: a snapshot may have continued it. */
static const struct step again[] = {
	{ .send = COMMAND("cont"), .patient = true },
};

/* "cont" has to wait: the state says that the VM was stopped, so QEMU forgets an earlier one. */
static const struct step restore[] = {
	{ .send = CAPABILITIES COMMAND_WITH("migrate-incoming",
					    "\"uri\":\"fd:" TEXT(STATE_FD) "\""),
	  .more = 1,
	  .until = QMP_MIGRATED },
	{ .send = COMMAND("cont"), .until = QMP_RESUME },
};

static const struct step save[] = {
	{ .send = COMMAND("stop"), .until = QMP_STOP },
	{ .send = CAPABILITIES },
	{ .send = COMMAND_WITH("migrate-set-parameters", "\"max-bandwidth\":1099511627776") },
	{ .send = COMMAND_WITH("getfd", "\"fdname\":\"state\""), .file = true },
	{ .send = COMMAND_WITH("migrate", "\"uri\":\"fd:state\""), .until = QMP_MIGRATED },
};

/* ---- steps ---- */

static void fail(struct monitor *m, const char *why)
{
	m->broken = true;
	m->user->failed(m->arg, why);
}

static int send_step(struct monitor *m, const struct step *s)
{
	size_t n = strlen(s->send);

	if (s->file)
		return fd_pass(m->qmp.fd, MSG_DONTWAIT, s->send, n, &m->file, 1);
	return RETRY_EINTR(write(m->qmp.fd, s->send, n)) == (ssize_t)n ? 0 : -EPIPE;
}

static void on_slow(struct loop_timer *t)
{
	fail(t->arg, "no answer in time");
}

static void finish(struct monitor *m)
{
	void (*done)(void *) = m->done;
	void (*saved)(void *, bool) = m->saved;

	loop_del_timer(&m->timer);
	m->file = fd_close(m->file); /* we must not write to a finished snapshot */
	m->done = NULL;
	m->saved = NULL;
	if (saved)
		saved(m->arg, !m->failed);
	else
		done(m->arg);
}

/* Begins the next step, or finishes. */
static void next_step(struct monitor *m)
{
	if (m->left == 0) {
		finish(m);
		return;
	}
	m->awaited = m->step->send ? 1 + m->step->more : 0;
	m->seen = m->step->until == QMP_RETURN;
	if (m->step->send && send_step(m, m->step) < 0)
		fail(m, "cannot send a command");
	else if (m->step->patient)
		loop_del_timer(&m->timer);
	else if (loop_set_timer(m->loop, &m->timer,
				clock_mono() + (STEP_S + m->patience) * NSEC_PER_SEC) < 0)
		fail(m, "cannot set a timer");
}

static void begin(struct monitor *m, const struct step *steps, size_t n, void (*done)(void *arg))
{
	assert(m->left == 0);
	m->step = steps;
	m->left = n;
	m->done = done;
	next_step(m);
}

static void advance(struct monitor *m)
{
	if (m->awaited > 0 || !m->seen)
		return;
	m->step++;
	m->left--;
	next_step(m);
}

/* ---- input ---- */

static bool is_saving(const struct monitor *m)
{
	return m->left > 0 && m->step >= save && m->step < save + ARRAY_SIZE(save);
}

/* The disk may be full: then there is no snapshot, and the VM continues. */
static void drop_snapshot(struct monitor *m)
{
	log_error("the VM's monitor refuses: %.*s", (int)strcspn(m->step->send, "\n"),
		  m->step->send);
	m->failed = true;
	m->left = 0;
	next_step(m);
}

/* QEMU stops the guest when a write to its disk fails because the host's disk is full. A STOP that
 * comes while the order "stop" waits for it counts as the answer to that order. */
static void on_stop(struct monitor *m)
{
	const enum vm_stop why = m->full ? VM_STOP_DISK_FULL : VM_STOP_UNKNOWN;

	m->full = false;
	if (m->left > 0 && m->step->until == QMP_STOP)
		m->seen = true;
	else
		m->user->stopped(m->arg, why);
}

static void on_line(struct monitor *m, enum qmp_line line)
{
	if (line == QMP_OTHER)
		return;
	if (line == QMP_SHUTDOWN) /* the channel ends next */
		return;
	if (line == QMP_NO_SPACE)
		m->full = true;
	else if (line == QMP_STOP)
		on_stop(m);
	else if (line == QMP_RETURN && m->left > 0 && m->awaited > 0)
		m->awaited--;
	else if ((line == QMP_ERROR || line == QMP_MIGRATION_FAILED) && is_saving(m))
		drop_snapshot(m);
	else if (line == QMP_ERROR || line == QMP_MIGRATION_FAILED)
		fail(m, m->left > 0 && m->step->send ? m->step->send : "unexpected error");
	else if (line == QMP_WRONG || line == QMP_RETURN)
		fail(m, "unexpected message");
	else if (m->left > 0 && line == m->step->until)
		m->seen = true;
	else if (line == QMP_GREETING)
		fail(m, "a second greeting");
	if (!m->broken && m->left > 0)
		advance(m);
}

static void take_lines(struct monitor *m)
{
	char *end;

	while (!m->broken && (end = memchr(m->in, '\n', m->n))) {
		size_t n = (size_t)(end - m->in), used = n + 1;

		if (n > 0 && m->in[n - 1] == '\r')
			n--;
		on_line(m, n == 0 ? QMP_OTHER : qmp_read_line(m->in, n));
		memmove(m->in, m->in + used, m->n - used);
		m->n -= used;
	}
	if (!m->broken && m->n == sizeof(m->in))
		fail(m, "a line is too long");
}

static void on_qmp(struct loop_fd *src, uint32_t events)
{
	struct monitor *m = src->arg;
	ssize_t n = read(src->fd, m->in + m->n, sizeof(m->in) - m->n);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		loop_del_fd(src);
		loop_del_timer(&m->timer);
		m->user->gone(m->arg, m->left > 0);
		return;
	}
	m->n += (size_t)n;
	take_lines(m);
}

/* ---- monitor.h ---- */

static void monitor_free(struct monitor *m)
{
	if (!m)
		return;
	loop_del_timer(&m->timer);
	loop_del_fd(&m->qmp);
	(void)fd_close(m->qmp.fd);
	(void)fd_close(m->file);
	free(m);
}

static struct monitor *monitor_start(struct loop *loop, int fd, uint64_t patience,
				     const struct monitor_user *user, void *arg)
{
	struct monitor *m = calloc(1, sizeof(*m));

	if (!m) {
		(void)fd_close(fd);
		return NULL;
	}
	m->loop = loop;
	m->user = user;
	m->arg = arg;
	m->patience = patience;
	m->timer = (struct loop_timer){ .cb = on_slow, .arg = m };
	m->qmp = (struct loop_fd){ .cb = on_qmp, .arg = m, .fd = fd };
	m->file = -EBADF;
	if (loop_add_fd(loop, &m->qmp, fd, EPOLLIN) < 0) {
		monitor_free(m);
		return NULL;
	}
	begin(m, hello, ARRAY_SIZE(hello), user->up);
	return m;
}

static bool monitor_idle(const struct monitor *m)
{
	return m->qmp.loop && m->left == 0;
}

static bool monitor_run(struct monitor *m, enum vm_start how, void (*done)(void *arg))
{
	if (!monitor_idle(m))
		return false;
	m->full = false;
	switch (how) {
	case VM_BOOT:
		begin(m, boot, ARRAY_SIZE(boot), done);
		return true;
	case VM_RESTORE:
		begin(m, restore, ARRAY_SIZE(restore), done);
		return true;
	default:
		return false;
	}
}

static bool monitor_again(struct monitor *m, void (*done)(void *arg))
{
	if (!monitor_idle(m))
		return false;
	begin(m, again, ARRAY_SIZE(again), done);
	return true;
}

static bool monitor_save(struct monitor *m, int file, void (*done)(void *arg, bool saved))
{
	if (!monitor_idle(m)) {
		(void)fd_close(file);
		return false;
	}
	(void)fd_close(m->file);
	m->file = file;
	m->failed = false;
	m->full = false;
	m->saved = done;
	begin(m, save, ARRAY_SIZE(save), NULL);
	return true;
}

const struct monitor_ops qemu_monitor = {
	.start = monitor_start,
	.run = monitor_run,
	.again = monitor_again,
	.save = monitor_save,
	.idle = monitor_idle,
	.free = monitor_free,
};
