/* SPDX-License-Identifier: Apache-2.0 */
/* Streams over time: budgets, changes of policy, hostile and dead peers, many at once. */
#include "test-broker.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void open_and_refuse(struct desk *d, const char *what, const char *detail)
{
	int fd = desk_open(d, what);

	assert_int_equal(desk_last(d)->what, BROKER_DENY);
	assert_int_equal(desk_last(d)->reason, BROKER_BUDGET);
	assert_string_equal(desk_last(d)->detail, detail);
	world_expect_end(d->w, fd, -ECONNRESET);
	(void)fd_close(fd);
}

TEST_WITH(budgets_of_streams, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	_listening_ l = world_listen("93.184.0.1", 22);
	int fd[4];

	c.limits.streams = 2;
	c.limits.streams_per_minute = 4;
	c.limits.names = 2;
	desk_start(&d, &c, RULES("+.example.com:22"));
	fd[0] = desk_open(&d, "a.example.com:22");
	fd[1] = desk_open(&d, "b.example.com:22");
	open_and_refuse(&d, "a.example.com:22", "streams");
	assert_int_equal(broker_budget(d.b)->streams, 2);
	world_reset(fd[0]);
	world_reset(fd[1]);
	WORLD_UNTIL(w, d.ended == 2);
	open_and_refuse(&d, "c.example.com:22", "names");
	fd[0] = desk_open(&d, "a.example.com:22");
	fd[1] = desk_open(&d, "b.example.com:22");
	world_reset(fd[0]);
	world_reset(fd[1]);
	WORLD_UNTIL(w, d.ended == 4);
	open_and_refuse(&d, "a.example.com:22", "streams_per_minute");
	(void)broker_free(d.b);
}

TEST(minutes_pass)
{
	struct budget_limits max = { 1, 1, 1000, 3, 10 };
	struct budget b;
	uint64_t t = 1000 * NSEC_PER_SEC;

	(void)state;
	budget_init(&b, &max);
	for (int i = 0; i < 3; i++)
		assert_int_equal(budget_open(&b, "a", t + (uint64_t)i * 10 * NSEC_PER_SEC),
				 BUDGET_OK);
	assert_int_equal(budget_open(&b, "a", t + 59 * NSEC_PER_SEC), BUDGET_RATE);
	assert_int_equal(budget_open(&b, "a", t + 61 * NSEC_PER_SEC), BUDGET_OK);
	assert_int_equal(budget_open(&b, "a", t + 62 * NSEC_PER_SEC), BUDGET_RATE);
	assert_int_equal(budget_open(&b, "a", t + 1000 * NSEC_PER_SEC), BUDGET_OK);
	budget_done(&b);
}

/* Three streams share the budget; together they deliver all of it and not a byte more. */
TEST_WITH(budget_of_bytes, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	_listening_ l = world_listen("93.184.0.1", 22);
	static const char zero[40000];
	size_t arrived = 0;
	int fd[3], srv[3];
	char buf[65536];

	c.limits.bytes_out = 100000;
	desk_start(&d, &c, RULES("+.example.com:22/tcp"));
	for (int i = 0; i < 3; i++) {
		fd[i] = desk_open(&d, "a.example.com:22");
		srv[i] = world_accept(w, l);
	}
	for (int i = 0; i < 3; i++)
		desk_put(fd[i], zero, sizeof(zero));
	WORLD_UNTIL(w, ({
			    for (int i = 0; i < 3; i++) {
				    ssize_t k = world_recv(srv[i], buf, sizeof(buf));

				    arrived += k > 0 ? (size_t)k : 0;
			    }
			    d.ended >= 1;
		    }));
	assert_true(arrived <= 100000);
	assert_string_equal(desk_last(&d)->detail, "bytes_out");
	/* The budget that the aborted stream had reserved and not sent is available to the
	 * others. */
	open_and_refuse(&d, "a.example.com:22", "bytes_out");
	for (int i = 0; i < 3; i++) {
		(void)fd_close(fd[i]);
		(void)fd_close(srv[i]);
	}
	(void)broker_free(d.b);
}

TEST_WITH(new_rules_cut, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	_listening_ l = world_listen("93.184.0.1", 22);
	int a, b, x, srv_a, srv_b;

	desk_start(&d, &c, RULES("+.example.com:22"));
	a = desk_open(&d, "a.example.com:22");
	srv_a = world_accept(w, l);
	b = desk_open(&d, "b.example.com:22");
	srv_b = world_accept(w, l);
	x = desk_open(&d, "stall.example.com:22"); /* still looking up */
	desk_put(srv_a, "x", 1);
	desk_put(srv_b, "x", 1);
	world_expect(w, a, "x", 1);
	world_expect(w, b, "x", 1);
	broker_set_rules(d.b, RULES("+.example.com:22", "-b.example.com", "-stall.example.com"));
	assert_int_equal(d.ended, 2); /* at once */
	assert_int_equal(desk_last(&d)->reason, BROKER_POLICY);
	world_expect_end(w, b, -ECONNRESET);
	world_expect_end(w, srv_b, -ECONNRESET);
	world_expect_end(w, x, -ECONNRESET);
	desk_put(srv_a, "y", 1);
	world_expect(w, a, "y", 1);
	/* A deny rule for the dialled address, and a stricter protocol. */
	broker_set_rules(d.b, RULES("+.example.com:22", "-93.184.0.0/16"));
	assert_int_equal(d.ended, 3);
	world_expect_end(w, srv_a, -ECONNRESET);
	(void)fd_close(srv_a);
	broker_set_rules(d.b, RULES("+.example.com:22"));
	(void)fd_close(a);
	a = desk_open(&d, "a.example.com:22");
	srv_a = world_accept(w, l);
	world_rest(w, 20);
	broker_set_rules(d.b, RULES("+.example.com:22/tls"));
	assert_int_equal(d.ended, 4);
	(void)fd_close(a);
	(void)fd_close(b);
	(void)fd_close(x);
	(void)fd_close(srv_a);
	(void)fd_close(srv_b);
	(void)broker_free(d.b);
}

TEST_WITH(slow_and_dead_peers, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	_listening_ tls = world_listen("93.184.0.1", 443);
	_listening_ any = world_listen("93.184.0.1", 22);
	size_t fds = fail_count_fds();
	uint8_t hello[2048];
	size_t at = 0;
	int slow, mute, text, dead, fine, srv;

	(void)desk_hello("www.example.com", false, 500, hello);
	c.peek_ms = 300;
	c.idle_ms = 1000;
	desk_start(&d, &c, RULES("+.example.com:443", "+.example.com:22"));
	slow = desk_open(&d, "www.example.com:443"); /* a byte now and then */
	mute = desk_open(&d, "www.example.com:443"); /* never a byte */
	text = desk_open(&d, "www.example.com:22");  /* could still be a request */
	desk_put(text, "GE", 2);
	dead = desk_open(&d, "www.example.com:22"); /* silence on both sides */
	while (d.ended < 3) {
		(void)!send(slow, hello + at++, 1, MSG_NOSIGNAL);
		world_rest(w, 20);
		assert_true(at < 500);
	}
	for (size_t i = 0; i < d.n_seen; i++)
		if (d.seen[i].what == BROKER_END)
			assert_string_equal(d.seen[i].detail, "first bytes");
	/* A well-behaved client is served meanwhile. */
	fine = desk_open(&d, "www.example.com:22");
	desk_put(fine, "\1\2\3", 3);
	do
		srv = world_accept(w, any);
	while ((world_rest(w, 20), recv(srv, &(char){ 0 }, 1, MSG_PEEK) <= 0) && fd_close(srv));
	world_expect(w, srv, "\1\2\3", 3);
	(void)fd_close(srv);
	WORLD_UNTIL(w, d.ended == 5);
	(void)fd_close(slow);
	(void)fd_close(mute);
	(void)fd_close(text);
	(void)fd_close(dead);
	(void)fd_close(fine);
	for (size_t i = 0; i < d.n_seen; i++)
		if (d.seen[i].what == BROKER_END)
			assert_true(d.seen[i].reason == BROKER_TIME ||
				    d.seen[i].reason == BROKER_RESET_OUTSIDE ||
				    d.seen[i].reason == BROKER_OK);
	(void)broker_free(d.b);
	assert_int_equal(fail_count_fds(), fds);
}

/* A client that disconnects at any stage leaks nothing. */
TEST_WITH(clients_that_leave, world_setup, world_teardown)
{
	static const char *const names[] = { "stall.example.com:22", "a.example.com:22",
					     "dead.example.com:22" };
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	size_t fds = fail_count_fds();

	desk_start(&d, &c, RULES("+.example.com:22/tcp"));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		world_reset(desk_open(&d, names[i]));
		WORLD_UNTIL(w, d.ended == i + 1);
	}
	for (int i = 0; i < 3; i++)
		(void)fd_close(desk_open(&d, "stall.example.com:22"));
	(void)broker_free(d.b); /* with streams open */
	assert_int_equal(d.ended, 6);
	assert_int_equal(fail_count_fds(), fds);
}

enum {
	MANY = 2000
};

/* VmRSS in KiB. */
static long resident(void)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/statm", "re");
	long size = 0, rss = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld", &size, &rss), 2);
	return rss * sysconf(_SC_PAGESIZE) / 1024;
}

TEST_WITH(many_at_once, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	_listening_ l = world_listen("93.184.0.1", 22);
	struct rlimit files = { 20000, 20000 };
	static int fd[MANY], srv[MANY];
	long before;

	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		skip();
	desk_start(&d, &c, RULES("+.example.com:22/tcp"));
	before = resident();
	for (int i = 0; i < MANY; i++) {
		fd[i] = desk_open(&d, "a.example.com:22");
		/* At most as many at once as this test's resolver has room for. */
		for (int j = i - 63; i % 64 == 63 && j <= i; j++)
			srv[j] = world_accept(w, l);
	}
	for (int j = MANY / 64 * 64; j < MANY; j++)
		srv[j] = world_accept(w, l);
	assert_int_equal(broker_budget(d.b)->streams, MANY);
	for (int i = 0; i < MANY; i++)
		desk_put(srv[i], "hello", 5);
	for (int i = 0; i < MANY; i++)
		world_expect(w, fd[i], "hello", 5);
	print_message("# %d streams at rest, %ld bytes each of this process\n", MANY,
		      (resident() - before) * 1024 / MANY);
	if (!SANITIZED)
		assert_true(resident() - before < 64L * MANY);
	for (int i = 0; i < MANY; i++) {
		(void)fd_close(fd[i]);
		(void)fd_close(srv[i]);
	}
	WORLD_UNTIL(w, d.ended == MANY);
	(void)broker_free(d.b);
}

/* One stream from request to end, with one fault. */
static int live_once(struct world *w, int l)
{
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	struct broker_request req = { 0 };
	struct ruleset *rules = NULL;
	struct ruleset_entry entry = { 0 };
	struct err e = ERR_INIT;
	uint64_t until;
	int fds[2], srv, r;

	assert_int_equal(rule_parse("a.example.com:22", 16, &entry.rule, &e), 0);
	assert_int_equal(target_parse("a.example.com:22", 16, &req.target, &e), 0);
	r = ruleset_new(&entry, 1, &rules);
	if (r < 0)
		return r;
	r = broker_new(&c, rules, &d.b, &e);
	if (r < 0)
		return r;
	world_pair(fds);
	req.fd = fds[1];
	broker_open(d.b, &req);
	(void)!send(fds[0], "\1\2\3", 3, MSG_NOSIGNAL);
	(void)shutdown(fds[0], SHUT_WR);
	/* A lost reply is requested again after a second. */
	until = clock_mono() + 20 * NSEC_PER_SEC;
	while (d.ended == 0 && desk_last(&d)->what != BROKER_DENY && clock_mono() < until) {
		r = loop_once(w->loop, clock_mono() + NSEC_PER_MSEC);
		if (r < 0)
			break;
		srv = accept4(l, NULL, NULL, SOCK_CLOEXEC);
		if (srv >= 0)
			(void)fd_close(srv);
	}
	(void)broker_free(d.b);
	(void)fd_close(fds[0]);
	/* In all cases: one verdict, and one end if it was allowed. */
	assert_int_equal(d.n_seen, d.seen[0].what == BROKER_ALLOW ? 2 : 1);
	return r;
}

TEST_WITH(faults, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	_listening_ l = world_listen("93.184.0.1", 22);

	FAIL_SWEEP_(live_once(w, l), EIO);
}

#define ALLOW(name)                                             \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* The syscalls that a stream may make once the broker exists; any other kills the process. */
static bool lock_down(void)
{
	static const struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		/* Needed by every user of the loop. */
		ALLOW(read),
		ALLOW(write),
		ALLOW(close),
		ALLOW(epoll_pwait),
		ALLOW(epoll_ctl),
		ALLOW(timerfd_settime),
		ALLOW(clock_gettime),
		ALLOW(brk),
		ALLOW(mmap),
		ALLOW(munmap),
		ALLOW(mremap),
		ALLOW(madvise),
		ALLOW(futex),
		ALLOW(exit_group),
		ALLOW(accept4),
#ifdef __NR_epoll_wait
		ALLOW(epoll_wait),
#endif
		/* The broker's own. */
		ALLOW(socket),
		ALLOW(connect),
		ALLOW(setsockopt),
		ALLOW(getsockopt),
		ALLOW(getsockname),
		ALLOW(sendto),
		ALLOW(recvfrom),
		ALLOW(writev),
		ALLOW(shutdown),
		ALLOW(splice),
		ALLOW(pipe2),
		ALLOW(fcntl),
		/* A sanitizer's runtime makes arbitrary calls. */
		BPF_STMT(BPF_RET | BPF_K, SANITIZED ? SECCOMP_RET_LOG : SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog prog = { ARRAY_SIZE(filter), (struct sock_filter *)filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) == 0;
}

/* The child: one stream by name with enough bytes for splice(), and one that is refused. */
static int locked_child(struct desk *d, int client, int l)
{
	static char data[300000];
	size_t sent = 0, got = 0;
	int srv = -1;

	if (!lock_down())
		return 2;
	while (d->ended < 2) {
		ssize_t k = sent < sizeof(data)
				    ? send(client, data, sizeof(data) - sent, MSG_NOSIGNAL)
				    : 0;

		sent += k > 0 ? (size_t)k : 0;
		if (sent == sizeof(data))
			(void)shutdown(client, SHUT_WR);
		if (loop_once(d->w->loop, clock_mono() + NSEC_PER_MSEC) < 0)
			return 3;
		if (srv < 0)
			srv = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		k = srv < 0 ? 0 : recv(srv, data, sizeof(data), 0);
		got += k > 0 ? (size_t)k : 0;
		if (got == sizeof(data))
			(void)shutdown(srv, SHUT_WR);
	}
	return got == sizeof(data) ? 0 : 4;
}

TEST_WITH(system_calls_are_few, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	_listening_ l = world_listen("93.184.0.1", 22);
	_cleanup_proc_ struct proc child = PROC_INIT;
	siginfo_t info = { 0 };
	int client, other, r;

	desk_start(&d, &c, RULES("+.example.com:22/tcp"));
	client = desk_open(&d, "both.example.com:22");
	other = desk_open(&d, "private.example.com:22");
	r = proc_fork(&child);
	if (r > 0)
		_exit(locked_child(&d, client, l));
	assert_int_equal(r, 0);
	assert_int_equal(proc_wait(&child, clock_mono() + 60 * NSEC_PER_SEC, &info), 0);
	assert_int_equal(info.si_code, CLD_EXITED);
	assert_int_equal(info.si_status, 0);
	(void)fd_close(client);
	(void)fd_close(other);
	(void)broker_free(d.b);
}
