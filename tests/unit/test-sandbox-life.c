/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start, connect, kill, reclaim, with real processes in place of the keeper: a child that holds the
 * lock, or a script in $HUTCH_LIBEXEC_DIR.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "fail.h"
#include "sandbox/sandbox.h"
#include "state/kept.h"
#include "unit.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct spec example = {
	.level = LEVEL_CONTAINER,
	.id = "",
	.agent = "default",
	.policy = HEX64,
	.image = "base",
	.image_digest = HEX64,
	.root = "/nonexistent/root",
	.user = "",
	.workspace = "/",
	.in_memory = true, /* no empty disk is made */
};

static void open_root(const struct unit_dir *d, struct state_root *ret)
{
	struct err e = ERR_INIT;
	char path[UNIT_PATH_MAX + 8];

	(void)snprintf(path, sizeof(path), "%s/run", d->path);
	assert_int_equal(setenv("HUTCH_RUN_DIR", path, 1), 0);
	assert_int_equal(state_root_open(ret, &e), 0);
}

/* A directory with a spec, as hutch makes it; `ret->dir` holds the lock. */
static void make_one(const struct state_root *r, const struct spec *spec, struct sandbox *ret)
{
	_cleanup_free_ char *text = NULL;
	struct spec own = *spec;
	struct err e = ERR_INIT;

	assert_int_equal(state_new(r, ret->id, &ret->dir, &e), 0);
	own.id = ret->id;
	text = spec_write(&own);
	assert_int_equal(state_write(ret->dir, "spec.json", text, strlen(text), &e), 0);
}

static void reopen(const struct state_root *r, struct sandbox *s)
{
	(void)fd_close(s->dir);
	s->dir = openat(r->dir, s->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(s->dir >= 0);
}

/* Left by a killed warden: a spec, a free lock, no end. */
static void make_dead(const struct state_root *r, const struct spec *spec, struct sandbox *ret)
{
	make_one(r, spec, ret);
	reopen(r, ret);
	assert_int_equal(state_phase(ret->dir), STATE_DEAD);
}

enum manner {
	POLITE, /* writes end.json on request */
	HASTY,	/* dies on request */
};

/* A child with the lock and a receipt. */
static void fake_warden(const struct sandbox *s, enum manner manner, struct proc *ret)
{
	int fds[2], r;
	char c;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	r = proc_fork(ret);
	assert_true(r >= 0);
	if (r == 1) {
		struct err e = ERR_INIT;
		sigset_t set;
		int lock, sig;

		(void)sigemptyset(&set);
		(void)sigaddset(&set, SIGTERM);
		if (manner == POLITE)
			(void)sigprocmask(SIG_BLOCK, &set, NULL);
		if (state_lock(s->dir, &lock, &e) < 0 ||
		    state_write(s->dir, "receipt.json", "{}", 2, &e) < 0 ||
		    fd_write_all(fds[1], "k", 1) < 0)
			_exit(1);
		if (manner == POLITE && sigwait(&set, &sig) == 0)
			_exit(end_write(s->dir, &(struct end){ .reason = END_KILLED, .time = 1 },
					&e) < 0);
		(void)pause();
		_exit(1);
	}
	(void)close(fds[1]);
	assert_int_equal(read(fds[0], &c, 1), 1);
	(void)close(fds[0]);
}

static void assert_gone(const struct state_root *r, const char *id)
{
	struct stat st;

	assert_int_equal(fstatat(r->dir, id, &st, 0), -1);
}

static void assert_kept(const struct state_root *r, const char *id)
{
	_cleanup_close_ int dir = kept_open(r, id);

	assert_true(dir >= 0);
}

TEST_IN_DIR(a_dead_one_becomes_an_ended_one)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox s = SANDBOX_INIT;
	struct err e = ERR_INIT;
	struct end end = { 0 };

	open_root(d, &r);
	assert_int_equal(sandbox_reclaim(&r, &e), 0); /* nothing to do */
	make_dead(&r, &example, &s);
	assert_int_equal(sandbox_reclaim(&r, &e), 0);
	assert_int_equal(state_phase(s.dir), STATE_ENDED);
	assert_int_equal(end_read(s.dir, &end, &e), 0);
	assert_int_equal(end.reason, END_WARDEN);
	assert_true(clock_wall() - end.time < 60 * NSEC_PER_SEC);
	assert_int_equal(sandbox_reclaim(&r, &e), 0); /* stays as it is */
	assert_int_equal(state_phase(s.dir), STATE_ENDED);
	assert_gone(&r, s.id);
	assert_kept(&r, s.id);
}

TEST_IN_DIR(what_nobody_wants_is_removed)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox once = SANDBOX_INIT, rm = SANDBOX_INIT,
					 broken = SANDBOX_INIT;
	struct spec spec = example;
	struct err e = ERR_INIT;

	open_root(d, &r);
	spec.once = true;
	make_dead(&r, &spec, &once);
	spec.once = false;
	spec.remove = true;
	make_dead(&r, &spec, &rm);
	make_dead(&r, &example, &broken);
	assert_int_equal(state_write(broken.dir, "spec.json", "{", 1, &e), 0);
	assert_int_equal(sandbox_reclaim(&r, &e), 0);
	assert_gone(&r, once.id);
	assert_kept(&r, once.id); /* as if it had ended by itself */
	assert_gone(&r, rm.id);
	assert_int_equal(kept_open(&r, rm.id), -ENOENT);
	assert_gone(&r, broken.id);
}

TEST_IN_DIR(the_living_are_left_alone)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox made = SANDBOX_INIT, lives = SANDBOX_INIT;
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct spec spec = example;
	struct err e = ERR_INIT;

	open_root(d, &r);
	spec.remove = true;
	make_one(&r, &spec, &made);
	make_one(&r, &spec, &lives);
	fake_warden(&lives, HASTY, &p);
	reopen(&r, &lives);
	assert_int_equal(sandbox_reclaim(&r, &e), 0);
	assert_int_equal(state_phase(lives.dir), STATE_RUNNING);
	assert_int_equal(state_phase(made.dir), STATE_STARTING);
	proc_done(&p); /* kill -9 */
	assert_int_equal(sandbox_reclaim(&r, &e), 0);
	assert_gone(&r, lives.id);
	assert_int_equal(state_phase(made.dir), STATE_STARTING);
}

static void make_due(const struct state_root *r)
{
	const struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1 } };

	assert_int_equal(utimensat(r->ended, "trimmed", t, 0), 0);
}

TEST_IN_DIR(old_ones_go)
{
	static const struct {
		unsigned int hours;
		bool stays;
	} ages[] = { { 0, true }, { 7 * 24 - 1, true }, { 7 * 24 + 1, false } };
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox s = SANDBOX_INIT;
	struct err e = ERR_INIT;

	open_root(d, &r);
	make_dead(&r, &example, &s);
	assert_int_equal(sandbox_reclaim(&r, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(ages); i++) {
		char line[100];
		int n = snprintf(
			line, sizeof(line), "%llu 4096 whole \n",
			(unsigned long long)(clock_wall() -
					     ages[i].hours * UINT64_C(3600) * NSEC_PER_SEC));
		int fd;

		assert_int_equal(state_write(s.dir, "kept", line, (size_t)n, &e), 0);
		make_due(&r);
		assert_int_equal(sandbox_reclaim(&r, &e), 0);
		fd = kept_open(&r, s.id);
		assert_true(ages[i].stays ? fd >= 0 : fd == -ENOENT);
		(void)fd_close(fd);
	}
}

/* A sandbox with --rm whose client should have read the end, and did not. */
TEST_IN_DIR(what_was_to_be_removed_goes_soon)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox s = SANDBOX_INIT;
	struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { 0 } };
	struct spec spec = example;
	struct err e = ERR_INIT;

	open_root(d, &r);
	spec.remove = true;
	make_dead(&r, &spec, &s);
	assert_int_equal(state_write(s.dir, STATE_REMOVE, "", 0, &e), 0);
	assert_int_equal(end_write(s.dir, &(struct end){ .reason = END_TTL, .time = 1 }, &e), 0);
	assert_int_equal(sandbox_reclaim(&r, &e), 0);
	assert_int_equal(state_phase(s.dir), STATE_ENDED);
	t[1].tv_sec = (time_t)(clock_wall() / NSEC_PER_SEC) - 12;
	assert_int_equal(utimensat(s.dir, STATE_REMOVE, t, 0), 0);
	assert_int_equal(sandbox_reclaim(&r, &e), 0);
	assert_gone(&r, s.id);
}

struct taken {
	size_t n[LEFT_MAX];
};

static void count_taken(void *arg, enum sandbox_left what, const char *name)
{
	struct taken *t = arg;

	t->n[what]++;
}

TEST_IN_DIR(everything_without_a_warden_goes)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox ended = SANDBOX_INIT, dead = SANDBOX_INIT,
					 lives = SANDBOX_INIT, made = SANDBOX_INIT;
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct taken t = { 0 };
	struct sandbox_gc gc = { count_taken, &t, false };
	struct err e = ERR_INIT;

	open_root(d, &r);
	assert_int_equal(setenv("HUTCH_STATE_DIR", d->path, 1), 0); /* no images there */
	make_dead(&r, &example, &ended);
	assert_int_equal(sandbox_reclaim(&r, &e), 0);
	make_dead(&r, &example, &dead);
	make_one(&r, &example, &lives);
	fake_warden(&lives, HASTY, &p);
	reopen(&r, &lives);
	make_one(&r, &example, &made);
	assert_int_equal(sandbox_reclaim_all(&r, &gc, &e), 0);
	assert_int_equal(t.n[LEFT_ENDED], 0); /* not old yet */
	assert_int_equal(t.n[LEFT_DEAD], 1);
	assert_kept(&r, ended.id);
	assert_kept(&r, dead.id);
	gc.ended = true;
	assert_int_equal(sandbox_reclaim_all(&r, &gc, &e), 0);
	assert_int_equal(t.n[LEFT_ENDED], 2);
	assert_int_equal(t.n[LEFT_DEAD], 1);
	assert_int_equal(kept_open(&r, ended.id), -ENOENT);
	assert_int_equal(kept_open(&r, dead.id), -ENOENT);
	assert_int_equal(t.n[LEFT_GROUP] + t.n[LEFT_IMAGE] + t.n[LEFT_IDS], 0);
	assert_gone(&r, ended.id);
	assert_gone(&r, dead.id);
	assert_int_equal(state_phase(lives.dir), STATE_RUNNING);
	assert_int_equal(state_phase(made.dir), STATE_STARTING);
}

/* Children sweep concurrently: everything is reclaimed exactly once, by any of them. */
TEST_IN_DIR(many_sweep_at_once)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	struct proc p[4];
	struct spec spec = example;
	char(*ids)[SPEC_ID + 1] = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;

	open_root(d, &r);
	spec.remove = true;
	for (int i = 0; i < 40; i++) {
		_cleanup_sandbox_ struct sandbox s = SANDBOX_INIT;

		make_one(&r, &spec, &s);
	}
	for (size_t i = 0; i < ARRAY_SIZE(p); i++)
		if (proc_fork(&p[i]) == 1)
			_exit(sandbox_reclaim(&r, &e) < 0);
	for (size_t i = 0; i < ARRAY_SIZE(p); i++) {
		siginfo_t info = { 0 };

		assert_int_equal(proc_wait(&p[i], UINT64_MAX, &info), 0);
		assert_int_equal(info.si_status, 0);
		proc_done(&p[i]);
	}
	assert_int_equal(state_list(&r, &ids, &n, &e), 0);
	assert_int_equal(n, 0);
	free(ids);
}

TEST_IN_DIR(killing)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	struct err e = ERR_INIT, owed = ERR_INIT;

	open_root(d, &r);
	for (int manner = POLITE; manner <= HASTY; manner++) {
		_cleanup_sandbox_ struct sandbox s = SANDBOX_INIT;
		_cleanup_proc_ struct proc p = PROC_INIT;
		struct end end = { 0 };
		int fd;

		make_one(&r, &example, &s);
		fake_warden(&s, (enum manner)manner, &p);
		reopen(&r, &s);
		assert_int_equal(state_phase(s.dir), STATE_RUNNING);
		assert_int_equal(sandbox_kill(&r, &s, "uid 7", &owed, &e), 0);
		assert_int_equal(state_phase(s.dir), STATE_ENDED);
		assert_int_equal(end_read(s.dir, &end, &e), 0);
		assert_int_equal(end.reason, manner == POLITE ? END_KILLED : END_WARDEN);
		assert_int_equal(sandbox_kill(&r, &s, "uid 7", &owed, &e), 0); /* again */
		assert_int_equal(sandbox_connect(&s, &fd, &e), -ESRCH);
		assert_non_null(strstr(e.msg, " ended at "));
		assert_non_null(strstr(e.msg, manner == POLITE ? "Z: killed" : "Z: warden"));
		assert_gone(&r, s.id);
		assert_kept(&r, s.id);
		assert_int_equal(kept_remove(&r, s.id), 0);
		assert_int_equal(sandbox_kill(&r, &s, "uid 7", &owed, &e),
				 0); /* and when it is gone */
	}
}

TEST_IN_DIR(connecting)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox s = SANDBOX_INIT, found = SANDBOX_INIT;
	_cleanup_close_ int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = -EBADF;
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char prefix[5] = { 0 };
	struct err e = ERR_INIT;

	open_root(d, &r);
	make_one(&r, &example, &s);
	memcpy(prefix, s.id, 4);
	assert_int_equal(sandbox_find(&r, prefix, &found, &e), 0);
	assert_string_equal(found.id, s.id);
	assert_int_equal(sandbox_connect(&found, &fd, &e), -ESRCH);
	assert_non_null(strstr(e.msg, "is not ready yet"));
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/sock", s.dir);
	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(sandbox_connect(&found, &fd, &e), 0);
	listener = fd_close(listener);
	sandbox_close(&s);
	fd = fd_close(fd);
	assert_int_equal(sandbox_connect(&found, &fd, &e), -ESRCH);
	assert_non_null(strstr(e.msg, "has ended: its keeper was killed"));
}

/* ---- starting: scripts in place of the programs ---- */

static void script(const struct unit_dir *d, const char *name, const char *text)
{
	(void)unlinkat(d->fd, name, 0);
	unit_dir_write(d, name, text, strlen(text));
	assert_int_equal(fchmodat(d->fd, name, 0755, 0), 0);
}

static void programs(const struct unit_dir *d, const char *keeper)
{
	char text[1000];

	(void)snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", keeper);
	script(d, "hutch-keeper", text);
	script(d, "hutch-guest", "#!/bin/sh\n");
	assert_int_equal(setenv("HUTCH_LIBEXEC_DIR", d->path, 1), 0);
}

static size_t count(const struct state_root *r)
{
	char(*ids)[SPEC_ID + 1] = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;

	assert_int_equal(state_list(r, &ids, &n, &e), 0);
	free(ids);
	return n;
}

/* Writes what the keeper received to files of the directory, and checks them. */
TEST_IN_DIR(what_the_keeper_gets)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox s = SANDBOX_INIT;
	_cleanup_close_ int client = -EBADF, claim = -EBADF;
	_cleanup_buf_ struct buf seen = BUF_INIT(8192), said = BUF_INIT(100);
	_cleanup_spec_ struct spec spec = { 0 };
	struct err e = ERR_INIT;
	siginfo_t info;
	char want[300];

	open_root(d, &r);
	assert_int_equal(setenv("SECRET", "x", 1), 0);
	assert_int_equal(setenv("HUTCH_LOG", "debug", 1), 0);
	programs(d, "S=/proc/self/fd/3\n"
		    "{ echo \"$@\"; env | sort | grep -v ^PWD=; ls -l /proc/$$/fd | grep -c "
		    "'[0-9] [0-9]* -> '; } > $S/seen\n"
		    "echo to-the-log >&2\n"
		    "echo to-the-client >&5\n"
		    "echo '{}' > $S/receipt.json\n"
		    "exec 4>&-\n"
		    "exec 5>&-\n"
		    "read x < $S/fifo");
	assert_int_equal(sandbox_start(&r, &example, &s, &client, &e), 0);
	assert_int_equal(fd_read_all(client, &said), 0);
	assert_string_equal(buf_text(&said), "to-the-client\n");
	assert_int_equal(spec_read(s.dir, &spec, &e), 0);
	assert_string_equal(spec.id, s.id);
	assert_true(spec.created > 0);
	assert_int_equal(fd_read_file(s.dir, "seen", &seen, &e), 0);
	(void)snprintf(want, sizeof(want), "--guest %s/hutch-guest --client\n", d->path);
	assert_true(str_has_prefix(buf_text(&seen), want));
	(void)snprintf(want, sizeof(want), "HUTCH_RUN_DIR=%s/run\n", d->path);
	assert_non_null(strstr(buf_text(&seen), want));
	assert_non_null(strstr(buf_text(&seen), "HUTCH_LOG=debug\n"));
	assert_null(strstr(buf_text(&seen), "SECRET"));
	buf_reset(&seen);
	assert_int_equal(fd_read_file(s.dir, "log", &seen, &e), 0);
	assert_non_null(strstr(buf_text(&seen), "to-the-log\n"));
	/* `read` has failed (no fifo) and the script has ended: no process holds the directory */
	assert_true(waitid(P_ALL, 0, &info, WEXITED) == 0);
	assert_int_equal(state_claim(s.dir, &claim), 0);
}

static void failing(const struct unit_dir *d, const struct state_root *r, const char *keeper,
		    const char *says)
{
	struct sandbox s = SANDBOX_INIT;
	int client = -EBADF;
	struct err e = ERR_INIT;
	size_t fds = fail_count_fds();

	programs(d, keeper);
	assert_int_equal(sandbox_start(r, &example, &s, &client, &e), -EIO);
	assert_string_equal(e.msg, says);
	assert_int_equal(count(r), 0);
	assert_int_equal(s.dir, -EBADF);
	assert_int_equal(client, -EBADF);
	assert_int_equal(fail_count_fds(), fds);
	assert_int_equal(waitid(P_ALL, 0, &(siginfo_t){ 0 }, WEXITED | WNOHANG), -1);
}

TEST_IN_DIR(a_start_that_fails)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;

	open_root(d, &r);
	failing(d, &r, "printf 'no room: \\033[31mred' >&4; exit 1", "no room: \\x1b[31mred");
	failing(d, &r, "echo one >&2; echo two >&2; exit 1",
		"the keeper ended before the sandbox was ready: two");
	failing(d, &r, "kill -9 $$", "the keeper ended before the sandbox was ready");
	/* the receipt exists, but a later step failed */
	failing(d, &r, "echo '{}' > /proc/self/fd/3/receipt.json; printf late >&4", "late");
}

TEST_IN_DIR(programs_are_found)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	struct sandbox s = SANDBOX_INIT;
	struct err e = ERR_INIT;

	open_root(d, &r);
	assert_int_equal(setenv("HUTCH_LIBEXEC_DIR", d->path, 1), 0);
	assert_int_equal(sandbox_start(&r, &example, &s, NULL, &e), -ENOENT);
	assert_non_null(strstr(e.msg, "no hutch-keeper and hutch-guest in HUTCH_LIBEXEC_DIR"));
	assert_int_equal(setenv("HUTCH_LIBEXEC_DIR", "relative", 1), 0);
	assert_int_equal(sandbox_start(&r, &example, &s, NULL, &e), -ENOENT);
	/* a test program has no keeper beside it */
	assert_int_equal(unsetenv("HUTCH_LIBEXEC_DIR"), 0);
	assert_int_equal(sandbox_start(&r, &example, &s, NULL, &e), -ENOENT);
	assert_non_null(strstr(e.msg, "is hutch installed as a whole?"));
	assert_int_equal(count(&r), 0);
}

/* A start reclaims the leftovers of a dead sandbox. */
TEST_IN_DIR(a_start_sweeps)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox dead = SANDBOX_INIT, s = SANDBOX_INIT;
	struct err e = ERR_INIT;
	siginfo_t info;

	open_root(d, &r);
	make_dead(&r, &example, &dead);
	programs(d, "echo '{}' > /proc/self/fd/3/receipt.json");
	assert_int_equal(sandbox_start(&r, &example, &s, NULL, &e), 0);
	assert_int_equal(state_phase(dead.dir), STATE_ENDED);
	assert_true(waitid(P_ALL, 0, &info, WEXITED) == 0);
}

static int start_once(const struct state_root *r)
{
	_cleanup_sandbox_ struct sandbox s = SANDBOX_INIT;
	_cleanup_close_ int client = -EBADF;
	struct err e = ERR_INIT;
	siginfo_t info;
	int k = sandbox_start(r, &example, &s, &client, &e);

	fail_off();
	if (k == 0) {
		(void)waitid(P_ALL, 0, &info, WEXITED);
		assert_int_equal(state_remove(r, s.id), 0);
	}
	return k;
}

/* A failed start leaves nothing that the next sweep does not find. */
TEST_IN_DIR(faults)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	struct err e = ERR_INIT;

	open_root(d, &r);
	programs(d, "echo '{}' > /proc/self/fd/3/receipt.json");
	for (unsigned int n = 1;; n++) {
		size_t fds = fail_count_fds();

		fail_arm(n, EIO);
		(void)start_once(&r);
		assert_int_equal(fail_count_fds(), fds);
		assert_int_equal(sandbox_reclaim(&r, &e), 0);
		if (!fail_reached())
			break;
	}
}
