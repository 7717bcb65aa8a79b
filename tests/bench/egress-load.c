/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load generator of tests/bench/egress, all over loopback:
 *
 *	bench-egress server PORT		answers streams, four at a time
 *	bench-egress broker PORT SERVER-PORT	the broker, for every client
 *	bench-egress decide RULES		microseconds of a verdict, 99th percentile
 *	bench-egress get|put|open PORT COUNT BYTES [PROXY-TARGET-PORT]
 *
 * A stream is a ClientHello, a command and a number. get and put print MiB/s; open prints the
 * median of microseconds from connect(2) to the server's first byte. With a target port it first
 * sends CONNECT for that port.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "egress/broker.h"

enum {
	CHUNK = 256 * 1024,
	WORKERS = 4,
	COUNT_MAX = 100000,
	VERDICTS = 20000
};

static char chunk[CHUNK];

static void die(const char *what)
{
	(void)fprintf(stderr, "bench-egress: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct sockaddr_in local(const char *port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

static int listen_on(const char *port, int flags)
{
	struct sockaddr_in at = local(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), one = 1;

	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 4096) < 0)
		die("cannot listen");
	return fd;
}

static bool read_whole(int fd, void *data, size_t n)
{
	return n == 0 || recv(fd, data, n, MSG_WAITALL) == (ssize_t)n;
}

/* A ClientHello without a name, as for an address, followed by a command. */
struct __attribute__((packed)) opening {
	uint8_t record[5];
	uint8_t head[4];
	uint8_t body[2 + 32 + 1 + 4 + 2 + 2 + 7];
	uint8_t data[5]; /* a record header, so that the command looks like early data */
	char command;
	uint64_t bytes;
};

static struct opening opening(char command, uint64_t bytes)
{
	struct opening o = { .command = command, .bytes = bytes };
	static const uint8_t tail[] = { 0, 0, 2, 0x13, 1, 1, 0, 0, 7, 0, 0x2b, 0, 3, 2, 3, 4 };

	o.record[0] = 22;
	o.record[1] = 3;
	o.record[2] = 1;
	o.record[4] = sizeof(o.head) + sizeof(o.body);
	o.head[0] = 1;
	o.head[3] = sizeof(o.body);
	o.body[0] = o.body[1] = 3;
	memcpy(o.body + 34, tail, sizeof(tail));
	o.data[0] = 23;
	o.data[1] = o.data[2] = 3;
	o.data[4] = sizeof(o.command) + sizeof(o.bytes);
	return o;
}

static void serve(int fd)
{
	struct opening o;
	int one = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (!read_whole(fd, &o, sizeof(o)))
		return;
	if (o.command == 'g')
		for (uint64_t n = o.bytes; n > 0;) {
			ssize_t k = send(fd, chunk, MIN(n, (uint64_t)CHUNK), MSG_NOSIGNAL);

			if (k <= 0)
				return;
			n -= (uint64_t)k;
		}
	if (o.command == 'p')
		for (uint64_t n = o.bytes; n > 0;) {
			ssize_t k = read(fd, chunk, MIN(n, (uint64_t)CHUNK));

			if (k <= 0)
				return;
			n -= (uint64_t)k;
		}
	if (o.command != 'g')
		(void)!send(fd, "!", 1, MSG_NOSIGNAL);
	(void)shutdown(fd, SHUT_WR);
	(void)!read(fd, chunk, 1);
}

_noreturn_ static void run_server(const char *port)
{
	int l = listen_on(port, 0);

	for (int i = 1; i < WORKERS; i++)
		if (fork() == 0)
			break;
	for (;;) {
		int fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0)
			serve(fd);
		(void)fd_close(fd);
	}
}

/* ---- the broker ---- */

struct front {
	struct broker *b;
	struct target target;
};

static void on_report(void *arg, const struct broker_event *ev)
{
	if (ev->reason != BROKER_OK && ev->reason != BROKER_RESET_INSIDE)
		(void)fprintf(stderr, "%s: %s (%s)\n", broker_what_name(ev->what),
			      broker_reason_text(ev->reason), ev->detail);
}

static void on_report_nothing(void *arg, const struct broker_event *ev)
{
}

static void on_accept(struct loop_fd *src, uint32_t events)
{
	struct front *f = src->arg;
	struct broker_request req = { .target = f->target };

	for (int i = 0; i < 64; i++) {
		req.fd = accept4(src->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (req.fd < 0)
			return;
		broker_open(f->b, &req);
	}
}

static int run_broker(const char *port, const char *server)
{
	static const struct broker_ops ops = { .report = on_report };
	struct rlimit files = { 20000, 20000 };
	struct ruleset_entry entry = { 0 };
	struct ruleset *rules = NULL;
	struct broker_conf c = {
		.ops = &ops,
		.limits = { UINT64_MAX / 2, UINT64_MAX / 2, 10000, UINT64_MAX, UINT64_MAX },
	};
	struct front f = { 0 };
	struct loop_fd l = { .cb = on_accept, .arg = &f };
	struct err e = ERR_INIT;
	char text[64];

	(void)setrlimit(RLIMIT_NOFILE, &files);
	(void)snprintf(text, sizeof(text), "127.0.0.1:%s", server);
	if (target_parse(text, strlen(text), &f.target, &e) < 0)
		die(e.msg);
	(void)snprintf(text, sizeof(text), "127.0.0.1:%s/tls", server);
	if (rule_parse(text, strlen(text), &entry.rule, &e) < 0 ||
	    ruleset_new(&entry, 1, &rules) < 0 || loop_new(&c.loop) < 0 ||
	    broker_new(&c, rules, &f.b, &e) < 0 ||
	    loop_add_fd(c.loop, &l, listen_on(port, SOCK_NONBLOCK), EPOLLIN) < 0)
		die(e.msg);
	return loop_run(c.loop);
}

/* ---- verdicts ---- */

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Measures from the request to the report, for names that a rule denies and for unknown names. */
static int run_decide(unsigned int n)
{
	static const struct broker_ops ops = { .report = on_report_nothing };
	struct ruleset_entry *entries = calloc(n, sizeof(*entries));
	struct ruleset *rules = NULL;
	struct broker_conf c = { .ops = &ops, .limits = { 1, 1, 1, 1, 1 } };
	struct broker *b = NULL;
	static uint64_t v[VERDICTS];
	struct err e = ERR_INIT;
	char text[96];

	for (unsigned int i = 0; entries && i < n; i++) {
		(void)snprintf(text, sizeof(text), "%shost-%u.zone-%u.example.com",
			       i % 3 ? "" : ".", i, i % 97);
		entries[i].id = i;
		entries[i].deny = true;
		if (rule_parse(text, strlen(text), &entries[i].rule, &e) < 0)
			die(e.msg);
	}
	if (!entries || ruleset_new(entries, n, &rules) < 0 || loop_new(&c.loop) < 0 ||
	    broker_new(&c, rules, &b, &e) < 0)
		die(e.msg);
	for (unsigned int i = 0; i < VERDICTS; i++) {
		struct broker_request req = { .target.port = 443 };
		int fds[2], len = snprintf(text, sizeof(text), "%shost-%u.zone-%u.example.com",
					   i % 2 ? "a.b." : "", i % n, i % n % 97);

		if (name_parse(text, (size_t)len, &req.target.name, &e) < 0 ||
		    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
			die("a verdict");
		req.fd = fds[1];
		v[i] = clock_mono();
		broker_open(b, &req);
		v[i] = clock_mono() - v[i];
		(void)fd_close(fds[0]);
	}
	qsort(v, VERDICTS, sizeof(v[0]), compare);
	(void)printf("%.1f\n", (double)v[VERDICTS - VERDICTS / 100] / 1000);
	(void)broker_free(b);
	(void)loop_free(c.loop);
	free(entries);
	return 0;
}

/* ---- the client ---- */

static void ask_proxy(int fd, const char *target)
{
	char text[128];
	int n = snprintf(text, sizeof(text),
			 "CONNECT 127.0.0.1:%s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\n\r\n", target,
			 target);
	size_t seen = 0;

	if (send(fd, text, (size_t)n, MSG_NOSIGNAL) != n)
		die("CONNECT");
	while (seen < 4) {
		char c;

		if (!read_whole(fd, &c, 1))
			die("CONNECT");
		seen = c == "\r\n\r\n"[seen] ? seen + 1 : c == '\r';
	}
}

static int connect_to(const char *port, const char *proxy_target)
{
	struct sockaddr_in at = local(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
		die("connect");
	if (proxy_target)
		ask_proxy(fd, proxy_target);
	return fd;
}

static void put_all(int fd, uint64_t n)
{
	while (n > 0) {
		ssize_t k = send(fd, chunk, MIN(n, (uint64_t)CHUNK), MSG_NOSIGNAL);

		if (k <= 0)
			die("send");
		n -= (uint64_t)k;
	}
}

static void get_all(int fd, uint64_t n)
{
	while (n > 0) {
		ssize_t k = recv(fd, chunk, MIN(n, (uint64_t)CHUNK), 0);

		if (k <= 0)
			die("recv");
		n -= (uint64_t)k;
	}
}

/* Runs one stream and returns its nanoseconds. */
static uint64_t one(char command, const char *port, uint64_t bytes, const char *proxy_target)
{
	uint64_t start = clock_mono(), end;
	int fd = connect_to(port, proxy_target);
	struct opening o = opening(command, bytes);

	if (send(fd, &o, sizeof(o), MSG_NOSIGNAL) != sizeof(o))
		die("send");
	if (command == 'p')
		put_all(fd, bytes);
	get_all(fd, command == 'g' ? bytes : 1);
	end = clock_mono();
	(void)fd_close(fd);
	return end - start;
}

static int run_client(const char *what, const char *port, unsigned long count, uint64_t bytes,
		      const char *proxy_target)
{
	static uint64_t v[COUNT_MAX];
	uint64_t median;

	if (count == 0 || count > COUNT_MAX)
		return 2;
	for (unsigned long i = 0; i < count; i++)
		v[i] = one(what[0], port, bytes, proxy_target);
	qsort(v, count, sizeof(v[0]), compare);
	median = v[count / 2];
	if (what[0] == 'o')
		(void)printf("%.1f\n", (double)median / 1000);
	else
		(void)printf("%.1f\n", (double)bytes / (1024 * 1024) /
					       ((double)median / (double)NSEC_PER_SEC));
	return 0;
}

int main(int argc, char **argv)
{
	(void)signal(SIGCHLD, SIG_IGN);
	if (argc == 3 && strcmp(argv[1], "server") == 0)
		run_server(argv[2]);
	if (argc == 4 && strcmp(argv[1], "broker") == 0)
		return run_broker(argv[2], argv[3]);
	if (argc == 3 && strcmp(argv[1], "decide") == 0)
		return run_decide((unsigned int)strtoul(argv[2], NULL, 10));
	if (argc >= 5 && strchr("gpo", argv[1][0]))
		return run_client(argv[1], argv[2], strtoul(argv[3], NULL, 10),
				  strtoull(argv[4], NULL, 10), argc > 5 ? argv[5] : NULL);
	(void)fprintf(stderr, "usage: see the top of the source\n");
	return 2;
}
