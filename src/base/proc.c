/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proc.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"

enum {
	N_STDIO = 3,
	N_FDS = N_STDIO + PROC_MORE_MAX,
};

#define SYSTEM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/*
 * Plans the descriptors of the child. An earlier dup2() could overwrite a source below the last
 * target, so such a source is duplicated above it first; own[] holds the duplicates, which the
 * caller closes.
 */
static int plan_fds(const struct proc_spec *spec, posix_spawn_file_actions_t *fa, int own[N_FDS])
{
	int want[N_FDS] = { spec->in, spec->out, spec->err };
	const int n = N_STDIO + (int)spec->n_more;

	assert(spec->n_more <= PROC_MORE_MAX);
	for (size_t i = 0; i < spec->n_more; i++)
		want[N_STDIO + i] = spec->more[i];
	for (int i = 0; i < n; i++) {
		int fd = want[i], r;

		assert(fd >= 0 || fd == -EBADF);
		if (fd >= 0 && fd < n) {
			fd = own[i] = fcntl(fd, F_DUPFD_CLOEXEC, n);
			if (fd < 0)
				return -errno;
		}
		r = fd < 0 ? posix_spawn_file_actions_addopen(fa, i, "/dev/null", O_RDWR, 0)
			   : posix_spawn_file_actions_adddup2(fa, fd, i);
		if (r != 0)
			return -r;
	}
	return -posix_spawn_file_actions_addclosefrom_np(fa, n);
}

static int plan_attr(const struct proc_spec *spec, posix_spawnattr_t *attr)
{
	int flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
	sigset_t all, none;
	int r;

	if (spec->own_session)
		flags |= POSIX_SPAWN_SETSID;
	(void)sigfillset(&all);
	(void)sigemptyset(&none);
	r = posix_spawnattr_setflags(attr, (short)flags);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(attr, &all);
	if (r == 0)
		r = posix_spawnattr_setsigmask(attr, &none);
	return -r;
}

static int spawn(const struct proc_spec *spec, posix_spawn_file_actions_t *fa,
		 posix_spawnattr_t *attr, pid_t *ret_pid)
{
	static char *const no_env[] = { NULL };
	char *const *env = spec->env ? (char *const *)spec->env : no_env;
	int own[N_FDS], r;

	for (size_t i = 0; i < N_FDS; i++)
		own[i] = -EBADF;
	r = plan_fds(spec, fa, own);
	if (r == 0)
		r = plan_attr(spec, attr);
	if (r == 0)
		r = -posix_spawn(ret_pid, spec->path, fa, attr, (char *const *)spec->argv, env);
	for (size_t i = 0; i < N_FDS; i++)
		(void)fd_close(own[i]);
	return r;
}

static int spawn_planned(const struct proc_spec *spec, pid_t *ret_pid)
{
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	int r = -posix_spawn_file_actions_init(&fa);

	if (r < 0)
		return r;
	r = -posix_spawnattr_init(&attr);
	if (r == 0) {
		r = spawn(spec, &fa, &attr, ret_pid);
		(void)posix_spawnattr_destroy(&attr);
	}
	(void)posix_spawn_file_actions_destroy(&fa);
	return r;
}

/* The number is safe only here: the child cannot have been reaped yet. */
static int hold(pid_t pid, struct proc *ret)
{
	long fd = syscall(SYS_pidfd_open, pid, 0);
	siginfo_t info;
	int r = -errno;

	if (fd >= 0) {
		*ret = (struct proc){ .pid = pid, .pidfd = (int)fd };
		return 0;
	}
	(void)kill(pid, SIGKILL);
	(void)RETRY_EINTR(waitid(P_PID, (id_t)pid, &info, WEXITED));
	return r;
}

int proc_spawn(const struct proc_spec *spec, struct proc *ret, struct err *e)
{
	pid_t pid;
	int r;

	assert(spec->path[0] == '/' && spec->argv[0]);
	r = spawn_planned(spec, &pid);
	if (r == 0)
		r = hold(pid, ret);
	if (r < 0)
		return err_set(e, r, "cannot run '%s': %s", spec->path, strerror(-r));
	return 0;
}

int proc_fork(struct proc *ret)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0)
		return 1;
	return hold(pid, ret);
}

/* Moving a process after fork costs milliseconds and leaves it briefly in the wrong group.
 * Bypassing the C library is safe because there is only one thread. */
int proc_fork_into(int group, struct proc *ret)
{
	struct clone_args args = { .flags = CLONE_INTO_CGROUP,
				   .exit_signal = SIGCHLD,
				   .cgroup = (uint64_t)group };
	long pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid < 0)
		return -errno;
	if (pid == 0)
		return 1;
	return hold((pid_t)pid, ret);
}

int proc_adopt(pid_t pid, struct proc *ret)
{
	_cleanup_close_ int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	siginfo_t info;

	if (fd < 0 || waitid(P_PIDFD, (id_t)fd, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
		return -errno;
	*ret = (struct proc){ .pid = pid, .pidfd = TAKE_FD(fd) };
	return 0;
}

int proc_signal(const struct proc *p, int sig)
{
	if (p->pid <= 0)
		return -ESRCH;
	return syscall(SYS_pidfd_send_signal, p->pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

/* poll(2) with an absolute deadline: 0 once a descriptor is ready, -ETIME, or -errno. */
static int poll_until(struct pollfd *fds, nfds_t n, uint64_t deadline)
{
	for (;;) {
		uint64_t now = clock_mono(), left = deadline > now ? deadline - now : 0;
		/* Round up, or the last millisecond would be spent spinning. */
		uint64_t ms = left / NSEC_PER_MSEC + (left % NSEC_PER_MSEC > 0);
		int k = poll(fds, n, deadline == UINT64_MAX ? -1 : (int)MIN(ms, (uint64_t)INT_MAX));

		if (k > 0)
			return 0;
		if (k < 0 && errno != EINTR)
			return -errno;
		if (k == 0 && left == 0)
			return -ETIME;
	}
}

int proc_wait(struct proc *p, uint64_t deadline, siginfo_t *ret_info)
{
	struct pollfd pfd = { .fd = p->pidfd, .events = POLLIN };
	siginfo_t info = { 0 };
	int r;

	if (p->pid <= 0)
		return -ECHILD;
	r = poll_until(&pfd, 1, deadline);
	if (r < 0)
		return r;
	if (RETRY_EINTR(waitid(P_PIDFD, (id_t)p->pidfd, &info, WEXITED)) < 0)
		return -errno;
	p->pid = 0;
	*ret_info = info;
	return 0;
}

void proc_done(struct proc *p)
{
	if (p->pid > 0) {
		bool killed = proc_signal(p, SIGKILL) == 0;
		siginfo_t info;

		(void)RETRY_EINTR(
			waitid(P_PIDFD, (id_t)p->pidfd, &info, WEXITED | (killed ? 0 : WNOHANG)));
	}
	(void)fd_close(p->pidfd);
	*p = (struct proc)PROC_INIT;
}

static int gather(const struct proc *p, int fd, uint64_t deadline, struct buf *out)
{
	struct pollfd fds[] = { { .fd = p->pidfd, .events = POLLIN },
				{ .fd = fd, .events = POLLIN } };

	for (;;) {
		int r = poll_until(fds, ARRAY_SIZE(fds), deadline);
		bool ended = fds[0].revents != 0;

		/*
		 * Checked before reading: all output of an ended process is in the pipe by now.
		 * Processes that it left behind may keep the pipe open.
		 */
		if (r == 0 && fds[1].fd >= 0)
			r = fd_read_all(fd, out);
		if (r == 0)
			fds[1].fd = -EBADF; /* end of file, but the process may still run */
		if (r < 0 && r != -EAGAIN)
			return r;
		if (ended)
			return 0;
	}
}

static int output_pipe(int *ret_read, int *ret_write)
{
	int fds[2];

	if (fd_pipe(0, &fds[0], &fds[1]) < 0)
		return -errno;
	/* Only our end: the child expects its output to block. */
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0) {
		int r = -errno;

		(void)fd_close(fds[0]);
		(void)fd_close(fds[1]);
		return r;
	}
	*ret_read = fds[0];
	*ret_write = fds[1];
	return 0;
}

static int capture_error(int r, const char *path, const struct buf *out, struct err *e)
{
	if (r == -ETIME)
		return err_set(e, r, "'%s' did not end in time and was killed", path);
	if (r == -EFBIG)
		return err_set(e, r, "'%s' wrote more than %zu bytes and was killed", path,
			       out->max);
	return err_set(e, r, "cannot run '%s': %s", path, strerror(-r));
}

int proc_capture(const char *path, const char *const *argv, bool with_stderr, uint64_t deadline,
		 struct buf *out, int *ret_status, struct err *e)
{
	static const char *const env[] = { "PATH=" SYSTEM_PATH, "LC_ALL=C.UTF-8", NULL };
	_cleanup_close_ int from = -EBADF, to = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	siginfo_t info = { 0 };
	int r = output_pipe(&from, &to);

	if (r < 0)
		return capture_error(r, path, out, e);
	r = proc_spawn(&(struct proc_spec){ .path = path,
					    .argv = argv,
					    .env = env,
					    .in = -EBADF,
					    .out = to,
					    .err = with_stderr ? to : -EBADF,
					    .own_session = true },
		       &p, e);
	if (r < 0)
		return r;
	to = fd_close(to); /* otherwise we never see end of file */
	r = gather(&p, from, deadline, out);
	/* The child leads its group and is not reaped, so the number is not reused. */
	if (r < 0)
		(void)kill(-p.pid, SIGKILL);
	else
		r = proc_wait(&p, UINT64_MAX, &info);
	if (r < 0)
		return capture_error(r, path, out, e);
	*ret_status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
	return 0;
}

void proc_reset_signals(void)
{
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		(void)signal(sig, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

int proc_own_directory(char ret[static PATH_MAX])
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n < 0)
		return -errno;
	path[n] = '\0';
	return path_parent(path, ret, PATH_MAX);
}

bool proc_find_in(const char *dir, const char *below, const char *name, char ret[static PATH_MAX])
{
	char path[PATH_MAX];
	int k = snprintf(path, sizeof(path), "%s/%s/%s", dir, below, name);

	return k > 0 && (size_t)k < sizeof(path) && realpath(path, ret) &&
	       faccessat(AT_FDCWD, ret, X_OK, AT_EACCESS) == 0;
}

static bool is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
	       faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0;
}

int proc_find(const char *name, char *out, size_t n)
{
	char path[PATH_MAX];

	if (name[0] == '\0' || strchr(name, '/'))
		return -ENOENT;
	for (const char *dir = SYSTEM_PATH; *dir; dir += *dir == ':') {
		int len = (int)strcspn(dir, ":");
		int k = snprintf(path, sizeof(path), "%.*s/%s", len, dir, name);

		dir += len;
		if (k < 0 || (size_t)k >= sizeof(path))
			return -ENAMETOOLONG;
		if (!is_program(path))
			continue;
		if ((size_t)k >= n)
			return -ENAMETOOLONG;
		memcpy(out, path, (size_t)k + 1);
		return 0;
	}
	return -ENOENT;
}
