/* SPDX-License-Identifier: Apache-2.0 */
/* The program is its own child: with an argument it reports on its process. */
#include "unit.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "fail.h"

enum {
	FD_SCAN = 1024
};

static char self[PATH_MAX];

static int report_fds(void)
{
	for (int fd = 0; fd < FD_SCAN; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("%d ", fd);
	return 0;
}

static int report_signals(void)
{
	int blocked = 0, ignored = 0;
	struct sigaction sa;
	sigset_t mask;

	(void)pthread_sigmask(SIG_BLOCK, NULL, &mask);
	for (int s = 1; s < NSIG; s++) {
		blocked += sigismember(&mask, s) == 1;
		ignored += sigaction(s, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN;
	}
	printf("blocked %d ignored %d", blocked, ignored);
	return 0;
}

static int report_session(void)
{
	printf("%s", getsid(0) == getpid() && getpgrp() == getpid() ? "own" : "inherited");
	return 0;
}

static int report(const char *what)
{
	int r = str_eq(what, "fds")	  ? report_fds()
		: str_eq(what, "signals") ? report_signals()
		: str_eq(what, "session") ? report_session()
					  : 1;

	(void)fflush(stdout);
	return r;
}

/* Spawns with stdout to a pipe, checks that it exits 0, and compares its output. */
static void assert_says(struct proc_spec *spec, const char *want)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	struct err e = ERR_INIT;
	siginfo_t info;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	spec->out = fds[1];
	assert_int_equal(proc_spawn(spec, &p, &e), 0);
	(void)fd_close(fds[1]);
	assert_int_equal(fd_read_all(fds[0], &b), 0);
	(void)fd_close(fds[0]);
	assert_int_equal(proc_wait(&p, UINT64_MAX, &info), 0);
	assert_int_equal(info.si_code, CLD_EXITED);
	assert_int_equal(info.si_status, 0);
	assert_string_equal(buf_text(&b), want);
}

static struct proc_spec spec_of(const char *path, const char *const *argv)
{
	return (struct proc_spec){
		.path = path, .argv = argv, .in = -EBADF, .out = -EBADF, .err = -EBADF
	};
}

static uint64_t in_ms(uint64_t ms)
{
	return clock_mono() + ms * NSEC_PER_MSEC;
}

/* proc_capture() of a shell script; a minute is as good as no timeout here. */
static int script(const char *text, bool with_stderr, struct buf *out, int *ret_status)
{
	const char *const argv[] = { "sh", "-c", text, NULL };
	struct err e = ERR_INIT;

	return proc_capture("/bin/sh", argv, with_stderr, in_ms(60000), out, ret_status, &e);
}

static void start_sleep(struct proc *p)
{
	const char *const argv[] = { "sleep", "100", NULL };
	struct proc_spec spec = spec_of("/bin/sleep", argv);
	struct err e = ERR_INIT;

	assert_int_equal(proc_spawn(&spec, p, &e), 0);
}

/* True once `pid` has ended; an unreaped zombie counts as ended. */
static bool goes_away(pid_t pid)
{
	for (int i = 0; i < 6000; i++) {
		char path[64], line[2048];
		int r;

		(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
		r = fd_read_line(AT_FDCWD, path, line, sizeof(line));
		if (r == -ENOENT || r == -ESRCH || (r == 0 && strstr(line, ") Z ")))
			return true;
		assert_int_equal(r, 0);
		(void)usleep(10000);
	}
	return false;
}

TEST(the_child_has_three_descriptors)
{
	const char *const argv[] = { "test", "fds", NULL };
	struct proc_spec spec = spec_of(self, argv);

	/* Without CLOEXEC, as from a careless library. */
	assert_int_equal(dup2(STDERR_FILENO, 50), 50);
	assert_int_equal(dup2(STDERR_FILENO, 777), 777);
	assert_says(&spec, "0 1 2 ");
	(void)fd_close(50);
	(void)fd_close(777);
}

TEST(the_child_has_default_signals)
{
	const char *const argv[] = { "test", "signals", NULL };
	struct proc_spec spec = spec_of(self, argv);
	sigset_t set, was;

	(void)sigfillset(&set);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGUSR1, SIG_IGN);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, &was), 0);
	assert_says(&spec, "blocked 0 ignored 0");
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &was, NULL), 0);
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGUSR1, SIG_DFL);
}

TEST(sessions)
{
	const char *const argv[] = { "test", "session", NULL };
	struct proc_spec spec = spec_of(self, argv);

	assert_says(&spec, "inherited");
	spec.own_session = true;
	assert_says(&spec, "own");
}

TEST(environments)
{
	const char *const argv[] = { "env", NULL }, *const env[] = { "A=1", "B=zwei", NULL };
	struct proc_spec spec = spec_of("/usr/bin/env", argv);

	assert_says(&spec, "");
	spec.env = env;
	assert_says(&spec, "A=1\nB=zwei\n");
}

TEST(stdin_is_empty_and_stdout_is_nowhere)
{
	const char *const argv[] = { "sh", "-c",
				     "read x && exit 1; echo lost >&2 || exit 2; "
				     "readlink /proc/$$/fd/0 /proc/$$/fd/2",
				     NULL };
	struct proc_spec spec = spec_of("/bin/sh", argv);

	assert_says(&spec, "/dev/null\n/dev/null\n");
}

TEST(input_is_passed)
{
	const char *const argv[] = { "cat", NULL };
	struct proc_spec spec = spec_of("/bin/cat", argv);
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(write(fds[1], "hello", 5), 5);
	(void)fd_close(fds[1]);
	spec.in = fds[0];
	assert_says(&spec, "hello");
	(void)fd_close(fds[0]);
}

/* stdout and stderr of this program are the two pipes for a while, and are swapped in the child. */
TEST(descriptors_may_change_places)
{
	const char *const argv[] = { "sh", "-c", "echo out; echo err >&2", NULL };
	struct proc_spec spec = spec_of("/bin/sh", argv);
	_cleanup_proc_ struct proc p = PROC_INIT;
	_cleanup_buf_ struct buf one = BUF_INIT(100), two = BUF_INIT(100);
	int a[2], b[2], saved[2], r;
	struct err e = ERR_INIT;

	(void)fflush(stdout);
	assert_int_equal(pipe2(a, O_CLOEXEC) | pipe2(b, O_CLOEXEC), 0);
	saved[0] = fcntl(1, F_DUPFD_CLOEXEC, 3);
	saved[1] = fcntl(2, F_DUPFD_CLOEXEC, 3);
	(void)dup2(a[1], 1);
	(void)dup2(b[1], 2);
	spec.out = 2;
	spec.err = 1;
	r = proc_spawn(&spec, &p, &e);
	(void)dup2(saved[0], 1);
	(void)dup2(saved[1], 2);
	for (int i = 0; i < 2; i++)
		(void)fd_close(saved[i]);
	(void)fd_close(a[1]);
	(void)fd_close(b[1]);
	assert_int_equal(r, 0);
	assert_int_equal(fd_read_all(a[0], &one), 0);
	assert_int_equal(fd_read_all(b[0], &two), 0);
	assert_string_equal(buf_text(&one), "err\n");
	assert_string_equal(buf_text(&two), "out\n");
	(void)fd_close(a[0]);
	(void)fd_close(b[0]);
}

TEST(one_descriptor_for_all)
{
	const char *const argv[] = { "sh", "-c", "echo a; echo b >&2", NULL };
	struct proc_spec spec = spec_of("/bin/sh", argv);
	_cleanup_proc_ struct proc p = PROC_INIT;
	_cleanup_buf_ struct buf b = BUF_INIT(100);
	struct err e = ERR_INIT;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	spec.out = spec.err = fds[1];
	assert_int_equal(proc_spawn(&spec, &p, &e), 0);
	(void)fd_close(fds[1]);
	assert_int_equal(fd_read_all(fds[0], &b), 0);
	assert_string_equal(buf_text(&b), "a\nb\n");
	(void)fd_close(fds[0]);
}

TEST(exec_failure_is_told_here)
{
	const char *const argv[] = { "x", NULL };
	struct proc_spec none = spec_of("/nonexistent/x", argv),
			 text = spec_of("/etc/passwd", argv), dir = spec_of("/etc", argv);
	struct proc p = PROC_INIT;
	struct err e = ERR_INIT;
	size_t fds = fail_count_fds();

	assert_int_equal(proc_spawn(&none, &p, &e), -ENOENT);
	assert_string_equal(e.msg, "cannot run '/nonexistent/x': No such file or directory");
	assert_int_equal(proc_spawn(&text, &p, &e), -EACCES);
	assert_int_equal(proc_spawn(&dir, &p, &e), -EACCES);
	assert_int_equal(p.pid, 0); /* untouched */
	none = spec_of("/bin/true", argv);
	none.out = 900; /* not open */
	assert_int_equal(proc_spawn(&none, &p, &e), -EBADF);
	assert_int_equal(fail_count_fds(), fds);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie either */
	assert_int_equal(errno, ECHILD);
}

TEST(a_child_without_pidfd_is_not_left_running)
{
	struct proc p = PROC_INIT;
	const char *const argv[] = { "sleep", "100", NULL };
	struct proc_spec spec = spec_of("/bin/sleep", argv);
	struct rlimit was, tight;
	struct err e = ERR_INIT;
	int r, low = fcntl(0, F_DUPFD_CLOEXEC, 0), probe = fcntl(0, F_DUPFD_CLOEXEC, 0);

	/*
	 * No room for the pidfd; the child needs none. `low` stays open, because glibc needs a
	 * limit above 3, from which it closes.
	 */
	(void)fd_close(probe);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	tight = (struct rlimit){ .rlim_cur = (rlim_t)probe, .rlim_max = was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	r = proc_spawn(&spec, &p, &e);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	(void)fd_close(low);
	assert_int_equal(r, -EMFILE);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

TEST(waiting_ends_at_the_deadline)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	uint64_t start = clock_mono();
	siginfo_t info = { .si_pid = 77 };

	start_sleep(&p);
	assert_int_equal(fcntl(p.pidfd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(proc_wait(&p, 0, &info), -ETIME);
	assert_int_equal(proc_wait(&p, in_ms(20), &info), -ETIME);
	assert_true(clock_mono() >= start + 20 * NSEC_PER_MSEC);
	assert_int_equal(info.si_pid, 77);
	assert_int_equal(proc_signal(&p, 0), 0); /* still alive */
}

TEST(signals_go_through_the_pidfd)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	siginfo_t info;
	pid_t pid;

	start_sleep(&p);
	pid = p.pid;
	assert_int_equal(proc_signal(&p, SIGTERM), 0);
	assert_int_equal(proc_wait(&p, in_ms(60000), &info), 0);
	assert_int_equal(info.si_code, CLD_KILLED);
	assert_int_equal(info.si_status, SIGTERM);
	assert_int_equal(info.si_pid, pid);
	assert_int_equal(p.pid, 0);
	assert_true(p.pidfd >= 0); /* it may be in a loop */
	assert_int_equal(proc_signal(&p, SIGTERM), -ESRCH);
	assert_int_equal(proc_wait(&p, UINT64_MAX, &info), -ECHILD);
}

TEST(signals_that_do_not_exist)
{
	_cleanup_proc_ struct proc p = PROC_INIT;

	assert_int_equal(proc_signal(&p, SIGTERM), -ESRCH);
	start_sleep(&p);
	assert_int_equal(proc_signal(&p, 1000), -EINVAL);
}

TEST(a_child_that_others_reaped)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	siginfo_t info;

	start_sleep(&p);
	assert_int_equal(proc_signal(&p, SIGKILL), 0);
	assert_int_equal(waitpid(p.pid, NULL, 0), p.pid);
	assert_int_equal(proc_signal(&p, SIGKILL), -ESRCH);
	assert_int_equal(proc_wait(&p, UINT64_MAX, &info), -ECHILD);
}

/* The parent exits as soon as the child is ready; the pipe ends when the child is killed. */
TEST(a_child_dies_with_its_parent)
{
	_cleanup_proc_ struct proc parent = PROC_INIT;
	_cleanup_close_ int from = -EBADF;
	siginfo_t info;
	int fds[2], r;
	char byte;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	from = fds[0];
	r = proc_fork(&parent);
	if (r > 0) {
		const pid_t pid = getpid();

		if (fork() == 0) {
			byte = proc_die_with(pid + 1, SIGKILL) == -ESRCH &&
			       proc_die_with(pid, SIGKILL) == 0;
			(void)!write(fds[1], &byte, 1);
			for (;;)
				(void)pause();
		}
		(void)!read(from, &byte, 1);
		_exit(byte == 1 ? 0 : 1);
	}
	assert_int_equal(r, 0);
	(void)fd_close(fds[1]);
	assert_int_equal(proc_wait(&parent, UINT64_MAX, &info), 0);
	assert_int_equal(info.si_status, 0);
	assert_int_equal(read(from, &byte, 1), 0);
}

TEST(done_kills_and_reaps)
{
	struct proc p = PROC_INIT;
	pid_t pid;

	proc_done(&p);
	start_sleep(&p);
	pid = p.pid;
	proc_done(&p);
	assert_int_equal(p.pid, 0);
	assert_int_equal(p.pidfd, -EBADF);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	proc_done(&p);
}

TEST(done_does_not_wait_for_what_it_cannot_kill)
{
	struct proc p = PROC_INIT;
	pid_t pid;

	start_sleep(&p);
	pid = p.pid;
	fail_arm(1, EPERM);
	proc_done(&p); /* would take 100 seconds */
	assert_true(fail_reached());
	fail_off();
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

TEST(capture_gathers)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100), both = BUF_INIT(100);
	int status = -1;

	assert_int_equal(script("echo out; echo err >&2; exit 3", false, &b, &status), 0);
	assert_string_equal(buf_text(&b), "out\n");
	assert_int_equal(status, 3);
	assert_int_equal(script("echo out; echo err >&2", true, &both, &status), 0);
	assert_string_equal(buf_text(&both), "out\nerr\n");
	assert_int_equal(status, 0);
	assert_int_equal(script("kill -9 $$", true, &both, &status), 0);
	assert_int_equal(status, 128 + SIGKILL);
}

TEST(capture_has_a_fixed_environment)
{
	const char *const argv[] = { "env", NULL };
	_cleanup_buf_ struct buf b = BUF_INIT(1000);
	struct err e = ERR_INIT;
	int status;

	assert_int_equal(proc_capture("/usr/bin/env", argv, false, UINT64_MAX, &b, &status, &e), 0);
	assert_string_equal(buf_text(&b),
			    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
			    "LC_ALL=C.UTF-8\n");
}

TEST(capture_of_much)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1000000);
	int status = -1;

	/* More than a pipe holds, and exactly the maximum. */
	assert_int_equal(script("head -c 1000000 /dev/zero", false, &b, &status), 0);
	assert_int_equal(status, 0);
	assert_int_equal(b.len, 1000000);
}

TEST(capture_of_too_much)
{
	const char *const argv[] = { "cat", "/dev/zero", NULL };
	_cleanup_buf_ struct buf b = BUF_INIT(100000);
	struct err e = ERR_INIT;
	int status = -1;

	assert_int_equal(proc_capture("/bin/cat", argv, false, in_ms(60000), &b, &status, &e),
			 -EFBIG);
	assert_string_equal(e.msg, "'/bin/cat' wrote more than 100000 bytes and was killed");
	assert_int_equal(status, -1);
	buf_reset(&b);
	assert_int_equal(script("head -c 100001 /dev/zero", false, &b, &status), -EFBIG);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* reaped */
}

TEST(capture_kills_all_at_the_deadline)
{
	const char *const argv[] = { "sh", "-c", "sleep 100 & echo $!; wait", NULL };
	_cleanup_buf_ struct buf b = BUF_INIT(100);
	uint64_t pid, start = clock_mono();
	struct err e = ERR_INIT;
	int status = -1;

	assert_int_equal(proc_capture("/bin/sh", argv, false, in_ms(300), &b, &status, &e), -ETIME);
	assert_string_equal(e.msg, "'/bin/sh' did not end in time and was killed");
	assert_true(clock_mono() >= start + 300 * NSEC_PER_MSEC);
	assert_true(clock_mono() < start + 30 * NSEC_PER_SEC);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(str_to_u64(buf_text(&b), b.len - 1, INT_MAX, &pid), 0);
	assert_true(goes_away((pid_t)pid)); /* the grandchild too */
}

TEST(capture_does_not_wait_for_daemons)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100);
	uint64_t pid, start = clock_mono();
	int status = -1;

	assert_int_equal(script("sleep 100 & echo $!", true, &b, &status), 0);
	assert_true(clock_mono() < start + 30 * NSEC_PER_SEC);
	assert_int_equal(status, 0);
	assert_int_equal(str_to_u64(buf_text(&b), b.len - 1, INT_MAX, &pid), 0);
	assert_int_equal(kill((pid_t)pid, SIGKILL), 0); /* which is still running */
}

TEST(capture_waits_for_the_silent)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100);
	clock_t before = clock();
	int status = -1;

	assert_int_equal(script("echo x; exec >&-; sleep 0.5; exit 5", false, &b, &status), 0);
	assert_int_equal(status, 5);
	assert_string_equal(buf_text(&b), "x\n");
	/* It sleeps, and does not poll the closed pipe. */
	assert_true(clock() - before < CLOCKS_PER_SEC / 4);
}

TEST(capture_of_nothing)
{
	const char *const argv[] = { "x", NULL };
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	struct err e = ERR_INIT;
	int status = -1;

	assert_int_equal(script("true", true, &b, &status), 0);
	assert_int_equal(status, 0);
	assert_int_equal(proc_capture("/none", argv, true, in_ms(9), &b, &status, &e), -ENOENT);
	assert_string_equal(e.msg, "cannot run '/none': No such file or directory");
}

TEST(programs_are_found)
{
	char out[PATH_MAX], name[2 * PATH_MAX];
	struct stat st;

	assert_int_equal(setenv("PATH", "/nonexistent", 1), 0); /* not asked */
	assert_int_equal(proc_find("sh", out, sizeof(out)), 0);
	assert_int_equal(out[0], '/');
	assert_true(str_has_suffix(out, "/sh"));
	assert_int_equal(stat(out, &st), 0);
	assert_int_equal(proc_find("no-such-program", out, sizeof(out)), -ENOENT);
	assert_int_equal(proc_find("", out, sizeof(out)), -ENOENT);
	assert_int_equal(proc_find(".", out, sizeof(out)), -ENOENT); /* a directory */
	assert_int_equal(proc_find("../bin/sh", out, sizeof(out)), -ENOENT);
	assert_int_equal(proc_find("/bin/sh", out, sizeof(out)), -ENOENT);
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(proc_find(name, out, sizeof(out)), -ENAMETOOLONG);
}

TEST(a_small_buffer_is_told)
{
	char out[PATH_MAX], small[PATH_MAX] = "old";

	assert_int_equal(proc_find("sh", out, sizeof(out)), 0);
	assert_int_equal(proc_find("sh", small, strlen(out)), -ENAMETOOLONG);
	assert_int_equal(proc_find("sh", small, 0), -ENAMETOOLONG);
	assert_string_equal(small, "old");
	assert_int_equal(proc_find("sh", small, strlen(out) + 1), 0);
	assert_string_equal(small, out);
}

static int spawn_and_wait(int in)
{
	const char *const argv[] = { "true", NULL };
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct proc_spec spec = spec_of("/bin/true", argv);
	struct err e = ERR_INIT;
	siginfo_t info;
	int r;

	spec.in = in;
	spec.out = STDOUT_FILENO; /* copied upwards */
	r = proc_spawn(&spec, &p, &e);
	assert_int_equal(r, e.num);
	return r < 0 ? r : proc_wait(&p, UINT64_MAX, &info);
}

static int capture_once(void)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100);
	int status = -1, r = script("echo x", true, &b, &status);

	if (r == 0)
		assert_string_equal(buf_text(&b), "x\n");
	assert_int_equal(status, r == 0 ? 0 : -1);
	return r;
}

TEST(sweeps)
{
	_cleanup_close_ int in = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	(void)fflush(stdout);
	FAIL_SWEEP(spawn_and_wait(in));
	FAIL_SWEEP(capture_once());
	while (waitpid(-1, NULL, 0) > 0) /* not reaped because of the fault */
		;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return report(argv[1]);
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 1;
	return unit_run(NULL, NULL);
}
