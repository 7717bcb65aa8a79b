/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boots a VM to create a template. It runs in the same jail as a sandbox, and has its own state
 * directory, ids and control groups, which a sweep reclaims if we are killed. A child does this,
 * because it enters namespaces; QEMU dies with the child, and the child with us.
 *
 * The child talks to QEMU directly, which for a sandbox only the keeper does: this VM runs no user
 * code, and its disk has no files.
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd-pass.h"
#include "base/fd.h"
#include "engine/engine.h"
#include "engine/oci.h"
#include "engine/qemu.h"
#include "engine/qmp.h"
#include "engine/userns.h"
#include "snapshot/ram-save.h"
#include "vm/template-vm.h"

enum {
	BOOT_S = 120, /* emulated, on a busy host */
	QUIT_S = 10,
	USER_FIRST = 1, /* as for a sandbox: src/warden/start.c */
};

struct maker {
	const struct spec *spec;
	const struct engine *engine;
	const struct state_root *run;
	int disk, memory, state; /* owned by the caller */
	char id[SPEC_ID + 1];
	int dir, range;
	uint32_t ids;
	bool rootless;
	struct cgroup group;
	int channel, channel_ours; /* carries no data */
	int qmp, qmp_ours;
	struct engine_sandbox box;
	struct ram_save ram;
	char digest[PAGES_HEX]; /* digest of the memory */
	uint64_t deadline;
	struct buf in;	   /* unread output of QEMU */
	unsigned int seen; /* bits of enum qmp_line */
	bool stopping;	   /* STOP is expected */
};

/* ---- talking to QEMU ---- */

static int more(struct maker *m, struct err *e)
{
	struct pollfd p = { .fd = m->qmp_ours, .events = POLLIN };
	uint64_t now = clock_mono();
	int n = now < m->deadline
			? RETRY_EINTR(poll(&p, 1, (int)((m->deadline - now) / NSEC_PER_MSEC) + 1))
			: 0;
	char *room;
	ssize_t k;

	if (n < 0)
		return err_errno(e, "cannot wait for QEMU");
	if (n == 0)
		return err_set(e, -ETIME, "the VM was not ready within %d s", BOOT_S);
	room = buf_reserve(&m->in, 4096);
	if (!room)
		return err_set(e, -EPROTO, "QEMU sent too long a line");
	k = RETRY_EINTR(read(m->qmp_ours, room, 4096));
	if (k <= 0)
		return err_set(e, -EPIPE, "QEMU has exited");
	buf_commit(&m->in, (size_t)k);
	return 0;
}

/* Waits for a line, reads it and notes its kind. */
static int next_line(struct maker *m, struct err *e)
{
	const char *end;
	enum qmp_line line;
	int r = 0;

	while (!(end = m->in.len ? memchr(m->in.data, '\n', m->in.len) : NULL) && r == 0)
		r = more(m, e);
	if (r < 0)
		return r;
	line = qmp_read_line(m->in.data, (size_t)(end - m->in.data));
	buf_consume(&m->in, (size_t)(end - m->in.data) + 1);
	m->seen |= 1U << line;
	if (line == QMP_WRONG)
		return err_set(e, -EPROTO, "unexpected QMP message");
	if (line == QMP_ERROR)
		return err_set(e, -EPROTO, "QEMU rejected a command");
	if (line == QMP_MIGRATION_FAILED)
		return err_set(e, -EIO, "QEMU cannot save the VM");
	if (line == QMP_NO_SPACE)
		return err_set(e, -ENOSPC,
			       "the host's disk is full, and the VM stopped: free some space in "
			       "hutch's state directory");
	if (line == QMP_SHUTDOWN || (line == QMP_STOP && !m->stopping))
		return err_set(e, -EIO, "the VM has stopped by itself");
	return 0;
}

static int expect(struct maker *m, enum qmp_line line, struct err *e)
{
	int r = 0;

	while (r == 0 && !(m->seen & (1U << line)))
		r = next_line(m, e);
	return r;
}

static int say(struct maker *m, const char *command, int fd, struct err *e)
{
	int r = fd_pass(m->qmp_ours, 0, command, strlen(command), &fd, 1);

	return r < 0 ? err_set(e, r, "cannot send to QEMU: %s", strerror(-r)) : 0;
}

static int tell(struct maker *m, const char *command, int fd, struct err *e)
{
	int r = say(m, command, fd, e);

	m->seen &= ~(1U << QMP_RETURN);
	return r < 0 ? r : expect(m, QMP_RETURN, e);
}

static int boot(struct maker *m, const struct engine_start *s, struct err *e)
{
	int r = expect(m, QMP_GREETING, e);

	if (r == 0)
		r = tell(m, "{\"execute\":\"qmp_capabilities\"}\n", -EBADF, e);
	if (r == 0)
		r = m->engine->seal(s, &m->box, e);
	if (r == 0)
		r = tell(m, "{\"execute\":\"cont\"}\n", -EBADF, e);
	if (r == 0)
		r = expect(m, QMP_PORT_OPEN, e);
	return r < 0 ? r : FAULT_ERR("template-booted", e);
}

/* As of a sandbox: src/warden/saving.c. */
static int start_saver(struct maker *m, int *ret_pipe, struct err *e)
{
	const struct ram_source from = { .pid = m->box.init.pid,
					 .address = m->box.ram,
					 .size = m->box.ram_size,
					 .base = -EBADF,
					 .id = m->ids + OCI_KEEPER_OFFSET };

	return ram_save_start(&from, m->state, m->memory, &m->ram, ret_pipe, e);
}

/* x-ignore-shared: memory is not part of the state. */
static int save(struct maker *m, struct err *e)
{
	static const char capabilities[] =
		"{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":["
		"{\"capability\":\"x-ignore-shared\",\"state\":true},"
		"{\"capability\":\"events\",\"state\":true}]}}\n";
	_cleanup_close_ int pipe = -EBADF;
	int r;

	m->stopping = true;
	r = tell(m, "{\"execute\":\"stop\"}\n", -EBADF, e);
	if (r == 0)
		r = start_saver(m, &pipe, e);
	if (r == 0)
		r = tell(m, capabilities, -EBADF, e);
	if (r == 0)
		r = tell(m, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"state\"}}\n", pipe,
			 e);
	if (r == 0)
		r = tell(m, "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"fd:state\"}}\n",
			 -EBADF, e);
	if (r == 0)
		r = expect(m, QMP_MIGRATED, e);
	if (r == 0)
		r = ram_save_finish(&m->ram, m->deadline, m->digest, e);
	return r < 0 ? r : FAULT_ERR("template-saved", e);
}

static int quit(struct maker *m, struct err *e)
{
	siginfo_t info;
	int r = say(m, "{\"execute\":\"quit\"}\n", -EBADF, e);

	if (r == 0)
		r = proc_wait(&m->box.init, clock_mono() + QUIT_S * NSEC_PER_SEC, &info);
	return r < 0 && e->num == 0 ? err_set(e, r, "QEMU does not exit") : r;
}

/* ---- the child ---- */

static int take_namespaces(struct maker *m, struct err *e)
{
	int r;

	m->rootless = geteuid() != 0;
	m->ids = USER_FIRST;
	if (m->rootless)
		return userns_enter(m->spec->image_uid, m->spec->image_gid, e);
	r = state_take_ids(m->run, &m->ids, &m->range, e);
	if (r == 0 &&
	    (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0))
		r = err_errno(e, "cannot create a mount namespace");
	return r;
}

static int make_groups(struct maker *m, struct err *e)
{
	const struct cgroup_limits limits = m->engine->limits(m->spec);
	char name[STATE_GROUP_MAX];

	return cgroup_make(state_group(m->run, m->id, name), &limits, &m->group, e);
}

static int make_sockets(struct maker *m, struct err *e)
{
	if (fd_socket_pair(SOCK_STREAM, &m->channel, &m->channel_ours) < 0 ||
	    fd_socket_pair(SOCK_STREAM, &m->qmp, &m->qmp_ours) < 0)
		return err_errno(e, "cannot make a channel");
	return 0;
}

/* After entering the namespaces, which clears it. */
static int die_with(pid_t parent, struct err *e)
{
	int r = proc_die_with(parent, SIGKILL);

	if (r == -ESRCH)
		return err_set(e, r, "hutch has ended");
	if (r < 0)
		return err_set(e, r, "cannot set a parent-death signal: %s", strerror(-r));
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return err_errno(e, "cannot become a subreaper");
	return 0;
}

static int arrange(struct maker *m, pid_t parent, struct err *e)
{
	int r = state_new(m->run, m->id, &m->dir, e);

	if (r == 0)
		r = take_namespaces(m, e);
	if (r == 0)
		r = die_with(parent, e);
	if (r == 0)
		r = make_groups(m, e);
	return r < 0 ? r : make_sockets(m, e);
}

static int boot_and_save(struct maker *m, struct err *e)
{
	const struct engine_start s = {
		.engine = m->engine,
		.spec = m->spec,
		.group = &m->group,
		.channel = m->channel,
		.ids = m->ids,
		.rootless = m->rootless,
		.monitor = m->qmp,
		.disk = m->disk,
		.memory = -EBADF,
		.state = -EBADF,
	};
	char said[160] = "";
	int r = m->engine->start(&s, &m->box, e);

	if (r < 0)
		return r;
	m->qmp = fd_close(m->qmp);
	m->deadline = clock_mono() + BOOT_S * NSEC_PER_SEC;
	r = boot(m, &s, e);
	if (r == 0)
		r = save(m, e);
	if (r == 0)
		return quit(m, e);
	m->engine->last_words(&m->box, said, sizeof(said));
	if (said[0])
		(void)err_wrap(e, "%s says '%s'", m->engine->title, said);
	return r;
}

/* Cleans up as far as possible; a sweep does the rest. */
static void clean_up(struct maker *m)
{
	struct err ignored = ERR_INIT;

	ram_save_done(&m->ram);
	proc_done(&m->box.init);
	if (m->group.name[0])
		(void)cgroup_remove(m->group.name, &ignored);
	if (m->id[0])
		(void)state_remove(m->run, m->id);
}

/* The child's answer, written at once. */
struct made {
	struct err e;
	char digest[PAGES_HEX];
};
static_assert(sizeof(struct made) <= PIPE_BUF, "a pipe takes it as a whole");

static _noreturn_ void child(struct maker *m, pid_t parent, int report)
{
	struct made made = { .e = ERR_INIT };
	int r = arrange(m, parent, &made.e);

	if (r == 0)
		r = boot_and_save(m, &made.e);
	clean_up(m);
	made.e.num = r;
	memcpy(made.digest, m->digest, sizeof(made.digest));
	(void)!write(report, &made, sizeof(made));
	_exit(r < 0);
}

/* ---- the caller ---- */

int template_boot(const struct spec *spec, const struct state_root *run, int disk, int memory,
		  int state, char ret_hex[static PAGES_HEX], struct err *e)
{
	struct maker m = {
		.spec = spec,
		.run = run,
		.disk = disk,
		.memory = memory,
		.state = state,
		.dir = -EBADF,
		.range = -EBADF,
		.group = CGROUP_INIT,
		.channel = -EBADF,
		.channel_ours = -EBADF,
		.qmp = -EBADF,
		.qmp_ours = -EBADF,
		.box = ENGINE_SANDBOX_INIT,
		.ram = RAM_SAVE_INIT,
		.in = BUF_INIT(4 * QMP_LINE_MAX),
	};
	_cleanup_close_ int from = -EBADF, to = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	const pid_t self = getpid();
	struct made made = { .e = ERR_INIT };
	int r = engine_of(spec, &m.engine, e);

	if (r < 0)
		return r;
	if (fd_pipe(0, &from, &to) < 0)
		return err_errno(e, "cannot create a pipe");
	r = proc_fork(&p);
	if (r == 1)
		child(&m, self, to);
	if (r < 0)
		return err_set(e, r, "cannot fork: %s", strerror(-r));
	to = fd_close(to);
	/* The child has its own deadlines for everything. */
	if (RETRY_EINTR(read(from, &made, sizeof(made))) != (ssize_t)sizeof(made))
		return err_set(e, -EPIPE, "the process that creates the template was killed");
	if (made.e.num < 0)
		*e = made.e;
	memcpy(ret_hex, made.digest, PAGES_HEX);
	return made.e.num;
}
