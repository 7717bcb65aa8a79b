/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture-box [-4] RESOLV.CONF [-a NETWORK]... COMMAND [ARGUMENT...]: runs a command with a
 * sandbox's network: a user and a network namespace of its own that contain only what
 * netns_capture() creates, with the capture answering. Root calls it directly; for an ordinary user
 * it enters a user namespace first, as that user's warden does.
 *
 * The box allows allowed.test, its subdomains, and addresses. Each connection gets an HTTP response
 * that names the destination and how it was reached. -4 leaves out IPv6. -t creates 200 networks
 * instead and prints the median cost in microseconds.
 */
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "egress/capture.h"
#include "engine/netns.h"

enum {
	NETWORKS_MAX = 8,
	NAMES = 64,
	TIMES = 200,
	REQUEST_S = 5
};

static struct loop *loop;
static bool no_ipv6;

static _noreturn_ void die(const char *what, const char *why)
{
	(void)fprintf(stderr, "capture-box: %s: %s\n", what, why);
	_exit(125);
}

static void check(bool good, const char *what)
{
	if (!good)
		die(what, strerror(errno));
}

/* ---- the other side of every stream ---- */

static enum capture_may ask(const struct name *name, uint64_t number, const char **ret_reason,
			    void *arg)
{
	*ret_reason = "not on the list";
	return str_eq(name->text, "allowed.test") || str_has_suffix(name->text, ".allowed.test")
		       ? CAPTURE_MAY
		       : CAPTURE_MAY_NOT;
}

static bool allowed(const struct target *t)
{
	const char *reason;

	return t->is_addr || ask(&t->name, 0, &reason, NULL) == CAPTURE_MAY;
}

static void say_where(int fd, const struct target *t, enum capture_how how)
{
	static const char *const hows[] = { "direct", "connect", "socks5" };
	char text[ADDR_TEXT_MAX], body[512], request[1024];
	const char *host = t->is_addr ? addr_format(&t->addr, text) : t->name.text;
	int n = snprintf(body, sizeof(body), "%s:%u %s\n", host, t->port, hows[how]);

	check(recv(fd, request, sizeof(request), 0) >= 0, "a request");
	(void)dprintf(fd, "HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s", n, body);
}

/* In a child, so that a slow program blocks nothing. */
static void on_connect(int fd, const struct target *t, enum capture_how how, void *arg)
{
	const struct timeval limit = { .tv_sec = REQUEST_S };
	pid_t pid;

	if (!allowed(t)) {
		capture_refuse(fd, how, FRONT_DENIED, "not on the list");
		return;
	}
	pid = fork();
	check(pid >= 0, "fork");
	if (pid == 0) {
		check(fcntl(fd, F_SETFL, 0) == 0 &&
			      setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0,
		      "a stream");
		if (capture_reply(fd, how, FRONT_OK, NULL) == 0)
			say_where(fd, t, how);
		_exit(0);
	}
	(void)fd_close(fd);
}

static const struct capture_ops ops = { .ask = ask, .connect = on_connect };

/* ---- the box ---- */

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	check(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
	(void)close(fd);
}

/* A new user namespace with one user, called root. */
static void become_root(int flags)
{
	unsigned int uid = geteuid(), gid = getegid();
	char map[32];

	check(unshare(CLONE_NEWUSER | flags) == 0, "a user namespace");
	write_text("/proc/self/setgroups", "deny");
	(void)snprintf(map, sizeof(map), "0 %u 1", gid);
	write_text("/proc/self/gid_map", map);
	(void)snprintf(map, sizeof(map), "0 %u 1", uid);
	write_text("/proc/self/uid_map", map);
}

/* Starts a child in its own namespaces, which waits for a byte and then runs `argv`. */
static pid_t start(const char *resolv, char **argv, int *ret_pidfd, int *ret_go)
{
	int go[2], ready[2];
	char c = 0;
	pid_t pid;

	check(pipe2(go, O_CLOEXEC) == 0 && pipe2(ready, O_CLOEXEC) == 0, "pipe");
	pid = fork();
	check(pid >= 0, "fork");
	if (pid == 0) {
		become_root(CLONE_NEWNET | CLONE_NEWNS);
		if (no_ipv6)
			write_text("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
		if (resolv)
			check(mount(resolv, "/etc/resolv.conf", NULL, MS_BIND, NULL) == 0, resolv);
		(void)close(go[1]);
		if (write(ready[1], "", 1) != 1 || read(go[0], &c, 1) != 1 || !argv)
			_exit(0);
		(void)execvp(argv[0], argv);
		die(argv[0], strerror(errno));
	}
	(void)close(go[0]);
	(void)close(ready[1]);
	check(read(ready[0], &c, 1) == 1, "the box");
	(void)close(ready[0]);
	*ret_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	check(*ret_pidfd >= 0, "pidfd_open");
	*ret_go = go[1];
	return pid;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int measure(void)
{
	uint64_t took[TIMES];

	for (size_t i = 0; i < TIMES; i++) {
		_cleanup_capture_sockets_ struct capture_sockets s = CAPTURE_SOCKETS_INIT;
		struct err e = ERR_INIT;
		uint64_t begin;
		int pidfd, go;
		pid_t pid = start(NULL, NULL, &pidfd, &go);

		begin = clock_mono();
		if (netns_capture(pidfd, NULL, 0, &s, &e) < 0)
			die("netns_capture", e.msg);
		took[i] = clock_mono() - begin;
		(void)close(go);
		(void)close(pidfd);
		check(waitpid(pid, NULL, 0) == pid, "waitpid");
	}
	qsort(took, TIMES, sizeof(took[0]), compare);
	(void)printf("%llu\n", (unsigned long long)took[TIMES / 2] / 1000);
	return 0;
}

static void on_child(struct loop_fd *src, uint32_t events)
{
	loop_stop(loop, 0);
}

static int run(const char *resolv, const struct addr *networks, size_t n, char **argv)
{
	_cleanup_capture_sockets_ struct capture_sockets s = CAPTURE_SOCKETS_INIT;
	_cleanup_capture_ struct capture *c = NULL;
	struct loop_fd child = { .cb = on_child };
	struct err e = ERR_INIT;
	uint8_t key[SIPHASH_KEY];
	int pidfd, go, status = 0;
	pid_t pid = start(resolv, argv, &pidfd, &go);

	if (netns_capture(pidfd, networks, n, &s, &e) < 0)
		die("netns_capture", e.msg);
	check(getrandom(key, sizeof(key), 0) == sizeof(key), "getrandom");
	if (loop_new(&loop) < 0 || capture_new(loop, &s, NAMES, key, &ops, NULL, &c) < 0 ||
	    loop_add_fd(loop, &child, pidfd, EPOLLIN) < 0)
		die("capture", "cannot start");
	check(write(go, "", 1) == 1, "go");
	if (loop_run(loop) < 0)
		die("loop", "failed");
	check(waitpid(pid, &status, 0) == pid, "waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

int main(int argc, char **argv)
{
	struct addr networks[NETWORKS_MAX];
	struct err e = ERR_INIT;
	size_t n = 0;
	int i = 2;

	(void)signal(SIGCHLD, SIG_DFL);
	if (geteuid() != 0)
		become_root(CLONE_NEWNS);
	if (argc == 2 && str_eq(argv[1], "-t"))
		return measure();
	no_ipv6 = argc > 2 && str_eq(argv[1], "-4");
	argc -= no_ipv6;
	argv += no_ipv6;
	for (; i + 2 < argc && str_eq(argv[i], "-a") && n < NETWORKS_MAX; i += 2)
		if (addr_parse(argv[i + 1], strlen(argv[i + 1]), &networks[n++], &e) < 0)
			die(argv[i + 1], e.msg);
	if (i >= argc)
		die("usage", "capture-box [-4] RESOLV.CONF [-a NETWORK]... COMMAND [ARGUMENT...]");
	return run(argv[1], networks, n, argv + i);
}
