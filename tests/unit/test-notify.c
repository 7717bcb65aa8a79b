/* SPDX-License-Identifier: Apache-2.0 */
/* The service manager is a datagram socket that the test reads. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "daemon/notify.h"
#include "fail.h"

enum {
	MESSAGE = 4096
};

static struct {
	int fd;
	char said[MESSAGE];
} manager;

static void listen_at(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));

	memcpy(a.sun_path, name, strlen(name));
	if (name[0] == '@')
		a.sun_path[0] = '\0';
	manager.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(manager.fd >= 0);
	assert_int_equal(bind(manager.fd, (struct sockaddr *)&a, n), 0);
	(void)setenv("NOTIFY_SOCKET", name, 1);
}

static const char *heard(void)
{
	ssize_t n = recv(manager.fd, manager.said, sizeof(manager.said) - 1, 0);

	manager.said[n < 0 ? 0 : n] = '\0';
	return manager.said;
}

static int setup(void **state)
{
	(void)unsetenv("NOTIFY_SOCKET");
	(void)unsetenv("WATCHDOG_USEC");
	(void)unsetenv("WATCHDOG_PID");
	manager.fd = -EBADF;
	return unit_dir_setup(state);
}

static int teardown(void **state)
{
	(void)fd_close(manager.fd);
	return unit_dir_teardown(state);
}

TEST_WITH(nobody_listens, setup, teardown)
{
	_cleanup_notify_ struct notify n = NOTIFY_INIT;
	struct err e = ERR_INIT;

	(void)setenv("WATCHDOG_USEC", "1000000", 1);
	assert_int_equal(notify_open(&n, &e), 0);
	assert_int_equal(n.fd, -EBADF);
	assert_int_equal(n.watchdog, 0);
	assert_int_equal(notify_ready(&n, "x") | notify_stopping(&n, NULL) | notify_watchdog(&n),
			 0);
	assert_null(getenv("WATCHDOG_USEC"));
}

static void all_that_is_said(const char *name)
{
	_cleanup_notify_ struct notify n = NOTIFY_INIT;
	struct err e = ERR_INIT;
	char want[64];

	listen_at(name);
	assert_int_equal(notify_open(&n, &e), 0);
	assert_null(getenv("NOTIFY_SOCKET"));
	(void)snprintf(want, sizeof(want), "READY=1\nMAINPID=%d\nSTATUS=2 sandboxes\n",
		       (int)getpid());
	assert_int_equal(notify_ready(&n, "2 sandboxes"), 0);
	assert_string_equal(heard(), want);
	assert_int_equal(notify_stopping(&n, "one\nREADY=1"), 0); /* no line of its own */
	assert_string_equal(heard(), "STOPPING=1\nSTATUS=one\\nREADY=1\n");
	assert_int_equal(notify_stopping(&n, NULL), 0);
	assert_string_equal(heard(), "STOPPING=1\n");
	assert_int_equal(notify_watchdog(&n), 0); /* not wanted */
	assert_string_equal(heard(), "");
}

TEST_WITH(to_a_path, setup, teardown)
{
	struct unit_dir *d = *state;
	char path[UNIT_PATH_MAX + 8];

	(void)snprintf(path, sizeof(path), "%s/notify", d->path);
	all_that_is_said(path);
}

TEST_WITH(to_an_abstract_name, setup, teardown)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "@hutch-test-notify-%d", (int)getpid());
	all_that_is_said(name);
}

TEST_WITH(the_watchdog, setup, teardown)
{
	static const struct {
		const char *usec, *pid;
		uint64_t want;
		int r;
	} cases[] = {
		{ "20000000", NULL, 10 * NSEC_PER_SEC, 0 },
		{ "20000000", "self", 10 * NSEC_PER_SEC, 0 },
		{ "20000000", "1", 0, 0 },
		{ "", NULL, 0, -EINVAL },
		{ "0", NULL, 0, -EINVAL },
		{ "-1", NULL, 0, -EINVAL },
		{ "99999999999999999999", NULL, 0, -EINVAL },
		{ "5", "x", 0, -EINVAL },
	};
	struct unit_dir *d = *state;
	char path[UNIT_PATH_MAX + 8], self[16];

	(void)snprintf(path, sizeof(path), "%s/notify", d->path);
	(void)snprintf(self, sizeof(self), "%d", (int)getpid());
	listen_at(path);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_notify_ struct notify n = NOTIFY_INIT;
		struct err e = ERR_INIT;

		(void)setenv("NOTIFY_SOCKET", path, 1);
		(void)setenv("WATCHDOG_USEC", cases[i].usec, 1);
		if (cases[i].pid)
			(void)setenv("WATCHDOG_PID",
				     str_eq(cases[i].pid, "self") ? self : cases[i].pid, 1);
		assert_int_equal(notify_open(&n, &e), cases[i].r);
		assert_int_equal(n.watchdog, cases[i].want);
		assert_int_equal(notify_watchdog(&n), 0);
		assert_string_equal(heard(), cases[i].want ? "WATCHDOG=1\n" : "");
		assert_null(getenv("WATCHDOG_PID"));
	}
}

TEST_WITH(wrong_addresses, setup, teardown)
{
	char longest[200];
	const char *const bad[] = { "relative/path", "vsock:2:1234", "@", "/", longest };

	memset(longest, 'a', sizeof(longest));
	longest[0] = '/';
	longest[sizeof(longest) - 1] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct notify n;
		struct err e = ERR_INIT;

		(void)setenv("NOTIFY_SOCKET", bad[i], 1);
		assert_true(notify_open(&n, &e) < 0);
		assert_non_null(strstr(e.msg, "NOTIFY_SOCKET"));
		assert_int_equal(n.fd, -EBADF);
		assert_null(getenv("NOTIFY_SOCKET"));
	}
}

/* A manager that is gone or does not read: an error, without a signal or a blocked watchdog. */
TEST_WITH(a_manager_that_does_not_read, setup, teardown)
{
	_cleanup_notify_ struct notify n = NOTIFY_INIT;
	struct unit_dir *d = *state;
	char path[UNIT_PATH_MAX + 8];
	struct err e = ERR_INIT;
	int r = 0;

	(void)snprintf(path, sizeof(path), "%s/notify", d->path);
	listen_at(path);
	(void)setenv("WATCHDOG_USEC", "1000000", 1);
	assert_int_equal(notify_open(&n, &e), 0);
	for (int i = 0; r == 0 && i < 100000; i++)
		r = notify_watchdog(&n);
	assert_int_equal(r, -EAGAIN);
	manager.fd = fd_close(manager.fd);
	assert_int_equal(notify_ready(&n, NULL), -ECONNREFUSED);
}

static int a_word(const char *path)
{
	_cleanup_notify_ struct notify n = NOTIFY_INIT;
	struct err e = ERR_INIT;
	int r;

	(void)setenv("NOTIFY_SOCKET", path, 1);
	r = notify_open(&n, &e);
	if (r == 0)
		r = notify_ready(&n, "text");
	(void)heard();
	return r;
}

TEST_WITH(sweeps, setup, teardown)
{
	struct unit_dir *d = *state;
	char path[UNIT_PATH_MAX + 8];

	(void)snprintf(path, sizeof(path), "%s/notify", d->path);
	listen_at(path);
	FAIL_SWEEP(a_word(path));
}
