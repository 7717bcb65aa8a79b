/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small world for egress tests: a network namespace in which public addresses are reachable over
 * loopback, a resolver that chooses its answer by the name in the query, and a client and a server
 * that the test plays itself, all on one loop.
 *
 * 93.184.0.0/16 and 2606:2800::/32 are routed to loopback with 127.0.0.1 and ::1 as the source, so
 * they look like other hosts; 93.185.0.0/16 has itself as the source, like an address of this host.
 */
#pragma once

#include "unit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/loop.h"
#include "base/proc.h"
#include "base/str.h"

enum {
	WORLD_DNS_PORT = 5353,
	WORLD_PATIENCE_S = 120,
};

struct world {
	struct loop *loop;
	struct loop_fd dns;
	unsigned int queries;
	char asked[300];  /* the last name */
	struct buf reply; /* allocated once, so that injected faults hit other code */
};

static inline int world_write(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

static inline int world_ip(const char *command)
{
	_cleanup_buf_ struct buf out = BUF_INIT(4096);
	const char *argv[16] = { "ip" };
	char copy[128], *rest = copy, *word;
	struct err e = ERR_INIT;
	int status = -1;

	(void)snprintf(copy, sizeof(copy), "%s", command);
	for (size_t i = 1; i < ARRAY_SIZE(argv) - 1 && (word = strsep(&rest, " ")); i++)
		argv[i] = word;
	if (proc_capture("/sbin/ip", argv, true, clock_mono() + 30 * NSEC_PER_SEC, &out, &status,
			 &e) < 0)
		return -1;
	return status;
}

/* Enters the namespace, once per process; false if that is not permitted. */
static inline bool world_enter(void)
{
	static const char *const commands[] = {
		"link set lo up",
		"route add local 93.184.0.0/16 dev lo src 127.0.0.1",
		"route add local 93.185.0.0/16 dev lo",
		"-6 route add local 2606:2800::/32 dev lo src ::1",
	};
	static int entered;
	char map[64];

	if (entered != 0)
		return entered > 0;
	entered = -1;
	if (geteuid() == 0) {
		if (unshare(CLONE_NEWNET) < 0)
			return false;
	} else {
		(void)snprintf(map, sizeof(map), "0 %u 1", geteuid());
		if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 ||
		    world_write("/proc/self/uid_map", map) < 0)
			return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (world_ip(commands[i]) != 0)
			return false;
	entered = 1;
	return true;
}

/* ---- sockets of the test ---- */

static inline struct sockaddr_storage world_addr(const char *text, uint16_t port, socklen_t *n)
{
	struct sockaddr_storage ss = { 0 };

	if (strchr(text, ':')) {
		struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&ss;

		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
		*n = sizeof(*v6);
	} else {
		struct sockaddr_in *v4 = (struct sockaddr_in *)&ss;

		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		assert_int_equal(inet_pton(AF_INET, text, &v4->sin_addr), 1);
		*n = sizeof(*v4);
	}
	return ss;
}

/* A local socket that only has to exist. */
#define _listening_ __attribute__((unused)) _cleanup_close_ int

static inline int world_listen(const char *addr, uint16_t port)
{
	socklen_t n;
	struct sockaddr_storage ss = world_addr(addr, port, &n);
	int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	/* IPv6 has routes, but no addresses for them. */
	if (ss.ss_family == AF_INET6)
		assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, n), 0);
	assert_int_equal(listen(fd, 4096), 0);
	return fd;
}

/* Both ends of a TCP connection over loopback, non-blocking. */
static inline void world_pair(int fds[2])
{
	_cleanup_close_ int l = world_listen("127.0.0.1", 0);
	struct sockaddr_in at;
	socklen_t n = sizeof(at);

	assert_int_equal(getsockname(l, (struct sockaddr *)&at, &n), 0);
	fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fds[0] >= 0);
	assert_int_equal(connect(fds[0], (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(ioctl(fds[0], FIONBIO, &(int){ 1 }), 0); /* cannot be made to fail */
	fds[1] = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(fds[1] >= 0);
}

static inline void world_reset(int fd)
{
	struct linger reset = { .l_onoff = 1 };

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
	(void)fd_close(fd);
}

/* Runs the loop until the condition holds; the test fails if it never does. */
#define WORLD_UNTIL(w, cond)                                                                     \
	do {                                                                                     \
		uint64_t until_ = clock_mono() + WORLD_PATIENCE_S * NSEC_PER_SEC;                \
		while (!(cond)) {                                                                \
			if (clock_mono() > until_)                                               \
				fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #cond);         \
			assert_int_equal(loop_once((w)->loop, clock_mono() + 2 * NSEC_PER_MSEC), \
					 0);                                                     \
		}                                                                                \
	} while (0)

/* Runs the loop for a while. */
static inline void world_rest(struct world *w, unsigned int ms)
{
	uint64_t until = clock_mono() + ms * NSEC_PER_MSEC;

	while (clock_mono() < until)
		assert_int_equal(loop_once(w->loop, until), 0);
}

/* recv(2) that returns -errno; -EAGAIN if there is no data. */
static inline ssize_t world_recv(int fd, void *data, size_t n)
{
	ssize_t k = recv(fd, data, n, 0);

	return k < 0 ? -errno : k;
}

/* Reads exactly `n` bytes, running the loop meanwhile, and compares them. */
static inline void world_expect(struct world *w, int fd, const void *data, size_t n)
{
	_cleanup_free_ char *got = malloc(n + 1);
	size_t len = 0;

	WORLD_UNTIL(w, ({
			    ssize_t k = world_recv(fd, got + len, n - len);
			    if (k > 0)
				    len += (size_t)k;
			    else if (k != -EAGAIN)
				    fail_msg("the stream ended after %zu of %zu bytes (%zd)", len,
					     n, k);
			    len == n;
		    }));
	assert_memory_equal(got, data, n);
}

/* Waits for the end of file (0) or a reset (-ECONNRESET); no byte may come before. */
static inline void world_expect_end(struct world *w, int fd, ssize_t how)
{
	ssize_t k = 0;
	char c;

	WORLD_UNTIL(w, ({
			    k = world_recv(fd, &c, 1);
			    k != -EAGAIN;
		    }));
	assert_int_equal(k, how);
}

static inline int world_accept(struct world *w, int listener)
{
	int fd = -1;

	WORLD_UNTIL(w, (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0);
	return fd;
}

/* ---- the resolver ---- */

static inline void dns_record(struct buf *b, unsigned int type, const void *data, size_t n)
{
	(void)buf_put_be(b, 0xc00c, 2); /* the name of the question */
	(void)buf_put_be(b, type, 2);
	(void)buf_put_be(b, 1, 2);
	(void)buf_put_be(b, 60, 4);
	(void)buf_put_be(b, n, 2);
	(void)buf_put(b, data, n);
}

static inline unsigned int dns_address(struct buf *b, unsigned int type, const char *text)
{
	uint8_t raw[16];
	bool v6 = strchr(text, ':');

	if ((type == 28) != v6)
		return 0;
	assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, text, raw), 1);
	dns_record(b, type, raw, v6 ? 16 : 4);
	return 1;
}

/* The records for a name: its first label selects the test case. */
static inline unsigned int dns_answers(struct buf *b, unsigned int type, const char *label)
{
	static const char *const rows[][5] = {
		{ "private", "10.0.0.1", "fd12::1" },
		{ "loopback", "127.0.0.1", "::1" },
		{ "metadata", "169.254.169.254", "168.63.129.16", "fd00:ec2::254" },
		{ "shared", "100.64.0.1" },
		{ "embedded", "::ffff:93.184.0.1", "64:ff9b::5db8:1", "2002:5db8:1::1",
		  "2001:0:5db8:1::1" },
		{ "mixed", "10.0.0.1", "127.0.0.1", "93.184.0.1", "fe80::1" },
		{ "here", "93.185.0.1" },
		{ "denied", "93.184.66.6" },
		{ "both", "93.184.0.1", "2606:2800::1" },
		{ "dead", "93.184.0.9", "2606:2800::9", "93.184.0.1" },
	};
	unsigned int n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (!str_eq(label, rows[i][0]))
			continue;
		for (size_t j = 1; j < ARRAY_SIZE(rows[i]) && rows[i][j]; j++)
			n += dns_address(b, type, rows[i][j]);
		return n;
	}
	if (str_eq(label, "many")) {
		for (; type == 1 && n < 25; n++) {
			char text[32];

			(void)snprintf(text, sizeof(text), "93.184.1.%u", n);
			(void)dns_address(b, type, text);
		}
		return n;
	}
	return dns_address(b, type, "93.184.0.1");
}

static inline void dns_reply(struct world *w, const uint8_t *q, size_t n, struct buf *b)
{
	size_t at = 12, len = 0, first = q[12];
	unsigned int type, answers, rcode = 0;
	char label[64];

	while (q[at]) {
		for (size_t i = 1; i <= q[at]; i++)
			w->asked[len++] = (char)q[at + i];
		w->asked[len++] = '.';
		at += q[at] + 1U;
	}
	w->asked[len - 1] = '\0';
	type = (unsigned int)q[at + 1] << 8 | q[at + 2];
	at += 5;
	assert_true(at <= n && first < sizeof(label));
	memcpy(label, q + 13, first);
	label[first] = '\0';
	if (str_eq(label, "stall"))
		return;
	(void)buf_put(b, q, at);
	b->data[2] = (char)0x81;
	answers =
		str_eq(label, "nx") || str_eq(label, "servfail") ? 0 : dns_answers(b, type, label);
	if (str_eq(label, "nx"))
		rcode = 3;
	if (str_eq(label, "servfail"))
		rcode = 2;
	b->data[3] = (char)(0x80 | rcode);
	b->data[4] = 0;
	b->data[5] = 1;
	b->data[6] = 0;
	b->data[7] = (char)answers;
	memset(b->data + 8, 0, 4);
	if (str_eq(label, "otherid"))
		b->data[0] ^= 0x55;
	if (str_eq(label, "otherquestion"))
		b->data[14] ^= 1;
	if (str_eq(label, "garbage"))
		memset(b->data + 12, 0xee, b->len - 12);
	if (str_eq(label, "short"))
		b->len = 13;
	if (str_eq(label, "halved")) /* the record ends inside its address */
		b->len -= 2;
	if (str_eq(label, "loop")) {
		b->len = at;
		dns_record(b, 5, "\xc0\x0c", 2); /* a CNAME to itself */
		b->data[7] = 1;
	}
}

static inline void on_dns(struct loop_fd *src, uint32_t events)
{
	struct world *w = src->arg;
	struct sockaddr_storage from;
	socklen_t from_n = sizeof(from);
	uint8_t q[512];
	ssize_t n = recvfrom(src->fd, q, sizeof(q), 0, (struct sockaddr *)&from, &from_n);

	if (n < 17)
		return;
	w->queries++;
	buf_reset(&w->reply);
	dns_reply(w, q, (size_t)n, &w->reply);
	if (w->reply.len > 0)
		(void)sendto(src->fd, w->reply.data, w->reply.len, 0, (struct sockaddr *)&from,
			     from_n);
}

/* ---- setup ---- */

static inline int world_setup(void **state)
{
	struct world *w;
	socklen_t n;
	struct sockaddr_storage ss = world_addr("127.0.0.1", WORLD_DNS_PORT, &n);

	if (!world_enter()) {
		*state = NULL;
		return 0;
	}
	w = calloc(1, sizeof(*w));
	assert_non_null(w);
	assert_int_equal(loop_new(&w->loop), 0);
	w->reply.max = 4096;
	assert_non_null(buf_reserve(&w->reply, w->reply.max));
	w->dns.cb = on_dns;
	w->dns.arg = w;
	w->dns.fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(w->dns.fd, (struct sockaddr *)&ss, n), 0);
	assert_int_equal(loop_add_fd(w->loop, &w->dns, w->dns.fd, EPOLLIN), 0);
	*state = w;
	return 0;
}

static inline int world_teardown(void **state)
{
	struct world *w = *state;

	if (!w)
		return 0;
	loop_del_fd(&w->dns);
	(void)fd_close(w->dns.fd);
	(void)loop_free(w->loop);
	buf_done(&w->reply);
	free(w);
	return 0;
}

/* The test is skipped where namespaces cannot be created. */
#define WORLD(state)                                           \
	({                                                     \
		if (!*(state))                                 \
			skip();                                \
		assert(*(state)); /* skip() does not return */ \
		(struct world *)*(state);                      \
	})

#define WORLD_RESOLVER "127.0.0.1:5353"
