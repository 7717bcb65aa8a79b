/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linker turns each call of x into __wrap_x, and __real_x into x. FORTIFY and 64-bit file
 * offsets rename some calls; these are wrapped too. A name added here must be added to fail_wrapped
 * in meson.build.
 */
#include "fail.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "unit.h"

enum kind {
	MEMORY, /* always fails with ENOMEM */
	PLAIN,
	SLOW, /* may be interrupted */
};

static struct {
	unsigned int left; /* calls until the fault; 0: off */
	int error;
	bool reached;
} state;

void fail_arm(unsigned int n, int error)
{
	state.left = n;
	state.error = error;
	state.reached = false;
}

bool fail_reached(void)
{
	return state.reached;
}

void fail_off(void)
{
	state.left = 0;
}

/* Returns true, with errno set, if this call must fail. */
static bool strikes(enum kind kind)
{
	if (state.left == 0 || (state.error == EINTR && kind != SLOW))
		return false;
	if (--state.left > 0)
		return false;
	state.reached = true;
	errno = kind == MEMORY ? ENOMEM : state.error;
	return true;
}

/* `bad` is what the call returns when it fails: -1, NULL, or errno itself. */
#define WRAP(kind, type, name, params, args, bad)                  \
	type __real_##name params;                                 \
	type __wrap_##name params;                                 \
	type __wrap_##name params                                  \
	{                                                          \
		return strikes(kind) ? (bad) : __real_##name args; \
	}                                                          \
	struct fail_semicolon

WRAP(MEMORY, void *, malloc, (size_t n), (n), NULL);
WRAP(MEMORY, void *, calloc, (size_t n, size_t size), (n, size), NULL);
WRAP(MEMORY, void *, realloc, (void *p, size_t n), (p, n), NULL);
WRAP(MEMORY, char *, strdup, (const char *s), (s), NULL);
WRAP(MEMORY, char *, strndup, (const char *s, size_t n), (s, n), NULL);

WRAP(SLOW, ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), -1);
WRAP(SLOW, ssize_t, __read_chk, (int fd, void *p, size_t n, size_t size), (fd, p, n, size), -1);
WRAP(SLOW, ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), -1);
WRAP(SLOW, ssize_t, pread64, (int fd, void *p, size_t n, off_t at), (fd, p, n, at), -1);
WRAP(SLOW, ssize_t, __pread64_chk, (int fd, void *p, size_t n, off_t at, size_t size),
     (fd, p, n, at, size), -1);
WRAP(SLOW, ssize_t, pwrite64, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at), -1);
WRAP(SLOW, ssize_t, pwritev64, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at),
     -1);
WRAP(SLOW, int, fsync, (int fd), (fd), -1);
WRAP(SLOW, int, __openat_2, (int fd, const char *path, int flags), (fd, path, flags), -1);
WRAP(SLOW, int, __openat64_2, (int fd, const char *path, int flags), (fd, path, flags), -1);
WRAP(PLAIN, int, fstat, (int fd, struct stat *st), (fd, st), -1);
WRAP(PLAIN, int, fstat64, (int fd, struct stat *st), (fd, st), -1);
WRAP(PLAIN, int, fchmod, (int fd, mode_t mode), (fd, mode), -1);
WRAP(PLAIN, int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), -1);
WRAP(PLAIN, int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags), -1);
WRAP(PLAIN, int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode), -1);
WRAP(PLAIN, int, pipe2, (int *fds, int flags), (fds, flags), -1);
WRAP(SLOW, ssize_t, getrandom, (void *p, size_t n, unsigned int flags), (p, n, flags), -1);

WRAP(PLAIN, int, epoll_create1, (int flags), (flags), -1);
WRAP(PLAIN, int, epoll_ctl, (int ep, int op, int fd, struct epoll_event *ev), (ep, op, fd, ev), -1);
WRAP(SLOW, int, epoll_wait, (int ep, struct epoll_event *ev, int n, int ms), (ep, ev, n, ms), -1);
WRAP(PLAIN, int, timerfd_create, (int clock, int flags), (clock, flags), -1);
WRAP(PLAIN, int, timerfd_settime,
     (int fd, int flags, const struct itimerspec *new, struct itimerspec *old),
     (fd, flags, new, old), -1);
WRAP(PLAIN, int, signalfd, (int fd, const sigset_t *set, int flags), (fd, set, flags), -1);
WRAP(PLAIN, int, sigprocmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old), -1);
WRAP(PLAIN, int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old),
     errno);
WRAP(SLOW, int, poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms), -1);
WRAP(SLOW, int, __poll_chk, (struct pollfd * fds, nfds_t n, int ms, size_t size),
     (fds, n, ms, size), -1);
WRAP(SLOW, int, waitid, (idtype_t type, id_t id, siginfo_t *info, int options),
     (type, id, info, options), -1);

/* posix_spawn and its relatives return the error. */
WRAP(PLAIN, int, posix_spawn,
     (pid_t * pid, const char *path, const posix_spawn_file_actions_t *fa,
      const posix_spawnattr_t *attr, char *const *argv, char *const *env),
     (pid, path, fa, attr, argv, env), errno);
WRAP(PLAIN, int, posix_spawn_file_actions_init, (posix_spawn_file_actions_t * fa), (fa), errno);
WRAP(PLAIN, int, posix_spawn_file_actions_adddup2,
     (posix_spawn_file_actions_t * fa, int from, int to), (fa, from, to), errno);
WRAP(PLAIN, int, posix_spawn_file_actions_addopen,
     (posix_spawn_file_actions_t * fa, int fd, const char *path, int flags, mode_t mode),
     (fa, fd, path, flags, mode), errno);
WRAP(PLAIN, int, posix_spawn_file_actions_addclosefrom_np,
     (posix_spawn_file_actions_t * fa, int from), (fa, from), errno);
WRAP(PLAIN, int, posix_spawnattr_init, (posix_spawnattr_t * attr), (attr), errno);
WRAP(PLAIN, int, posix_spawnattr_setflags, (posix_spawnattr_t * attr, short flags), (attr, flags),
     errno);
WRAP(PLAIN, int, posix_spawnattr_setsigdefault, (posix_spawnattr_t * attr, const sigset_t *set),
     (attr, set), errno);
WRAP(PLAIN, int, posix_spawnattr_setsigmask, (posix_spawnattr_t * attr, const sigset_t *set),
     (attr, set), errno);

/* The variadic calls: a missing argument is passed on as garbage, which the callee ignores. */
#define WRAP_OPENAT(name)                                            \
	int __real_##name(int fd, const char *path, int flags, ...); \
	int __wrap_##name(int fd, const char *path, int flags, ...); \
	int __wrap_##name(int fd, const char *path, int flags, ...)  \
	{                                                            \
		va_list ap;                                          \
		mode_t mode;                                         \
                                                                     \
		va_start(ap, flags);                                 \
		mode = va_arg(ap, mode_t);                           \
		va_end(ap);                                          \
		if (strikes(SLOW))                                   \
			return -1;                                   \
		return __real_##name(fd, path, flags, mode);         \
	}                                                            \
	struct fail_semicolon

WRAP_OPENAT(openat);
WRAP_OPENAT(openat64);

#define WRAP_FCNTL(name)                                                  \
	int __real_##name(int fd, int cmd, ...);                          \
	int __wrap_##name(int fd, int cmd, ...);                          \
	int __wrap_##name(int fd, int cmd, ...)                           \
	{                                                                 \
		va_list ap;                                               \
		void *arg;                                                \
                                                                          \
		va_start(ap, cmd);                                        \
		arg = va_arg(ap, void *);                                 \
		va_end(ap);                                               \
		return strikes(PLAIN) ? -1 : __real_##name(fd, cmd, arg); \
	}                                                                 \
	struct fail_semicolon

WRAP_FCNTL(fcntl);
WRAP_FCNTL(fcntl64);

long __real_syscall(long nr, ...);
long __wrap_syscall(long nr, ...);
/* A missing sixth argument is read from the caller's stack, which AddressSanitizer would report. */
__attribute__((no_sanitize("address"))) long __wrap_syscall(long nr, ...)
{
	va_list ap;
	long arg[6];

	va_start(ap, nr);
	for (size_t i = 0; i < 6; i++)
		arg[i] = va_arg(ap, long);
	va_end(ap);
	if (strikes(nr == SYS_openat2 ? SLOW : PLAIN))
		return -1;
	return __real_syscall(nr, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

size_t fail_count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n;
}

bool fail_step(int r, int error, unsigned int n, size_t fds, const char *what, const char *file,
	       int line)
{
	bool reached = fail_reached();
	size_t now;

	fail_off();
	now = fail_count_fds();
	if (r < 0 && !reached)
		print_error("%s: fails with %d without a fault\n", what, r);
	else if (r < 0 && error == EINTR)
		print_error("%s: interrupted call %u is seen, as %d\n", what, n, r);
	else if (r < -4095)
		print_error("%s: call %u failed, %d is no errno\n", what, n, r);
	else if (now != fds)
		print_error("%s: call %u failed, %zu descriptors became %zu\n", what, n, fds, now);
	else if (n >= FAIL_SWEEP_MAX)
		print_error("%s: does not end\n", what);
	else
		return reached;
	_fail(file, line);
	return false;
}
