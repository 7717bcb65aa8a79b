/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/str.h"
#include "daemon/listen.h"
#include "fail.h"

enum {
	PATH = UNIT_PATH_MAX + 32
};

static const char *in(void **state, const char *name)
{
	static char path[PATH];
	struct unit_dir *d = *state;

	(void)snprintf(path, sizeof(path), "%s/%s", d->path, name);
	return path;
}

static int connect_to(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	return connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 0777;
}

static bool has_flags(int fd)
{
	return fcntl(fd, F_GETFD) & FD_CLOEXEC && fcntl(fd, F_GETFL) & O_NONBLOCK;
}

/* ---- unix ---- */

TEST_IN_DIR(a_unix_socket)
{
	const char *path = in(state, "new/hutchd.sock");
	mode_t old = umask(0);
	struct listeners l = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(listen_unix(&l, path, (gid_t)-1, &e), 0);
	(void)umask(old);
	assert_int_equal(l.n, 1);
	assert_int_equal(l.list[0].kind, LISTEN_UNIX);
	assert_string_equal(l.list[0].name, path);
	assert_true(has_flags(l.list[0].fd));
	assert_int_equal(mode_of(path), 0600);
	assert_int_equal(mode_of(in(state, "new")), 0700);
	path = in(state, "new/hutchd.sock");
	assert_int_equal(connect_to(path), 0);
	listeners_close(&l);
	assert_int_equal(connect_to(path), -ENOENT);
}

TEST_IN_DIR(a_unix_socket_for_a_group)
{
	struct listeners l = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(listen_unix(&l, in(state, "new/s"), getegid(), &e), 0);
	assert_int_equal(mode_of(in(state, "new/s")), 0660);
	assert_int_equal(mode_of(in(state, "new")), 0750);
	listeners_close(&l);
}

static void leave_stale(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 1), 0);
}

TEST_IN_DIR(a_stale_socket_gives_way)
{
	const char *path = in(state, "s");
	struct listeners l = { 0 };
	struct err e = ERR_INIT;

	leave_stale(path);
	assert_int_equal(connect_to(path), -ECONNREFUSED);
	assert_int_equal(listen_unix(&l, path, (gid_t)-1, &e), 0);
	assert_int_equal(connect_to(path), 0);
	listeners_close(&l);
}

TEST_IN_DIR(a_socket_that_answers_does_not)
{
	const char *path = in(state, "s");
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct listeners l = { 0 }, other = { 0 };
	struct err e = ERR_INIT;

	/* A program without our lock: its queue fills up, and it still answers. */
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 0), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(listen_unix(&l, path, (gid_t)-1, &e), -EADDRINUSE);
	assert_int_equal(unlink(path), 0);
	/* Another process of ours, found by the lock. */
	assert_int_equal(listen_unix(&l, path, (gid_t)-1, &e), 0);
	assert_int_equal(listen_unix(&other, path, (gid_t)-1, &e), -EADDRINUSE);
	assert_int_equal(connect_to(path), 0);
	listeners_close(&l);
	assert_int_equal(listen_unix(&other, path, (gid_t)-1, &e), 0);
	listeners_close(&other);
}

TEST_IN_DIR(what_is_no_socket_stays)
{
	struct unit_dir *d = *state;
	struct listeners l = { 0 };
	struct err e = ERR_INIT;
	struct stat st;

	unit_dir_write(d, "s", "x", 1);
	assert_int_equal(listen_unix(&l, in(state, "s"), (gid_t)-1, &e), -EEXIST);
	assert_int_equal(fstatat(d->fd, "s", &st, 0), 0);
	assert_int_equal(st.st_size, 1);
	assert_int_equal(symlinkat("s", d->fd, "link"), 0);
	assert_int_equal(listen_unix(&l, in(state, "link"), (gid_t)-1, &e), -EEXIST);
	assert_int_equal(l.n, 0);
}

TEST_IN_DIR(directories_that_are_refused)
{
	struct unit_dir *d = *state;
	struct listeners l = { 0 };
	struct err e = ERR_INIT;
	char longest[300];

	assert_int_equal(fchmod(d->fd, 0777), 0);
	assert_int_equal(listen_unix(&l, in(state, "s"), (gid_t)-1, &e), -EPERM);
	assert_int_equal(fchmod(d->fd, 0700), 0);
	if (geteuid() == 0) {
		assert_int_equal(fchown(d->fd, 65534, 65534), 0);
		assert_int_equal(listen_unix(&l, in(state, "s"), (gid_t)-1, &e), -EPERM);
		assert_int_equal(fchown(d->fd, 0, 0), 0);
	}
	assert_int_equal(listen_unix(&l, "relative", (gid_t)-1, &e), -EINVAL);
	assert_int_equal(listen_unix(&l, in(state, ""), (gid_t)-1, &e), -EINVAL);
	memset(longest, 'x', sizeof(longest));
	longest[0] = '/';
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(listen_unix(&l, longest, (gid_t)-1, &e), -ENAMETOOLONG);
}

/* ---- TCP ---- */

TEST_IN_DIR(tcp)
{
	static const struct {
		const char *where, *name;
		bool loopback;
	} cases[] = {
		{ "0", "127.0.0.1:", true },	       { "127.0.0.1:0", "127.0.0.1:", true },
		{ "127.1.2.3:0", "127.1.2.3:", true }, { "0.0.0.0:0", "0.0.0.0:", false },
		{ "[::1]:0", "[::1]:", true },	       { "[::]:0", "[::]:", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct listeners l = { 0 };
		struct err e = ERR_INIT;

		if (listen_tcp(&l, cases[i].where, &e) < 0)
			fail_msg("%s: %s", cases[i].where, e.msg);
		assert_true(str_has_prefix(l.list[0].name, cases[i].name));
		assert_false(str_has_suffix(l.list[0].name, ":0"));
		assert_int_equal(l.list[0].kind, LISTEN_TCP);
		assert_int_equal(l.list[0].loopback, cases[i].loopback);
		assert_true(has_flags(l.list[0].fd));
		listeners_close(&l);
	}
}

TEST_IN_DIR(tcp_addresses_that_are_refused)
{
	static const char *const bad[] = { "",
					   ":",
					   ":80",
					   "localhost:80",
					   "65536",
					   "127.1:80",
					   "::1:80",
					   "[::1]80",
					   "[127.0.0.1]:80",
					   "127.0.0.1:",
					   "[::1]:080",
					   "127.0.0.1:http",
					   "01.2.3.4:80",
					   "[::1%lo]:80",
					   "-1",
					   "127.0.0.1:+80",
					   "[]:80" };
	struct listeners l = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err e = ERR_INIT;

		if (listen_tcp(&l, bad[i], &e) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
	}
	assert_int_equal(l.n, 0);
}

TEST_IN_DIR(a_port_that_is_taken)
{
	_cleanup_listeners_ struct listeners l = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(listen_tcp(&l, "0", &e), 0);
	assert_int_equal(listen_tcp(&l, l.list[0].name, &e), -EADDRINUSE);
	assert_int_equal(l.n, 1);
}

TEST_IN_DIR(at_most_so_many)
{
	_cleanup_listeners_ struct listeners l = { 0 };
	struct err e = ERR_INIT;

	for (int i = 0; i < LISTEN_MAX; i++)
		assert_int_equal(listen_tcp(&l, "0", &e), 0);
	assert_int_equal(listen_tcp(&l, "0", &e), -E2BIG);
	assert_int_equal(listen_unix(&l, in(state, "s"), (gid_t)-1, &e), -E2BIG);
}

/* ---- handed over ---- */

static void say(const char *fds, const char *names)
{
	char pid[16];

	(void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
	(void)setenv("LISTEN_PID", pid, 1);
	(void)setenv("LISTEN_FDS", fds, 1);
	if (names)
		(void)setenv("LISTEN_FDNAMES", names, 1);
	else
		(void)unsetenv("LISTEN_FDNAMES");
}

/* Puts `fd` at 3, 4, ... as a service manager does: without CLOEXEC, blocking. */
static void at(int place, int fd)
{
	if (fd != place) {
		assert_int_equal(dup2(fd, place), place);
		(void)fd_close(fd);
	}
	(void)fcntl(place, F_SETFD, 0);
	(void)fcntl(place, F_SETFL, 0);
}

static int a_unix(const char *name, int type, bool listening)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type, 0);

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", name);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	if (listening)
		assert_int_equal(listen(fd, 8), 0);
	return fd;
}

static int a_tcp(int family)
{
	int fd = socket(family, SOCK_STREAM, 0);

	assert_int_equal(listen(fd, 8), 0); /* binds to any */
	return fd;
}

/* Runs `f` in a child, in which the file descriptors from 3 on are free. */
static void in_child(void (*f)(void **), void **state)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		for (int fd = 3; fd < 20; fd++)
			(void)close(fd);
		f(state);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define CHECK(x)                                                         \
	do {                                                             \
		if (!(x)) {                                              \
			(void)fprintf(stderr, "%d: " #x "\n", __LINE__); \
			_exit(1);                                        \
		}                                                        \
	} while (0)

static bool unset(void)
{
	return !getenv("LISTEN_FDS") && !getenv("LISTEN_PID") && !getenv("LISTEN_FDNAMES");
}

static void take_good(void **state)
{
	struct listeners l = { 0 };
	struct err e = ERR_INIT;
	const char *path = in(state, "s");

	at(3, a_unix(path, SOCK_STREAM, true));
	at(4, a_tcp(AF_INET));
	at(5, a_tcp(AF_INET6));
	say("3", "unix:tcp:hutchd.socket");
	CHECK(listen_take(&l, &e) == 0 && l.n == 3 && unset());
	CHECK(l.list[0].kind == LISTEN_UNIX && str_eq(l.list[0].name, path));
	CHECK(l.list[1].kind == LISTEN_TCP && str_has_prefix(l.list[1].name, "0.0.0.0:"));
	CHECK(l.list[2].kind == LISTEN_TCP && str_has_prefix(l.list[2].name, "[::]:"));
	CHECK(!l.list[1].loopback);
	for (size_t i = 0; i < l.n; i++)
		CHECK(l.list[i].fd == 3 + (int)i && has_flags(l.list[i].fd));
	listeners_close(&l);
	/* It belongs to the service manager. */
	CHECK(connect_to(path) == -ECONNREFUSED);
}

static void take_without_names(void **state)
{
	struct listeners l = { 0 };
	struct err e = ERR_INIT;

	at(3, a_tcp(AF_INET));
	say("1", NULL);
	CHECK(listen_take(&l, &e) == 0 && l.n == 1);
}

static void take_none(void **state)
{
	struct listeners l = { 0 };
	struct err e = ERR_INIT;

	CHECK(listen_take(&l, &e) == 0 && l.n == 0);
	at(3, a_tcp(AF_INET));
	say("1", "tcp");
	(void)setenv("LISTEN_PID", "1", 1);
	CHECK(listen_take(&l, &e) == 0 && l.n == 0 && unset());
	CHECK(fcntl(3, F_GETFD) == 0); /* not ours, and unchanged */
}

static void refused(const char *fds, const char *names)
{
	struct listeners l = { 0 };
	struct err e = ERR_INIT;

	say(fds, names);
	CHECK(listen_take(&l, &e) < 0 && l.n == 0 && e.msg[0] && unset());
}

static void take_bad(void **state)
{
	at(3, a_tcp(AF_INET));
	refused("1", "unix");
	CHECK(fcntl(3, F_GETFD) < 0); /* closed */
	at(3, a_unix(in(state, "a"), SOCK_STREAM, true));
	refused("1", "tcp");
	at(3, a_unix(in(state, "b"), SOCK_STREAM, false));
	refused("1", "unix");
	at(3, a_unix(in(state, "c"), SOCK_DGRAM, false));
	refused("1", "unix");
	at(3, a_unix(in(state, "d"), SOCK_SEQPACKET, true));
	refused("1", "unix");
	at(3, open("/dev/null", O_RDONLY));
	refused("1", NULL);
	refused("1", NULL); /* nothing is open there */
	at(3, socket(AF_INET, SOCK_DGRAM, 0));
	refused("1", NULL);
	at(3, a_tcp(AF_INET));
	at(4, a_tcp(AF_INET));
	refused("2", "tcp");
	at(3, a_tcp(AF_INET));
	refused("1", "tcp:tcp");
	refused("17", NULL);
	refused("-1", NULL);
	refused("", NULL);
	refused("x", NULL);
}

TEST_IN_DIR(handed_over)
{
	in_child(take_good, state);
	in_child(take_without_names, state);
	in_child(take_none, state);
	in_child(take_bad, state);
}

static int a_life(const char *path)
{
	_cleanup_listeners_ struct listeners l = { 0 };
	struct err e = ERR_INIT;
	int r = listen_unix(&l, path, (gid_t)-1, &e);

	return r < 0 ? r : listen_tcp(&l, "0", &e);
}

TEST_IN_DIR(sweeps)
{
	FAIL_SWEEP(a_life(in(state, "dir/s")));
	assert_int_equal(connect_to(in(state, "dir/s")), -ENOENT);
}
