/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper's other line to a virtual machine: QEMU's monitor. The warden has started QEMU with
 * nothing running in it; the keeper hears its greeting, says so, and lets the guest run when it is
 * told that the jail is closed. Later it takes snapshots.
 *
 * What is to be done is a list of steps. A step is a command; it is over when QEMU has answered
 * and, of some, when an event has come that says that it is really so. A guest may have broken into
 * its QEMU: what comes here is as little believed as what comes over the channel. An answer out of
 * turn, a line that is none, an error where none may be: the machine ends.
 */
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "fd-pass.h"
#include "log.h"
#include "qemu.h"
#include "serve.h"

#define TEXT(x)	 TEXT_(x)
#define TEXT_(x) #x

#define COMMAND(name)		 "{\"execute\":\"" name "\"}\n"
#define COMMAND_WITH(name, args) "{\"execute\":\"" name "\",\"arguments\":{" args "}}\n"
#define CAPABILITY(name, state)	 "{\"capability\":\"" name "\",\"state\":" state "}"
#define CAPABILITIES(ignore_shared)                                                    \
	COMMAND_WITH("migrate-set-capabilities",                                       \
		     "\"capabilities\":[" CAPABILITY("events", "true") "," CAPABILITY( \
			     "x-ignore-shared", ignore_shared) "]")

enum {
	STEP_S = 60, /* and for what is read or written */
};

/* The number is that of QEMU_FD_STATE: a text cannot be made of an enum. */
#define STATE_FD 8
static_assert(STATE_FD == QEMU_FD_STATE, "the descriptor in the command below");

static const struct machine_step hello[] = {
	{ .until = QMP_GREETING },
	{ .send = COMMAND("qmp_capabilities") },
};

static const struct machine_step boot[] = {
	{ .send = COMMAND("cont"), .until = QMP_RESUME },
};

#define CONTINUE(ignore_shared)                                                      \
	{                                                                            \
		{ .send = CAPABILITIES(ignore_shared) },                             \
			{ .send = COMMAND_WITH("migrate-incoming",                   \
					       "\"uri\":\"fd:" TEXT(STATE_FD) "\""), \
			  .until = QMP_MIGRATED },                                   \
			{ .send = COMMAND("cont"), .until = QMP_RESUME },            \
	}

static const struct machine_step clone[] = CONTINUE("true");
static const struct machine_step restore[] = CONTINUE("false");

static const struct machine_step save[] = {
	{ .send = COMMAND("stop"), .until = QMP_STOP },
	{ .send = CAPABILITIES("false") },
	{ .send = COMMAND_WITH("migrate-set-parameters", "\"max-bandwidth\":1099511627776") },
	{ .send = COMMAND_WITH("getfd", "\"fdname\":\"state\""), .file = true },
	{ .send = COMMAND_WITH("migrate", "\"uri\":\"fd:state\""), .until = QMP_MIGRATED },
};

/* ---- steps ---- */

static void fail(struct keeper *k, const char *why)
{
	log_error("the machine's monitor: %s", why);
	keeper_stop(k, KEEPER_FAILED);
}

static int send_step(struct machine *m, const struct machine_step *s)
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

/* Begins the first of the steps that are left, or is done. */
static void next_step(struct keeper *k)
{
	struct machine *m = &k->machine;

	if (m->left == 0) {
		void (*done)(struct keeper * k) = m->done;

		loop_del_timer(&m->timer);
		m->file = fd_close(m->file); /* what is saved is not ours to write any more */
		m->done = NULL;
		done(k);
		return;
	}
	m->answered = !m->step->send;
	m->seen = m->step->until == QMP_RETURN;
	if (m->step->send && send_step(m, m->step) < 0)
		fail(k, "it cannot be written to");
	else
		keeper_check(k, loop_set_timer(k->loop, &m->timer,
					       clock_mono() + (STEP_S + spec_transfer_s(k->spec)) *
								      NSEC_PER_SEC));
}

static void begin(struct keeper *k, const struct machine_step *steps, size_t n,
		  void (*done)(struct keeper *k))
{
	struct machine *m = &k->machine;

	assert(m->left == 0);
	m->step = steps;
	m->left = n;
	m->done = done;
	next_step(k);
}

static void advance(struct keeper *k)
{
	struct machine *m = &k->machine;

	if (!m->answered || !m->seen)
		return;
	m->step++;
	m->left--;
	next_step(k);
}

/* ---- what comes ---- */

/* A disk may be full: then there is no snapshot, and the machine goes on. */
static bool is_saving(const struct machine *m)
{
	return m->left > 0 && m->step >= save && m->step < save + ARRAY_SIZE(save);
}

static void give_up(struct keeper *k)
{
	log_error("the machine's monitor refuses: %.*s", (int)strcspn(k->machine.step->send, "\n"),
		  k->machine.step->send);
	k->machine.failed = true;
	k->machine.left = 0;
	next_step(k);
}

static void on_line(struct keeper *k, enum qmp_line line)
{
	struct machine *m = &k->machine;

	if (line == QMP_OTHER)
		return;
	if (line == QMP_SHUTDOWN) /* its end follows, and the channel tells of it */
		return;
	if (line == QMP_RETURN && m->left > 0 && !m->answered)
		m->answered = true;
	else if ((line == QMP_ERROR || line == QMP_MIGRATION_FAILED) && is_saving(m))
		give_up(k);
	else if (line == QMP_ERROR || line == QMP_MIGRATION_FAILED)
		fail(k, m->left > 0 && m->step->send ? m->step->send
						     : "an error that nobody asked for");
	else if (line == QMP_WRONG || line == QMP_RETURN)
		fail(k, "it says what QEMU does not say");
	else if (m->left > 0 && line == m->step->until)
		m->seen = true;
	else if (line == QMP_GREETING)
		fail(k, "a second greeting");
	if (!k->ended && m->left > 0)
		advance(k);
}

/* Whole lines of what has come. */
static void take_lines(struct keeper *k)
{
	struct machine *m = &k->machine;
	char *end;

	while (!k->ended && (end = memchr(m->in, '\n', m->n))) {
		size_t n = (size_t)(end - m->in), used = n + 1;

		if (n > 0 && m->in[n - 1] == '\r')
			n--;
		on_line(k, n == 0 ? QMP_OTHER : qmp_read_line(m->in, n));
		memmove(m->in, m->in + used, m->n - used);
		m->n -= used;
	}
	if (m->n == sizeof(m->in))
		fail(k, "a line without an end");
}

static void on_qmp(struct loop_fd *src, uint32_t events)
{
	struct keeper *k = src->arg;
	struct machine *m = &k->machine;
	ssize_t n = read(src->fd, m->in + m->n, sizeof(m->in) - m->n);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		/* QEMU has ended, and the channel with it: what the guest said last is read there.
		 */
		loop_del_fd(src);
		loop_del_timer(&m->timer);
		if (k->phase == PHASE_HELLO || m->left > 0)
			keeper_stop(k, KEEPER_GUEST_GONE);
		return;
	}
	m->n += (size_t)n;
	take_lines(k);
}

/* ---- its life ---- */

static void on_up(struct keeper *k)
{
	if (note_send(k->warden.fd, NOTE_MACHINE_UP, 0, NULL, 0) < 0)
		keeper_stop(k, KEEPER_FAILED);
}

int machine_start(struct keeper *k, int qmp)
{
	struct machine *m = &k->machine;
	int r;

	m->timer = (struct loop_timer){ .cb = on_slow, .arg = k };
	m->qmp = (struct loop_fd){ .cb = on_qmp, .arg = k };
	m->file = -EBADF;
	r = loop_add_fd(k->loop, &m->qmp, qmp, EPOLLIN);
	if (r == 0)
		begin(k, hello, ARRAY_SIZE(hello), on_up);
	return r;
}

bool machine_run(struct keeper *k, uint64_t how, void (*done)(struct keeper *k))
{
	if (!machine_is_idle(k))
		return false;
	switch (how) {
	case QEMU_BOOT:
		begin(k, boot, ARRAY_SIZE(boot), done);
		return true;
	case QEMU_CLONE:
		begin(k, clone, ARRAY_SIZE(clone), done);
		return true;
	case QEMU_RESTORE:
		begin(k, restore, ARRAY_SIZE(restore), done);
		return true;
	default:
		return false;
	}
}

bool machine_save(struct keeper *k, int file, void (*done)(struct keeper *k))
{
	struct machine *m = &k->machine;

	if (!machine_is_idle(k))
		return false;
	(void)fd_close(m->file);
	m->file = file;
	m->failed = false;
	begin(k, save, ARRAY_SIZE(save), done);
	return true;
}

bool machine_is_idle(const struct keeper *k)
{
	return k->machine.qmp.loop && k->machine.left == 0;
}

void machine_done(struct keeper *k)
{
	struct machine *m = &k->machine;

	if (!m->qmp.cb)
		return;
	loop_del_timer(&m->timer);
	loop_del_fd(&m->qmp);
	m->qmp.fd = fd_close(m->qmp.fd);
	m->file = fd_close(m->file);
}
