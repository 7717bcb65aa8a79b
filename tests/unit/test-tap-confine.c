/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attempts of a hutch-tap that obeys a stranger, with a socket that it got. Each runs twice:
 * in a confined child, where it must die or fail, and in an unconfined one, where it must work.
 */
#include "unit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/err.h"
#include "tap/tap-confine.h"

enum {
	TAP_UID = 0x70000003,
	WORKED = 0,
	REFUSED = 1,
	BROKEN = 99, /* the test itself */
	KILLED = 1000,
};

/* A socket of a stream, which the keeper holds too, and an address that the policy does not name.
 */
static struct {
	int fd;
	struct sockaddr_in other;
	struct pollfd heard;
} stream;

static int make_listener(struct sockaddr_in *ret)
{
	socklen_t n = sizeof(*ret);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*ret = (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	assert_int_equal(bind(fd, (struct sockaddr *)ret, n), 0);
	assert_int_equal(listen(fd, 4), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)ret, &n), 0);
	return fd;
}

/* As tapped.c cuts a stream. */
static void disconnect(int fd)
{
	const struct sockaddr none = { .sa_family = AF_UNSPEC };

	assert_int_equal(connect(fd, &none, sizeof(none)), 0);
}

/* ---- attempts: true on success ---- */

static bool try_sendto(void)
{
	return sendto(stream.fd, "x", 1, MSG_FASTOPEN | MSG_DONTWAIT,
		      (struct sockaddr *)&stream.other, sizeof(stream.other)) == 1 ||
	       errno == EINPROGRESS;
}

static bool try_sendmsg(void)
{
	struct iovec v = { .iov_base = (void *)"x", .iov_len = 1 };
	const struct msghdr m = { .msg_name = &stream.other,
				  .msg_namelen = sizeof(stream.other),
				  .msg_iov = &v,
				  .msg_iovlen = 1 };

	return sendmsg(stream.fd, &m, MSG_FASTOPEN | MSG_DONTWAIT) == 1 || errno == EINPROGRESS;
}

static bool try_connect(void)
{
	return connect(stream.fd, (struct sockaddr *)&stream.other, sizeof(stream.other)) == 0;
}

static bool try_delayed_connect(void)
{
	const int one = 1;

	return setsockopt(stream.fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof(one)) == 0 &&
	       try_connect();
}

static bool try_listen(void)
{
	return listen(stream.fd, 1) == 0;
}

/* The everyday use of a socket. */
static bool try_send(void)
{
	return send(stream.fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0;
}

/* ---- running them ---- */

static _noreturn_ void child(bool (*try)(void), bool isolated)
{
	const struct tap_jail j = { .has_uid = geteuid() == 0,
				    .uid = TAP_UID,
				    .parent = getppid() };
	struct err e = ERR_INIT;

	if (isolated && tap_confine(&j, &e) < 0)
		_exit(BROKEN);
	_exit(try() ? WORKED : REFUSED);
}

static int run(bool (*try)(void), bool isolated)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		child(try, isolated);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? KILLED + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Runs an attempt on a stream that the keeper has cut. */
static int run_on_cut(bool (*try)(void), bool isolated)
{
	struct sockaddr_in server;
	int listener = make_listener(&server), elsewhere = make_listener(&stream.other), r;

	stream.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(stream.fd, (struct sockaddr *)&server, sizeof(server)), 0);
	disconnect(stream.fd);
	stream.heard = (struct pollfd){ .fd = elsewhere, .events = POLLIN };
	r = run(try, isolated);
	assert_true(poll(&stream.heard, 1, 0) >= 0); /* loopback does not delay a connection */
	(void)close(stream.fd);
	(void)close(elsewhere);
	(void)close(listener);
	return r;
}

TEST(no_other_address)
{
	static const struct {
		const char *name;
		bool (*try)(void);
	} rows[] = {
		{ "sendto", try_sendto },
		{ "sendmsg", try_sendmsg },
		{ "connect", try_connect },
		{ "a delayed connect", try_delayed_connect },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		print_message("# %s\n", rows[i].name);
		assert_int_equal(run_on_cut(rows[i].try, false), WORKED);
		if (rows[i].try != try_delayed_connect) /* waits for data */
			assert_true(stream.heard.revents & POLLIN);
		assert_int_equal(run_on_cut(rows[i].try, true), KILLED + SIGSYS);
		assert_false(stream.heard.revents & POLLIN);
	}
}

TEST(no_server)
{
	assert_int_equal(run_on_cut(try_listen, false), WORKED);
	assert_int_equal(run_on_cut(try_listen, true), KILLED + SIGSYS);
}

TEST(may_send)
{
	assert_int_equal(run_on_cut(try_send, true), WORKED);
}
