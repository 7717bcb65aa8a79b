/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups of this host, as root: the limits hold, and nothing is left behind. */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "engine/cgroup-inner.h"
#include "fail.h"

enum {
	MIB = 1024 * 1024
};

static const struct cgroup_limits limits = { .cpus = 500, .memory = 32 * MIB, .pids = 20 };

struct live {
	char id[32];
	struct cgroup g;
};

static struct live live;

static void new_id(char id[static 32])
{
	static unsigned int count;

	(void)snprintf(id, 32, "unittest%dx%u", getpid(), count++);
}

/* Names the controllers that this host lacks. */
static bool usable(const struct cgroup *g)
{
	for (enum cgroup_part p = 0; p < CGROUP_IO; p++)
		if (!g->has[p]) {
			print_message("# skipped: %s\n", g->why[p]);
			return false;
		}
	return true;
}

static int setup(void **state)
{
	struct err e = ERR_INIT;

	new_id(live.id);
	live.g = (struct cgroup)CGROUP_INIT;
	if (cgroup_make(live.id, &limits, &live.g, &e) < 0) {
		print_error("%s\n", e.msg);
		return -1;
	}
	*state = &live;
	return 0;
}

static bool any_left(const char *id)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;

	cgroup_open(id, &g);
	for (enum cgroup_part p = 0; p < CGROUP_PARTS; p++)
		if (g.dir[p] >= 0)
			return true;
	return false;
}

static int teardown(void **state)
{
	struct err e = ERR_INIT;

	if (cgroup_remove(live.id, &e) < 0) {
		print_error("%s\n", e.msg);
		return -1;
	}
	cgroup_close(&live.g);
	return any_left(live.id) ? -1 : 0;
}

/* Runs `fn` in a child in the groups; 100 if it could not enter. */
static void enter_and(struct proc *ret, int (*fn)(void))
{
	int r = proc_fork(ret);

	assert_true(r >= 0);
	if (r == 1) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (cgroup_enter(&live.g) < 0)
			_exit(100);
		_exit(fn());
	}
}

static int result(struct proc *p)
{
	siginfo_t info;

	assert_return_code(proc_wait(p, clock_mono() + 20 * NSEC_PER_SEC, &info), 0);
	return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

static uint64_t value_of(enum cgroup_part p, const char *v1, const char *v2)
{
	char line[64];
	uint64_t value;

	assert_return_code(fd_read_line(live.g.dir[p], live.g.v2[p] ? v2 : v1, line, sizeof(line)),
			   0);
	assert_return_code(str_to_u64(line, strcspn(line, " "), UINT64_MAX, &value), 0);
	return value;
}

TEST_WITH(limits_are_there, setup, teardown)
{
	struct cgroup again;
	struct err e = ERR_INIT;

	if (!usable(&live.g))
		skip();
	assert_int_equal(value_of(CGROUP_MEMORY, "memory.limit_in_bytes", "memory.max"), 32 * MIB);
	assert_int_equal(value_of(CGROUP_PIDS, "pids.max", "pids.max"), 20);
	assert_int_equal(value_of(CGROUP_CPU, "cpu.cfs_quota_us", "cpu.max"), 50000);
	/* The same id again is refused, and the first group is untouched. */
	assert_int_equal(cgroup_make(live.id, &limits, &again, &e), -EEXIST);
	assert_true(any_left(live.id));
}

static int wait_for_signal(void)
{
	while (pause() < 0)
		;
	return 0;
}

static uint64_t pids_now(void)
{
	struct cgroup_usage u;

	cgroup_usage(&live.g, &u);
	return u.pids;
}

static void wait_for_pids(uint64_t n)
{
	uint64_t deadline = clock_mono() + 120 * NSEC_PER_SEC;

	while (pids_now() != n) {
		assert_true(clock_mono() < deadline);
		(void)usleep(1000);
	}
}

TEST_WITH(child_is_counted_and_killed, setup, teardown)
{
	_cleanup_proc_ struct proc a = PROC_INIT, b = PROC_INIT;

	if (!usable(&live.g))
		skip();
	assert_int_equal(pids_now(), 0);
	enter_and(&a, wait_for_signal);
	enter_and(&b, wait_for_signal);
	wait_for_pids(2);
	assert_return_code(cgroup_kill(&live.g, clock_mono() + 5 * NSEC_PER_SEC), 0);
	assert_int_equal(result(&a), 128 + SIGKILL);
	assert_int_equal(result(&b), 128 + SIGKILL);
	assert_int_equal(pids_now(), 0);
	assert_return_code(cgroup_kill(&live.g, 0), 0); /* nothing to do takes no time */
}

static int eat_memory(void)
{
	size_t n = 96 * (size_t)MIB;
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return 1;
	for (size_t i = 0; i < n; i += 4096)
		p[i] = 1;
	return 0;
}

TEST_WITH(memory_limit_kills, setup, teardown)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct cgroup_usage u;

	if (!usable(&live.g))
		skip();
	enter_and(&p, eat_memory);
	assert_int_equal(result(&p), 128 + SIGKILL);
	cgroup_usage(&live.g, &u);
	assert_int_equal(u.oom_kills, 1);
	assert_true(u.memory_peak > 24 * MIB && u.memory_peak <= 32 * MIB);
}

/* Counts successful forks; the children stay. */
static int fork_until_refused(void)
{
	for (int n = 0; n < 100; n++) {
		pid_t pid = fork();

		if (pid < 0)
			return errno == EAGAIN ? n : 101;
		if (pid == 0)
			(void)wait_for_signal();
	}
	return 102;
}

TEST_WITH(pids_limit_refuses, setup, teardown)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct cgroup_usage u;

	if (!usable(&live.g))
		skip();
	enter_and(&p, fork_until_refused);
	assert_int_equal(result(&p), 19);
	cgroup_usage(&live.g, &u);
	assert_int_equal(u.pids, 19);
	assert_true(u.pids_refused >= 1);
	/* Their parent has ended: they can be found only by the group. */
	assert_return_code(cgroup_kill(&live.g, clock_mono() + 5 * NSEC_PER_SEC), 0);
	wait_for_pids(0);
}

static int fork_for_ever(void)
{
	while (fork() >= -1)
		;
	return 0;
}

/* A fork bomb, held by the limit on processes. */
TEST_WITH(kill_gets_what_forks, setup, teardown)
{
	_cleanup_proc_ struct proc p = PROC_INIT;

	if (!usable(&live.g))
		skip();
	enter_and(&p, fork_for_ever);
	wait_for_pids(20);
	assert_return_code(cgroup_kill(&live.g, clock_mono() + 10 * NSEC_PER_SEC), 0);
	assert_int_equal(result(&p), 128 + SIGKILL);
	wait_for_pids(0);
}

/* Shared with a child that counts for ever. */
static volatile unsigned int *counter;

static int count(void)
{
	for (;;)
		++*counter;
	return 0;
}

static void wait_for_more(void)
{
	const unsigned int before = *counter;

	while (*counter == before)
		(void)usleep(1000);
}

TEST_WITH(frozen_is_still, setup, teardown)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	unsigned int before;

	if (!usable(&live.g))
		skip();
	counter = mmap(NULL, sizeof(*counter), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	assert_true(counter != MAP_FAILED);
	enter_and(&p, count);
	wait_for_more();
	assert_return_code(cgroup_freeze(&live.g, clock_mono() + 20 * NSEC_PER_SEC), 0);
	before = *counter;
	(void)usleep(300 * 1000);
	assert_int_equal(*counter, before);
	assert_return_code(cgroup_thaw(&live.g, clock_mono() + 20 * NSEC_PER_SEC), 0);
	wait_for_more();
	/* A frozen group can be killed too. */
	assert_return_code(cgroup_freeze(&live.g, clock_mono() + 20 * NSEC_PER_SEC), 0);
	assert_return_code(cgroup_kill(&live.g, clock_mono() + 20 * NSEC_PER_SEC), 0);
	assert_int_equal(result(&p), 128 + SIGKILL);
	assert_int_equal(munmap((void *)counter, sizeof(*counter)), 0);
}

TEST_WITH(remove_kills_first, setup, teardown)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct err e = ERR_INIT;

	if (!usable(&live.g))
		skip();
	enter_and(&p, wait_for_signal);
	wait_for_pids(1);
	assert_return_code(cgroup_remove(live.id, &e), 0);
	assert_int_equal(result(&p), 128 + SIGKILL);
	assert_false(any_left(live.id));
	assert_return_code(cgroup_kill(&live.g, clock_mono() + NSEC_PER_SEC), 0);
}

static bool sigchld_pending(void)
{
	sigset_t set;

	assert_return_code(sigpending(&set), 0);
	return sigismember(&set, SIGCHLD);
}

/* The caller's wait calls do not see the child of cgroup_warm(), and close ends it. */
TEST_WITH(warm_is_not_seen, setup, teardown)
{
	sigset_t chld, old;
	siginfo_t info;
	pid_t pid;

	if (!usable(&live.g))
		skip();
	(void)sigemptyset(&chld);
	(void)sigaddset(&chld, SIGCHLD);
	assert_return_code(sigprocmask(SIG_BLOCK, &chld, &old), 0);
	cgroup_warm(&live.g);
	pid = live.g.warm;
	assert_true(pid > 0);
	assert_int_equal(waitid(P_ALL, 0, &info, WEXITED | WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	cgroup_close(&live.g);
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(errno, ESRCH);
	assert_false(sigchld_pending());
	assert_return_code(sigprocmask(SIG_SETMASK, &old, NULL), 0);
}

/* Makes and removes groups as fast as possible, concurrently with another process. */
static int make_many(void)
{
	struct err e = ERR_INIT;
	char id[32];

	for (int i = 0; i < 20; i++) {
		_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;

		(void)snprintf(id, sizeof(id), "unittest%dy%d", getpid(), i);
		if (cgroup_make(id, &limits, &g, &e) < 0)
			return 1;
		if (!g.has[CGROUP_CPU] || !g.has[CGROUP_MEMORY] || !g.has[CGROUP_PIDS])
			return 2;
		if (cgroup_remove(id, &e) < 0 || any_left(id))
			return 3;
	}
	return 0;
}

TEST_WITH(two_at_the_same_time, setup, teardown)
{
	_cleanup_proc_ struct proc a = PROC_INIT, b = PROC_INIT;

	if (!usable(&live.g))
		skip();
	if (proc_fork(&a) == 1)
		_exit(make_many());
	if (proc_fork(&b) == 1)
		_exit(make_many());
	assert_int_equal(result(&a), 0);
	assert_int_equal(result(&b), 0);
}

static int make_as_nobody(void)
{
	struct cgroup g = CGROUP_INIT;
	struct err e = ERR_INIT;

	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 99;
	if (cgroup_make("nobodysgroup", &limits, &g, &e) < 0)
		return 1;
	for (enum cgroup_part p = 0; p < CGROUP_IO; p++)
		if (g.has[p] || g.dir[p] >= 0 || !g.why[p][0])
			return 2;
	return cgroup_remove("nobodysgroup", &e) < 0 || any_left("nobodysgroup") ? 3 : 0;
}

/* hutch/ exists by now, and user `nobody` still cannot create groups in it. */
TEST_WITH(nobody_gets_reasons, setup, teardown)
{
	_cleanup_proc_ struct proc p = PROC_INIT;

	if (geteuid() != 0)
		skip();
	if (proc_fork(&p) == 1)
		_exit(make_as_nobody());
	assert_int_equal(result(&p), 0);
}

static int make_and_remove(const char *id)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct err e = ERR_INIT, e2 = ERR_INIT;
	int r = cgroup_make(id, &limits, &g, &e), k = cgroup_remove(id, &e2);

	if (r < 0)
		assert_int_equal(r, e.num);
	if (k < 0)
		assert_int_equal(k, e2.num);
	/* Either an error, or nothing is left. A fault happens once, so the retry works. */
	fail_off();
	if (k == 0)
		assert_false(any_left(id));
	assert_return_code(cgroup_remove(id, &e2), 0);
	assert_false(any_left(id));
	return r < 0 ? r : k;
}

TEST_WITH(faults, setup, teardown)
{
	char id[32];

	if (!usable(&live.g))
		skip();
	new_id(id);
	FAIL_SWEEP(make_and_remove(id));
}

/* A v2 group with any controllers: cgroup.kill, and one entry for all parts. */
TEST_WITH(v2_group, setup, teardown)
{
	_cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), top = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct cgroup_layout l;
	char line[32];
	int fd;

	assert_return_code(cgroup_layout_read(root, &l), 0);
	top = open(l.v2, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top < 0 || mkdirat(top, live.id, 0755) < 0)
		skip();
	cgroup_close(&live.g);
	fd = openat(top, live.id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_return_code(fd, 0);
	live.g = (struct cgroup){ .dir = { fd, fd, fd, fd, fd },
				  .v2 = { true, true, true, true, true } };
	enter_and(&p, wait_for_signal);
	while (fd_read_line(fd, "cgroup.procs", line, sizeof(line)) == 0 && !line[0])
		(void)usleep(1000);
	assert_int_equal(strtol(line, NULL, 10), p.pid);
	assert_return_code(cgroup_freeze(&live.g, clock_mono() + 20 * NSEC_PER_SEC), 0);
	assert_int_equal(cgroup_keyed(fd, "cgroup.events", "frozen"), 1);
	assert_return_code(cgroup_thaw(&live.g, clock_mono() + 20 * NSEC_PER_SEC), 0);
	assert_return_code(cgroup_freeze(&live.g, clock_mono() + 20 * NSEC_PER_SEC), 0);
	assert_return_code(cgroup_kill(&live.g, clock_mono() + 5 * NSEC_PER_SEC), 0);
	assert_int_equal(result(&p), 128 + SIGKILL);
	assert_return_code(fd_read_line(fd, "cgroup.events", line, sizeof(line)), 0);
	assert_string_equal(line, "populated 0");
	assert_return_code(unlinkat(top, live.id, AT_REMOVEDIR), 0);
}
