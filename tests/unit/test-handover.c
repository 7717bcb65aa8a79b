/* SPDX-License-Identifier: Apache-2.0 */
/* One child plays the service manager and the keeper that it starts; the test plays hutchd. */
#include "unit.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/fd-pass.h"
#include "base/util.h"
#include "fail.h"
#include "state/handover.h"

static char path[UNIT_PATH_MAX + 8];

static int listen_here(const struct unit_dir *d)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)snprintf(path, sizeof(path), "%s/s", d->path);
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
		    listen(fd, 8) == 0);
	return fd;
}

/* Accepts one connection, reports what it received, and exits. */
static void keeper(int listener)
{
	struct handover h = { 0 };
	struct err e = ERR_INIT;
	int sock = accept(listener, NULL, NULL);

	if (handover_receive(sock, &h, &e) < 0)
		_exit(1);
	(void)close(sock);
	if (fcntl(h.dir, F_GETFD) != FD_CLOEXEC || faccessat(h.dir, "s", F_OK, 0) < 0)
		_exit(2);
	if (write(h.report, h.client >= 0 ? "client" : "none", 4) != 4 || write(h.log, "x", 1) != 1)
		_exit(3);
	_exit(0);
}

static void one(const struct unit_dir *d, bool client)
{
	int listener = listen_here(d), pipes[2], logs[2], pidfd = -EBADF, status;
	struct handover h = { .dir = d->fd, .client = client ? STDIN_FILENO : -EBADF };
	struct err e = ERR_INIT;
	struct pollfd p = { .events = POLLIN };
	char said[8] = "";
	pid_t pid = fork();

	if (pid == 0)
		keeper(listener);
	assert_int_equal(pipe2(pipes, O_CLOEXEC) | pipe2(logs, O_CLOEXEC), 0);
	h.report = pipes[1];
	h.log = logs[1];
	assert_int_equal(handover_send(path, &h, &pidfd, &e), 0);
	p.fd = pidfd;
	assert_int_equal(poll(&p, 1, 20000), 1); /* it is that process */
	assert_int_equal(waitid(P_PIDFD, (id_t)pidfd, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(read(pipes[0], said, 4), 4);
	assert_string_equal(said, client ? "clie" : "none");
	for (int i = 0; i < 2; i++) {
		(void)close(pipes[i]);
		(void)close(logs[i]);
	}
	(void)close(pidfd);
	(void)close(listener);
	(void)unlink(path);
}

TEST_IN_DIR(all_that_a_child_would_have)
{
	one(*state, false);
	one(*state, true);
}

static int receive(const void *data, size_t n, const int *fds, size_t n_fds)
{
	struct handover h = { 0 };
	struct err e = ERR_INIT;
	int pair[2], r;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	if (n > 0)
		assert_int_equal(fd_pass(pair[0], 0, data, n, fds, n_fds), 0);
	else
		pair[0] = fd_close(pair[0]);
	r = handover_receive(pair[1], &h, &e);
	assert_true(r < 0 && e.msg[0]);
	(void)fd_close(pair[0]);
	(void)fd_close(pair[1]);
	return r;
}

TEST_IN_DIR(what_is_no_sandbox)
{
	struct unit_dir *d = *state;
	const uint32_t good[] = { 1, 0 }, old[] = { 0, 0 }, client[] = { 1, 1 };
	const int fds[] = { d->fd, STDERR_FILENO, STDERR_FILENO, STDERR_FILENO, STDERR_FILENO };
	const int no_dir[] = { STDERR_FILENO, STDERR_FILENO, STDERR_FILENO };
	size_t before = fail_count_fds();

	assert_int_equal(receive(NULL, 0, NULL, 0), -EPIPE);
	assert_int_equal(receive(good, sizeof(good), fds, 0), -EBADMSG);
	assert_int_equal(receive(good, sizeof(good), fds, 2), -EBADMSG);
	assert_int_equal(receive(good, sizeof(good), fds, 4), -EBADMSG);
	assert_int_equal(receive(good, sizeof(good), fds, 5), -EBADMSG);
	assert_int_equal(receive(client, sizeof(client), fds, 3), -EBADMSG);
	assert_int_equal(receive(old, sizeof(old), fds, 3), -EBADMSG);
	assert_int_equal(receive(good, 4, fds, 3), -EBADMSG);
	assert_int_equal(receive(good, sizeof(good), no_dir, 3), -EBADMSG);
	assert_int_equal(fail_count_fds(), before);
}

TEST_IN_DIR(nobody_there)
{
	struct unit_dir *d = *state;
	struct handover h = { .dir = d->fd, .report = 2, .log = 2, .client = -EBADF };
	struct err e = ERR_INIT;
	int pidfd;

	assert_int_equal(handover_send("/nonexistent/s", &h, &pidfd, &e), -ENOENT);
	assert_int_equal(handover_send("relative", &h, &pidfd, &e), -EINVAL);
}
