/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes share a directory: locks are tested with real children. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/proc.h"
#include "base/str.h"
#include "fail.h"
#include "state/life.h"
#include "state/state.h"
#include "unit.h"

/* A root in a fresh directory. */
static void open_root(const struct unit_dir *d, struct state_root *ret)
{
	struct err e = ERR_INIT;

	assert_int_equal(setenv("HUTCH_RUN_DIR", d->path, 1), 0);
	assert_int_equal(state_root_open(ret, &e), 0);
}

static void touch(int dir, const char *name)
{
	struct err e = ERR_INIT;

	assert_int_equal(state_write(dir, name, "x", 1, &e), 0);
}

/* Opens the same directory again, as another process would. */
static int reopen(const struct state_root *r, const char *id)
{
	int fd = openat(r->dir, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* A child that takes the lock, reports it, and waits to be killed. */
static void fake_warden(int dir, struct proc *ret)
{
	_cleanup_close_ int from = -EBADF;
	int fds[2], r;
	char c;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	from = fds[0];
	r = proc_fork(ret);
	assert_true(r >= 0);
	if (r == 1) {
		struct err e = ERR_INIT;
		int lock;

		if (state_lock(dir, &lock, &e) == 0 && fd_write_all(fds[1], "k", 1) == 0)
			(void)pause();
		_exit(1);
	}
	(void)close(fds[1]);
	assert_int_equal(read(from, &c, 1), 1);
}

static void end_of(struct proc *p)
{
	siginfo_t info;

	assert_int_equal(proc_signal(p, SIGKILL), 0);
	assert_int_equal(proc_wait(p, UINT64_MAX, &info), 0);
	proc_done(p);
}

TEST_IN_DIR(the_root_is_ours_alone)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	char path[UNIT_PATH_MAX + 16];
	struct err e = ERR_INIT;
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/a/b", d->path);
	assert_int_equal(setenv("HUTCH_RUN_DIR", path, 1), 0);
	assert_int_equal(state_root_open(&r, &e), 0);
	assert_string_equal(r.path, path);
	assert_int_equal(fstatat(d->fd, "a/b/sandboxes", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	state_root_close(&r);
	assert_int_equal(fchmodat(d->fd, "a/b/ids", 0770, 0), 0);
	assert_int_equal(state_root_open(&r, &e), -EPERM);
	assert_non_null(strstr(e.msg, "others can write in 'ids': refused"));
	assert_int_equal(fchmodat(d->fd, "a/b/ids", 0700, 0), 0);
	assert_int_equal(fchmodat(d->fd, "a/b", 0777, 0), 0);
	assert_int_equal(state_root_open(&r, &e), -EPERM);
	assert_int_equal(fchmodat(d->fd, "a/b", 0700, 0), 0);
	assert_int_equal(unlinkat(d->fd, "a/b/ids", AT_REMOVEDIR), 0);
	assert_int_equal(symlinkat("/tmp", d->fd, "a/b/ids"), 0);
	assert_int_equal(state_root_open(&r, &e), -ELOOP);
	assert_int_equal(setenv("HUTCH_RUN_DIR", "relative", 1), 0);
	assert_int_equal(state_root_open(&r, &e), -EINVAL);
	assert_string_equal(e.msg, "HUTCH_RUN_DIR is not an absolute path: 'relative'");
}

/* In a child with an arbitrary uid: $XDG_RUNTIME_DIR, and /tmp without it. */
TEST_IN_DIR(the_root_of_a_user)
{
	struct unit_dir *d = *state;
	struct proc p = PROC_INIT;
	siginfo_t info;
	int r;

	if (geteuid() != 0)
		skip();
	assert_int_equal(fchmod(d->fd, 0777), 0);
	r = proc_fork(&p);
	assert_true(r >= 0);
	if (r == 1) {
		struct state_root root = STATE_ROOT_INIT;
		struct err e = ERR_INIT;
		char want[UNIT_PATH_MAX + 16];

		(void)snprintf(want, sizeof(want), "%s/hutch", d->path);
		if (setresuid(54321, 54321, 54321) < 0 || unsetenv("HUTCH_RUN_DIR") < 0 ||
		    setenv("XDG_RUNTIME_DIR", d->path, 1) < 0)
			_exit(1);
		if (state_root_open(&root, &e) < 0 || !str_eq(root.path, want))
			_exit(2);
		state_root_close(&root);
		if (unsetenv("XDG_RUNTIME_DIR") < 0 || state_root_open(&root, &e) < 0 ||
		    !str_eq(root.path, "/tmp/hutch-54321"))
			_exit(3);
		/* another user's directory with that name is refused */
		if (setenv("HUTCH_RUN_DIR", "/tmp", 1) < 0 || state_root_open(&root, &e) != -EPERM)
			_exit(4);
		_exit(rmdir("/tmp/hutch-54321/sandboxes") | rmdir("/tmp/hutch-54321/ended") |
		      rmdir("/tmp/hutch-54321/ids") | rmdir("/tmp/hutch-54321"));
	}
	assert_int_equal(proc_wait(&p, UINT64_MAX, &info), 0);
	proc_done(&p);
	assert_int_equal(info.si_code, CLD_EXITED);
	assert_int_equal(info.si_status, 0);
}

TEST_IN_DIR(new_ones_are_found)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	char id[50][SPEC_ID + 1], got[SPEC_ID + 1], (*list)[SPEC_ID + 1] = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;

	open_root(d, &r);
	for (size_t i = 0; i < ARRAY_SIZE(id); i++) {
		_cleanup_close_ int dir = -EBADF, found = -EBADF;

		assert_int_equal(state_new(&r, id[i], &dir, &e), 0);
		assert_true(ascii_is_lower(id[i][0]));
		assert_int_equal(strlen(id[i]), SPEC_ID);
		assert_int_equal(state_find(&r, id[i], got, &found, &e), 0);
		assert_string_equal(got, id[i]);
	}
	/* other directories are not listed */
	assert_int_equal(mkdirat(r.dir, "lost+found", 0700), 0);
	assert_int_equal(state_list(&r, &list, &n, &e), 0);
	assert_int_equal(n, ARRAY_SIZE(id));
	for (size_t i = 1; i < n; i++)
		assert_true(strcmp(list[i - 1], list[i]) < 0);
	for (size_t i = 0; i < ARRAY_SIZE(id); i++)
		assert_int_equal(state_remove(&r, id[i]), 0);
	free(list);
	assert_int_equal(state_list(&r, &list, &n, &e), 0);
	assert_int_equal(n, 0);
	assert_int_equal(state_remove(&r, id[0]), 0); /* again */
}

TEST_IN_DIR(finding_by_a_beginning)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_close_ int dir = -EBADF;
	char id[SPEC_ID + 1];
	struct err e = ERR_INIT;

	open_root(d, &r);
	assert_int_equal(mkdirat(r.dir, "abcd000000000000", 0700), 0);
	assert_int_equal(mkdirat(r.dir, "abce000000000000", 0700), 0);
	assert_int_equal(state_find(&r, "abcd", id, &dir, &e), 0);
	assert_string_equal(id, "abcd000000000000");
	dir = fd_close(dir);
	assert_int_equal(state_find(&r, "abc", id, &dir, &e), -ENOTUNIQ);
	assert_string_equal(e.msg, "2 sandboxes begin with 'abc': give more letters");
	assert_int_equal(state_find(&r, "zz", id, &dir, &e), -ENOENT);
	assert_string_equal(e.msg, "no sandbox 'zz': see 'hutch ps -a'");
	assert_int_equal(state_find(&r, "a", id, &dir, &e), -EINVAL);
	assert_int_equal(state_find(&r, "", id, &dir, &e), -EINVAL);
	assert_int_equal(state_find(&r, "..", id, &dir, &e), -EINVAL);
	assert_int_equal(state_find(&r, "1b", id, &dir, &e), -EINVAL);
	assert_int_equal(state_find(&r, "aB", id, &dir, &e), -EINVAL);
	assert_int_equal(state_find(&r, "abcd0000000000000", id, &dir, &e), -EINVAL);
	/* a symbolic link is not a sandbox */
	assert_int_equal(symlinkat("/tmp", r.dir, "zzcd000000000000"), 0);
	assert_true(state_find(&r, "zz", id, &dir, &e) < 0);
}

TEST_IN_DIR(only_flat_directories_are_removed)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_close_ int dir = -EBADF;
	char id[SPEC_ID + 1];
	struct err e = ERR_INIT;

	open_root(d, &r);
	assert_int_equal(state_new(&r, id, &dir, &e), 0);
	touch(dir, "spec.json");
	assert_int_equal(mkdirat(dir, "sub", 0700), 0);
	assert_int_equal(state_remove(&r, id), -EISDIR);
	assert_int_equal(unlinkat(dir, "sub", AT_REMOVEDIR), 0);
	assert_int_equal(state_remove(&r, id), 0);
}

TEST_IN_DIR(the_lock_goes_with_its_process)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_close_ int dir = -EBADF, lock = -EBADF, pidfd = -EBADF;
	struct proc p = PROC_INIT;
	char id[SPEC_ID + 1];
	struct err e = ERR_INIT;
	pid_t pid = 0;

	open_root(d, &r);
	assert_int_equal(state_new(&r, id, &dir, &e), 0);
	assert_int_equal(state_warden(dir, &pidfd, &pid), -ESRCH);
	fake_warden(dir, &p);
	assert_int_equal(state_lock(dir, &lock, &e), -EBUSY);
	assert_int_equal(state_warden(dir, &pidfd, &pid), 0);
	assert_int_equal(pid, p.pid);
	end_of(&p);
	pidfd = fd_close(pidfd);
	assert_int_equal(state_warden(dir, &pidfd, &pid), -ESRCH);
	assert_int_equal(state_lock(dir, &lock, &e), 0);
}

/* The warden forks the keeper, which must not hold its lock. */
TEST_IN_DIR(the_lock_is_not_inherited)
{
	struct unit_dir *d = *state;
	_cleanup_close_ int pidfd = -EBADF;
	int fds[2], r;
	struct proc p = PROC_INIT;
	pid_t pid = 0;
	char c;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	r = proc_fork(&p);
	assert_true(r >= 0);
	if (r == 1) {
		struct proc keeper = PROC_INIT;
		struct err e = ERR_INIT;
		int lock;

		if (state_lock(d->fd, &lock, &e) < 0 || proc_fork(&keeper) < 0)
			_exit(1);
		if (keeper.pid == 0) { /* stays alive, with every file descriptor of its parent */
			(void)fd_write_all(fds[1], "k", 1);
			(void)close(fds[1]);
			(void)sleep(2);
		}
		_exit(0);
	}
	(void)close(fds[1]);
	assert_int_equal(read(fds[0], &c, 1), 1);
	(void)close(fds[0]);
	end_of(&p);
	assert_int_equal(state_warden(d->fd, &pidfd, &pid), -ESRCH);
}

TEST_IN_DIR(phases)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_close_ int maker = -EBADF, dir = -EBADF, claim = -EBADF, second = -EBADF;
	struct proc p = PROC_INIT;
	char id[SPEC_ID + 1];
	struct err e = ERR_INIT;

	open_root(d, &r);
	assert_int_equal(state_new(&r, id, &maker, &e), 0);
	dir = reopen(&r, id);
	/* being made: a sweep leaves it alone */
	assert_int_equal(state_phase(dir), STATE_STARTING);
	assert_int_equal(state_claim(dir, &claim), -EBUSY);
	fake_warden(dir, &p);
	maker = fd_close(maker);
	assert_int_equal(state_phase(dir), STATE_STARTING); /* no receipt yet */
	assert_int_equal(state_claim(dir, &claim), -EBUSY);
	touch(dir, "receipt.json");
	assert_int_equal(state_phase(dir), STATE_RUNNING);
	assert_int_equal(life_write(dir, &(struct life){ .paused = true }, &e), 0);
	assert_int_equal(state_phase(dir), STATE_PAUSED);
	assert_int_equal(life_write(dir, &(struct life){ .paused = false }, &e), 0);
	assert_int_equal(state_phase(dir), STATE_RUNNING);
	assert_int_equal(life_write(dir, &(struct life){ .paused = true }, &e), 0);
	end_of(&p);
	assert_int_equal(state_phase(dir), STATE_DEAD);
	assert_int_equal(state_claim(dir, &claim), 0);
	assert_int_equal(state_claim(dir, &second), -EBUSY);
	assert_int_equal(state_phase(dir), STATE_STARTING); /* being reclaimed */
	claim = fd_close(claim);
	/* Suspended, without a warden. The file stays while the next warden starts. */
	touch(dir, STATE_SUSPENDED);
	assert_int_equal(state_phase(dir), STATE_ON_DISK);
	assert_string_equal(state_phase_names[STATE_ON_DISK], "suspended");
	fake_warden(dir, &p);
	assert_int_equal(state_phase(dir), STATE_PAUSED);
	end_of(&p);
	touch(dir, "end.json");
	assert_int_equal(state_phase(dir), STATE_ENDED);
	assert_int_equal(state_remove(&r, id), 0);
	assert_int_equal(state_claim(dir, &claim), -ENOENT);
	assert_string_equal(state_phase_names[STATE_DEAD], "dead");
}

/* The maker passes its lock on: no gap if it dies before the warden is ready. */
TEST_IN_DIR(the_makers_lock_is_handed_down)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_close_ int maker = -EBADF, dir = -EBADF, claim = -EBADF;
	char id[SPEC_ID + 1];
	struct err e = ERR_INIT;
	struct proc p = PROC_INIT;
	int k;

	open_root(d, &r);
	assert_int_equal(state_new(&r, id, &maker, &e), 0);
	dir = reopen(&r, id);
	k = proc_fork(&p);
	assert_true(k >= 0);
	if (k == 1) {
		(void)pause();
		_exit(0);
	}
	maker = fd_close(maker);
	assert_int_equal(state_claim(dir, &claim), -EBUSY);
	end_of(&p);
	assert_int_equal(state_claim(dir, &claim), 0);
}

TEST_IN_DIR(every_range_once)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_close_ int a = -EBADF, b = -EBADF;
	uint32_t ids[2] = { 0 };
	struct err e = ERR_INIT;

	open_root(d, &r);
	assert_int_equal(state_take_ids(&r, &ids[0], &a, &e), 0);
	assert_int_equal(state_take_ids(&r, &ids[1], &b, &e), 0);
	assert_int_not_equal(ids[0], ids[1]);
	assert_true(ids[0] >= STATE_IDS_FIRST && ids[0] % STATE_IDS_SIZE == 0);
	assert_true(ids[0] <= UINT32_C(0x80000000) - STATE_IDS_SIZE);
}

/* All ranges but one are taken: that one is found, and then none. */
TEST_IN_DIR(ranges_that_nobody_has_are_removed)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_close_ int held = -EBADF, again = -EBADF;
	struct err e = ERR_INIT;
	uint32_t first = 0, second = 0;
	char name[16];
	size_t n = 7;

	open_root(d, &r);
	assert_return_code(state_take_ids(&r, &first, &held, &e), 0);
	assert_return_code(state_take_ids(&r, &second, &again, &e), 0);
	again = fd_close(again);
	assert_return_code(state_clean_ids(&r, &n, &e), 0);
	assert_int_equal(n, 1);
	(void)snprintf(name, sizeof(name), "%u", (first - STATE_IDS_FIRST) / STATE_IDS_SIZE);
	assert_int_equal(faccessat(r.ids, name, F_OK, 0), 0);
	(void)snprintf(name, sizeof(name), "%u", (second - STATE_IDS_FIRST) / STATE_IDS_SIZE);
	assert_int_equal(faccessat(r.ids, name, F_OK, 0), -1);
	assert_return_code(state_clean_ids(&r, &n, &e), 0);
	assert_int_equal(n, 0);
}

/* Concurrent takers of ranges and removers of files never give a range to two sandboxes. */
TEST_IN_DIR(cleaning_gives_no_range_twice)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_proc_ struct proc cleaner = PROC_INIT;
	struct err e = ERR_INIT;
	size_t n;

	open_root(d, &r);
	if (proc_fork(&cleaner) == 1)
		for (;;)
			if (state_clean_ids(&r, &n, &e) < 0)
				_exit(1);
	for (int i = 0; i < 300; i++) {
		_cleanup_close_ int fd = -EBADF;
		uint32_t first = 0;
		struct stat a, b;
		char name[16];

		assert_return_code(state_take_ids(&r, &first, &fd, &e), 0);
		(void)snprintf(name, sizeof(name), "%u",
			       (first - STATE_IDS_FIRST) / STATE_IDS_SIZE);
		assert_int_equal(fstat(fd, &a), 0);
		assert_int_equal(fstatat(r.ids, name, &b, 0), 0);
		assert_int_equal(a.st_ino, b.st_ino);
	}
	assert_int_equal(proc_signal(&cleaner, 0), 0);
}

TEST_IN_DIR(groups_say_whose_they_are)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT, other = STATE_ROOT_INIT;
	char group[STATE_GROUP_MAX], id[SPEC_ID + 1] = "", path[UNIT_PATH_MAX + 16];
	struct err e = ERR_INIT;

	open_root(d, &r);
	(void)state_group(&r, "abcdefghijklmnop", group);
	assert_true(state_group_is_ours(&r, group, id));
	assert_string_equal(id, "abcdefghijklmnop");
	assert_false(state_group_is_ours(&r, "abcdefghijklmnop", id));
	assert_false(state_group_is_ours(&r, "abcdefghijklmnop-", id));
	assert_false(state_group_is_ours(&r, group + 1, id));
	group[0] = 'A';
	assert_false(state_group_is_ours(&r, group, id));
	(void)snprintf(path, sizeof(path), "%s/other", d->path);
	assert_int_equal(setenv("HUTCH_RUN_DIR", path, 1), 0);
	assert_return_code(state_root_open(&other, &e), 0);
	assert_false(state_group_is_ours(&r, state_group(&other, "abcdefghijklmnop", group), id));
}

TEST_IN_DIR(the_last_range_and_none)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	int *held = calloc(STATE_IDS_MAX, sizeof(held[0])), extra = -EBADF;
	struct err e = ERR_INIT;
	uint32_t ids = 0, last = 1234;

	if (sysconf(_SC_OPEN_MAX) < STATE_IDS_MAX + 100) {
		free(held);
		skip();
	}
	open_root(d, &r);
	for (unsigned int i = 0; i < STATE_IDS_MAX; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "%u", i);
		held[i] = i == last ? -EBADF
				    : openat(r.ids, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		assert_true(i == last || flock(held[i], LOCK_EX | LOCK_NB) == 0);
	}
	assert_int_equal(state_take_ids(&r, &ids, &held[last], &e), 0);
	assert_int_equal(ids, STATE_IDS_FIRST + last * STATE_IDS_SIZE);
	assert_int_equal(state_take_ids(&r, &ids, &extra, &e), -EUSERS);
	for (unsigned int i = 0; i < STATE_IDS_MAX; i++)
		(void)fd_close(held[i]);
	free(held);
}

TEST_IN_DIR(a_tree_is_kept)
{
	struct unit_dir *d = *state;
	_cleanup_close_ int one = -EBADF, two = -EBADF, alone = -EBADF;
	char root[UNIT_PATH_MAX + 16];
	struct err e = ERR_INIT;

	(void)snprintf(root, sizeof(root), "%s/tree/root", d->path);
	assert_int_equal(state_lock_tree(root, &one, &e), -ENOENT);
	assert_string_equal(e.msg, "the image has been removed: build it again");
	assert_int_equal(mkdirat(d->fd, "tree", 0700), 0);
	assert_int_equal(state_lock_tree(root, &one, &e), 0);
	assert_int_equal(state_lock_tree(root, &two, &e), 0);
	alone = openat(d->fd, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(flock(alone, LOCK_EX | LOCK_NB), -1);
	one = fd_close(one);
	two = fd_close(two);
	assert_int_equal(flock(alone, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(state_lock_tree(root, &one, &e), -ENOENT); /* being removed */
}

static int make_and_remove(const struct state_root *r)
{
	_cleanup_close_ int dir = -EBADF, lock = -EBADF, ids_fd = -EBADF;
	char id[SPEC_ID + 1] = "";
	struct err e = ERR_INIT;
	uint32_t ids;
	int k = state_new(r, id, &dir, &e), k2;

	if (k == 0)
		k = state_write(dir, "spec.json", "x", 1, &e);
	if (k == 0)
		k = state_lock(dir, &lock, &e);
	if (k == 0)
		k = state_take_ids(r, &ids, &ids_fd, &e);
	dir = fd_close(dir);
	if (id[0] == '\0')
		return k;
	k2 = state_remove(r, id);
	return k < 0 ? k : k2;
}

static int open_and_close(void)
{
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	struct err e = ERR_INIT;

	return state_root_open(&r, &e);
}

static int list(const struct state_root *r)
{
	char(*v)[SPEC_ID + 1] = NULL;
	struct err e = ERR_INIT;
	size_t n;
	int k = state_list(r, &v, &n, &e);

	free(v);
	return k;
}

TEST_IN_DIR(faults)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;

	open_root(d, &r);
	FAIL_SWEEP(open_and_close());
	FAIL_SWEEP(make_and_remove(&r));
	FAIL_SWEEP(list(&r));
}

/* If the state cannot be read, the sandbox counts as alive: a fault never makes it dead. */
TEST_IN_DIR(faults_do_not_kill)
{
	struct unit_dir *d = *state;
	struct proc p = PROC_INIT;

	touch(d->fd, "receipt.json");
	fake_warden(d->fd, &p);
	for (unsigned int n = 1; n < 20; n++) {
		int claim = -EBADF;

		fail_arm(n, EIO);
		assert_int_not_equal(state_phase(d->fd), STATE_DEAD);
		fail_arm(n, EIO);
		assert_true(state_claim(d->fd, &claim) < 0);
	}
	fail_off();
	end_of(&p);
	assert_int_equal(state_phase(d->fd), STATE_DEAD);
}
