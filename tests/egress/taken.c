/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-keeper-taken: the real keeper, under the sandbox's control. A DNS question for a name
 * NUMBER.WHAT.ADDRESS.PORT.taken.test (the address in hex) makes it perform the action and log the
 * result: "taken: NAME: ok", or the name of an error. tests/egress/test_taken.py asks.
 *
 * Linked with --wrap: functions here replace those of the same name. The last bytes of the file
 * disable protections: "bare" keeps all privileges that the keeper drops by itself; "unguarded"
 * removes the guard.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/dial-guard.h"
#include "keeper/keeper-confine.h"
#include "names/match.h"

#define ZONE ".taken.test"

enum {
	WAIT_MS = 3000, /* for a connection without an answer */
	MODE_MAX = 64,
};

static char mode[MODE_MAX + 1];
static int waiting = -1, listener = -1;

__attribute__((constructor)) static void read_mode(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);

	if (size > MODE_MAX)
		(void)!pread(fd, mode, MODE_MAX, size - MODE_MAX);
	(void)close(fd);
	for (size_t i = 0; i < MODE_MAX; i++) /* after the last NUL */
		if (!mode[i])
			mode[i] = ' ';
}

static bool has_mode(const char *word)
{
	return strstr(mode, word);
}

/* ---- actions ---- */

struct where {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} to;
	socklen_t n;
	int family;
};

static int digit(char c)
{
	return c >= 'a' ? c - 'a' + 10 : c - '0';
}

static struct where where(const char *hex, const char *port)
{
	struct where w = { .family = strlen(hex) == 8 ? AF_INET : AF_INET6 };
	uint8_t bytes[16] = { 0 };

	for (size_t i = 0; hex[2 * i] && i < 16; i++)
		bytes[i] = (uint8_t)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
	w.to.any.sa_family = (sa_family_t)w.family;
	w.to.v4.sin_port =
		htons((uint16_t)strtoul(port, NULL, 10)); /* same offset in both structs */
	w.n = w.family == AF_INET ? sizeof(w.to.v4) : sizeof(w.to.v6);
	if (w.family == AF_INET)
		memcpy(&w.to.v4.sin_addr, bytes, 4);
	else
		memcpy(&w.to.v6.sin6_addr, bytes, 16);
	return w;
}

static int result(long r)
{
	return r < 0 ? errno : 0;
}

/* Waits until the connection is established, then sends something. */
static int say_hello(int fd)
{
	struct epoll_event ev = { .events = EPOLLOUT };
	int error = 0;
	socklen_t n = sizeof(error);

	if (epoll_ctl(waiting, EPOLL_CTL_ADD, fd, &ev) < 0)
		return errno;
	if (epoll_wait(waiting, &ev, 1, WAIT_MS) == 0)
		return ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0 || error)
		return error ? error : errno;
	return result(write(fd, "taken\n", 6));
}

static int do_tcp(int fd, const struct where *w)
{
	if (connect(fd, &w->to.any, w->n) < 0 && errno != EINPROGRESS)
		return errno;
	return say_hello(fd);
}

static int do_fast(int fd, const struct where *w)
{
	if (sendto(fd, "taken\n", 6, MSG_FASTOPEN, &w->to.any, w->n) < 0 && errno != EINPROGRESS)
		return errno;
	return say_hello(fd);
}

static int do_send(int fd, const struct where *w)
{
	return result(sendto(fd, "taken\n", 6, 0, &w->to.any, w->n));
}

/* Connects to an allowed address and names another one in the packet. */
static int do_redirect(int fd, const struct where *w)
{
	const struct where web = where("5db8d80a", "443");

	if (connect(fd, &web.to.any, web.n) < 0)
		return errno;
	return do_send(fd, w);
}

static int do_connected(int fd, const struct where *w)
{
	if (connect(fd, &w->to.any, w->n) < 0)
		return errno;
	return result(write(fd, "taken\n", 6));
}

static int do_bind(int fd, const struct where *w)
{
	return result(bind(fd, &w->to.any, w->n));
}

/* Listens without bind(), so that no check of bind() applies. */
static int do_listen(int fd, const struct where *w)
{
	struct sockaddr_in at = { 0 };
	socklen_t n = sizeof(at);

	if (listen(fd, 4) < 0 || getsockname(fd, (struct sockaddr *)&at, &n) < 0)
		return errno;
	listener = dup(fd);
	(void)fprintf(stderr, "taken: listens on %u\n", ntohs(at.sin_port));
	return 0;
}

static int do_accept(int fd, const struct where *w)
{
	return result(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

static int do_nothing(int fd, const struct where *w)
{
	return 0;
}

static const struct {
	const char *what;
	int type, protocol;
	int (*run)(int fd, const struct where *w);
} deeds[] = {
	{ "tcp", SOCK_STREAM, 0, do_tcp },
	{ "fast", SOCK_STREAM, 0, do_fast },
	{ "udp", SOCK_DGRAM, 0, do_send },
	{ "redirect", SOCK_DGRAM, 0, do_redirect },
	{ "connected", SOCK_DGRAM, 0, do_connected },
	{ "raw", SOCK_RAW, IPPROTO_UDP, do_send },
	{ "ping", SOCK_DGRAM, IPPROTO_ICMP, do_send },
	{ "sctp", SOCK_STREAM, IPPROTO_SCTP, do_tcp },
	{ "mptcp", SOCK_STREAM, IPPROTO_MPTCP, do_tcp },
	{ "udplite", SOCK_DGRAM, IPPROTO_UDPLITE, do_send },
	{ "bind", SOCK_STREAM, 0, do_bind },
	{ "listen", SOCK_STREAM, 0, do_listen },
	{ "accept", SOCK_STREAM, 0, do_accept },
	{ "nothing", SOCK_STREAM, 0, do_nothing },
};

static int run(const char *what, const struct where *w)
{
	int fd, r = EINVAL;

	for (size_t i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++) {
		if (strcmp(deeds[i].what, what) != 0)
			continue;
		fd = socket(w->family, deeds[i].type | SOCK_NONBLOCK | SOCK_CLOEXEC,
			    deeds[i].protocol);
		if (fd < 0)
			return errno;
		r = deeds[i].run(fd, w);
		(void)close(fd);
	}
	return r;
}

/* Performs each name once: a program asks for it twice, once for each address family. */
static void obey(const char *text)
{
	static char last[NAME_TEXT_MAX];
	char copy[NAME_TEXT_MAX], *rest = copy;
	const char *what, *hex, *port;
	struct where w;
	int r;

	if (strcmp(text, last) == 0)
		return;
	(void)snprintf(last, sizeof(last), "%s", text);
	(void)snprintf(copy, sizeof(copy), "%s", text);
	(void)strsep(&rest, ".");
	what = strsep(&rest, ".");
	hex = strsep(&rest, ".");
	port = strsep(&rest, ".");
	w = where(hex, port);
	r = run(what, &w);
	(void)fprintf(stderr, "taken: %s: %s\n", text, r == 0 ? "ok" : strerrorname_np(r));
}

/* ---- wrapped functions ---- */

bool __wrap_ruleset_knows(const struct ruleset *s, const struct name *name);
bool __real_ruleset_knows(const struct ruleset *s, const struct name *name);
int __wrap_keeper_confine(const struct keeper_start *s, struct err *e);
int __real_keeper_confine(const struct keeper_start *s, struct err *e);
int __wrap_receipt_check(const struct receipt *r, struct err *e);
int __real_receipt_check(const struct receipt *r, struct err *e);
int __wrap_dial_guard_make(const char *name, const struct dial_rules *rules, struct dial_guard *ret,
			   struct err *e);
int __real_dial_guard_make(const char *name, const struct dial_rules *rules, struct dial_guard *ret,
			   struct err *e);

bool __wrap_ruleset_knows(const struct ruleset *s, const struct name *name)
{
	size_t n = strlen(name->text), zone = strlen(ZONE);

	if (n > zone && strcmp(name->text + n - zone, ZONE) == 0)
		obey(name->text);
	return __real_ruleset_knows(s, name);
}

int __wrap_keeper_confine(const struct keeper_start *s, struct err *e)
{
	waiting = epoll_create1(EPOLL_CLOEXEC);
	return has_mode("bare") ? 0 : __real_keeper_confine(s, e);
}

/* The receipt of a bare keeper reports missing layers, so it would not start. */
int __wrap_receipt_check(const struct receipt *r, struct err *e)
{
	return has_mode("bare") ? 0 : __real_receipt_check(r, e);
}

int __wrap_dial_guard_make(const char *name, const struct dial_rules *rules, struct dial_guard *ret,
			   struct err *e)
{
	if (!has_mode("unguarded"))
		return __real_dial_guard_make(name, rules, ret, e);
	(void)snprintf(ret->why, sizeof(ret->why), "the test has taken it away");
	return 0;
}
