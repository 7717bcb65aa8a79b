/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The capture on loopback sockets, with hand-made requests. Direct streams need their own network:
 * test_capture.py tests them.
 */
#include "unit.h"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/str.h"
#include "egress/capture-inner.h"
#include "fail.h"

#define QUERY(name, type) "\x12\x34\1\0\0\1\0\0\0\0\0\0" name "\0\0" type "\0\1"
#define ALLOWED		  QUERY("\7allowed\4test", "\1")
#define DENIED		  QUERY("\6denied\4test", "\1")

struct world {
	struct loop *loop;
	struct capture *capture;
	struct sockaddr_in at[CAPTURE_SOCKETS];
	unsigned int asked, connected;
	bool later;
	uint64_t number; /* the last question's */
	int fd;		 /* the last connection's */
	struct target target;
	enum capture_how how;
};

static const uint8_t key[SIPHASH_KEY];

static enum capture_may ask(const struct name *name, uint64_t number, const char **ret_reason,
			    void *arg)
{
	struct world *w = arg;

	w->asked++;
	w->number = number;
	if (w->later)
		return CAPTURE_MAY_LATER;
	*ret_reason = "not on the list";
	return str_has_suffix(name->text, "allowed.test") ? CAPTURE_MAY : CAPTURE_MAY_NOT;
}

static void on_connect(int fd, const struct target *t, enum capture_how how, void *arg)
{
	struct world *w = arg;

	(void)fd_close(w->fd);
	w->connected++;
	w->fd = fd;
	w->target = *t;
	w->how = how;
}

static const struct capture_ops ops = { .ask = ask, .connect = on_connect };

static int make_sockets(struct world *w, struct capture_sockets *s)
{
	for (size_t i = 0; i < CAPTURE_SOCKETS; i++) {
		int type = i == CAPTURE_DNS_UDP ? SOCK_DGRAM : SOCK_STREAM;
		socklen_t n = sizeof(w->at[i]);

		if (i == CAPTURE_TCP6)
			continue;
		w->at[i] = (struct sockaddr_in){ .sin_family = AF_INET,
						 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		s->fds[i] = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		assert_true(s->fds[i] >= 0);
		assert_int_equal(bind(s->fds[i], (struct sockaddr *)&w->at[i], n), 0);
		assert_int_equal(getsockname(s->fds[i], (struct sockaddr *)&w->at[i], &n), 0);
		if (type == SOCK_STREAM)
			assert_int_equal(listen(s->fds[i], 64), 0);
	}
	return 0;
}

static int begin(struct world *w, size_t names)
{
	struct capture_sockets s = CAPTURE_SOCKETS_INIT;
	int r;

	*w = (struct world){ .fd = -EBADF };
	(void)make_sockets(w, &s);
	r = loop_new(&w->loop);
	if (r == 0)
		r = capture_new(w->loop, &s, names, key, &ops, w, &w->capture);
	capture_sockets_done(&s);
	return r;
}

static void end(struct world *w)
{
	w->fd = fd_close(w->fd);
	w->capture = capture_free(w->capture);
	w->loop = loop_free(w->loop);
}

static int setup(void **state)
{
	static struct world w;

	assert_int_equal(begin(&w, 2), 0);
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	end(*state);
	return 0;
}

static int dial(struct world *w, enum capture_socket which)
{
	int type = which == CAPTURE_DNS_UDP ? SOCK_DGRAM : SOCK_STREAM;
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&w->at[which], sizeof(w->at[which])), 0);
	return fd;
}

/* Runs the loop until `fd` is readable. */
static void turn(struct world *w, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t deadline = clock_mono() + 20 * NSEC_PER_SEC;

	while (poll(&p, 1, 0) == 0) {
		assert_true(clock_mono() < deadline);
		assert_int_equal(loop_once(w->loop, clock_mono() + NSEC_PER_MSEC), 0);
	}
}

static void settle(struct world *w)
{
	for (size_t i = 0; i < 20; i++)
		assert_int_equal(loop_once(w->loop, clock_mono() + NSEC_PER_MSEC), 0);
}

static size_t hear(struct world *w, int fd, void *out, size_t n)
{
	ssize_t k;

	turn(w, fd);
	k = recv(fd, out, n, 0);
	return k > 0 ? (size_t)k : 0;
}

static void say(int fd, const void *data, size_t n)
{
	assert_int_equal(send(fd, data, n, MSG_NOSIGNAL), n);
}

#define SAY(fd, text) say(fd, text, sizeof(text) - 1)

/* ---- DNS ---- */

/* Sends a query; returns the code of the answer, and its address or 0. */
static unsigned int resolve(struct world *w, int fd, const void *query, size_t n, uint32_t *ret)
{
	uint8_t out[DNS_ANSWER_MAX];
	uint32_t addr = 0;
	size_t k;

	say(fd, query, n);
	k = hear(w, fd, out, sizeof(out));
	assert_true(k >= 12 && out[0] == 0x12 && out[1] == 0x34 && (out[2] & 0x80));
	if (out[7] == 1)
		memcpy(&addr, out + k - 4, 4);
	*ret = ntohl(addr);
	return out[3] & 0xf;
}

#define RESOLVE(w, fd, text, ret) resolve(w, fd, text, sizeof(text) - 1, ret)

TEST_WITH(names_get_addresses, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int fd = dial(w, CAPTURE_DNS_UDP);
	uint32_t addr, again;

	assert_int_equal(RESOLVE(w, fd, ALLOWED, &addr), DNS_NOERROR);
	assert_true(pool_has(addr));
	assert_int_equal(RESOLVE(w, fd, QUERY("\7aLLoWeD\4tEsT", "\1"), &again), DNS_NOERROR);
	assert_true(addr == again);
	assert_int_equal(RESOLVE(w, fd, QUERY("\7allowed\4test", "\x1c"), &addr), DNS_NOERROR);
	assert_true(addr == 0);
	assert_int_equal(RESOLVE(w, fd, DENIED, &addr), DNS_NXDOMAIN);
	assert_int_equal(w->asked, 4);
	assert_int_equal(RESOLVE(w, fd, QUERY("\5_http\4_tcp\7allowed\4test", "\x21"), &addr),
			 DNS_NXDOMAIN);
	assert_int_equal(RESOLVE(w, fd, QUERY("\11localhost", "\1"), &addr), DNS_NOERROR);
	assert_true(addr == INADDR_LOOPBACK);
	assert_int_equal(RESOLVE(w, fd, QUERY("", "\2"), &addr), DNS_NOERROR);
	assert_int_equal(RESOLVE(w, fd, QUERY("\3nas", "\1"), &addr), DNS_NXDOMAIN);
	assert_int_equal(w->asked, 4); /* none of these is a valid name */
}

TEST_WITH(addresses_have_names, setup, teardown)
{
	static const char want[] = "\7allowed\4test";
	struct world *w = *state;
	_cleanup_close_ int fd = dial(w, CAPTURE_DNS_UDP);
	uint8_t out[DNS_ANSWER_MAX];
	uint32_t addr;
	size_t n;

#define REVERSE(number)             \
	QUERY("\1" number "\1"      \
	      "1\2"                 \
	      "18\3"                \
	      "198\7in-addr\4arpa", \
	      "\x0c")
	assert_int_equal(RESOLVE(w, fd, REVERSE("0"), &addr), DNS_NXDOMAIN);
	assert_int_equal(RESOLVE(w, fd, ALLOWED, &addr), DNS_NOERROR);
	assert_true(addr == 0xc6120100);
	SAY(fd, REVERSE("0"));
	n = hear(w, fd, out, sizeof(out));
	assert_true(n > sizeof(want) && (out[3] & 0xf) == 0 && out[7] == 1);
	assert_memory_equal(out + n - sizeof(want), want, sizeof(want));
	assert_int_equal(RESOLVE(w, fd, REVERSE("1"), &addr), DNS_NXDOMAIN);
#undef REVERSE
}

TEST_WITH(names_have_a_limit, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int fd = dial(w, CAPTURE_DNS_UDP);
	uint32_t addr;

	assert_int_equal(RESOLVE(w, fd, QUERY("\1a\7allowed\4test", "\1"), &addr), DNS_NOERROR);
	assert_int_equal(RESOLVE(w, fd, QUERY("\1b\7allowed\4test", "\1"), &addr), DNS_NOERROR);
	assert_int_equal(RESOLVE(w, fd, QUERY("\1c\7allowed\4test", "\1"), &addr), DNS_NXDOMAIN);
	assert_int_equal(RESOLVE(w, fd, QUERY("\1a\7allowed\4test", "\1"), &addr), DNS_NOERROR);
}

TEST_WITH(wrong_datagrams, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int fd = dial(w, CAPTURE_DNS_UDP);
	char large[DNS_QUERY_MAX + 1] = ALLOWED;
	uint32_t addr;

	SAY(fd, "x");
	SAY(fd, "\x12\x34\x81\0\0\1\0\0\0\0\0\0");
	say(fd, large, sizeof(large));
	/* These get no answer: the next answer belongs to the next query. */
	assert_int_equal(RESOLVE(w, fd, QUERY("\xc0\x0c", "\1"), &addr), DNS_FORMERR);
	say(fd, large, sizeof(large) - 1);
	assert_int_equal(RESOLVE(w, fd, ALLOWED, &addr), DNS_FORMERR);
}

TEST_WITH(a_flood_is_taken_in_rounds, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int fd = dial(w, CAPTURE_DNS_UDP);

	for (size_t i = 0; i < 3 * QUERIES_MAX; i++)
		SAY(fd, DENIED);
	assert_int_equal(loop_once(w->loop, clock_mono() + NSEC_PER_SEC), 0);
	assert_int_equal(w->asked, QUERIES_MAX);
	assert_int_equal(loop_once(w->loop, clock_mono() + NSEC_PER_SEC), 0);
	assert_int_equal(w->asked, 2 * QUERIES_MAX);
}

#define TCP_QUERY "\0\x1e" QUERY("\7allowed\4test", "\1")

TEST_WITH(questions_by_tcp, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int fd = dial(w, CAPTURE_DNS_TCP);
	static const char three[] = TCP_QUERY TCP_QUERY TCP_QUERY;
	uint8_t out[512];
	size_t got = 0;

	static_assert(sizeof(ALLOWED) - 1 == 0x1e, "the length is written out above");
	for (size_t i = 0; i < sizeof(three) - 1; i++) {
		say(fd, three + i, 1);
		if (i % 7 == 0)
			settle(w);
	}
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	while (got < 3 * (2 + 0x1e + 16)) {
		size_t k = hear(w, fd, out + got, sizeof(out) - got);

		assert_true(k > 0);
		got += k;
	}
	assert_int_equal(got, 3 * (2 + 0x1e + 16));
	assert_int_equal(out[1], 0x1e + 16);
	assert_int_equal(out[48 + 1], 0x1e + 16);
	assert_int_equal(hear(w, fd, out, sizeof(out)), 0);
}

TEST_WITH(wrong_questions_by_tcp, setup, teardown)
{
	struct world *w = *state;
	static const char *const wrong[] = { "\xff\xff", "\4\xd1x", "\1\xff" };
	char out[16];

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		_cleanup_close_ int fd = dial(w, CAPTURE_DNS_TCP);

		say(fd, wrong[i], 2);
		if (i == 2) { /* long enough, but not a query */
			char zeros[0x1ff] = { 0, 0, (char)0x80 };

			say(fd, zeros, sizeof(zeros));
		}
		assert_int_equal(hear(w, fd, out, sizeof(out)), 0);
	}
}

/* One connection too many waits until another ends. */
TEST_WITH(rooms_are_limited, setup, teardown)
{
	struct world *w = *state;
	int fds[DNS_CLIENTS_MAX + 1];
	char out[512];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = dial(w, CAPTURE_DNS_TCP);
	settle(w);
	assert_int_equal(w->capture->n_dns, DNS_CLIENTS_MAX);
	SAY(fds[DNS_CLIENTS_MAX], TCP_QUERY);
	settle(w);
	assert_true(recv(fds[DNS_CLIENTS_MAX], out, sizeof(out), MSG_DONTWAIT) < 0);
	(void)close(fds[0]);
	assert_int_equal(hear(w, fds[DNS_CLIENTS_MAX], out, sizeof(out)), 48);
	for (size_t i = 1; i < ARRAY_SIZE(fds); i++)
		(void)close(fds[i]);
	settle(w);
	assert_int_equal(w->capture->n_dns, 0);
}

/* ---- late answers ---- */

static unsigned int code_of(struct world *w, int fd)
{
	uint8_t out[DNS_ANSWER_MAX] = { 0 };

	assert_true(hear(w, fd, out, sizeof(out)) >= 12);
	return out[3] & 0xf;
}

TEST_WITH(a_late_answer, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int fd = dial(w, CAPTURE_DNS_UDP), other = dial(w, CAPTURE_DNS_UDP);
	uint64_t first;
	char out[16];

	w->later = true;
	SAY(fd, ALLOWED);
	settle(w);
	first = w->number;
	SAY(other, DENIED);
	settle(w);
	assert_int_equal(w->asked, 2);
	assert_int_equal(w->capture->n_questions, 2);
	assert_true(recv(fd, out, sizeof(out), MSG_DONTWAIT) < 0);
	/* In any order; each answer goes to its client. */
	capture_answered(w->capture, w->number, false, "not on the list");
	assert_int_equal(code_of(w, other), DNS_NXDOMAIN);
	assert_true(recv(fd, out, sizeof(out), MSG_DONTWAIT) < 0);
	capture_answered(w->capture, first, true, NULL);
	assert_int_equal(code_of(w, fd), DNS_NOERROR);
	assert_int_equal(w->capture->n_questions, 0);
	/* Unknown numbers, and one that no question waits for. */
	capture_answered(w->capture, first, true, NULL);
	capture_answered(w->capture, 0, true, NULL);
	capture_answered(w->capture, UINT64_MAX, true, NULL);
	assert_true(recv(fd, out, sizeof(out), MSG_DONTWAIT) < 0);
}

/* One question per client at a time; a client's disconnect drops its question. */
TEST_WITH(late_answers_by_tcp, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int fd = dial(w, CAPTURE_DNS_TCP), gone = dial(w, CAPTURE_DNS_TCP);
	const struct linger reset = { .l_onoff = 1 };
	char out[512];

	w->later = true;
	SAY(fd, TCP_QUERY TCP_QUERY);
	settle(w);
	assert_int_equal(w->asked, 1);
	capture_answered(w->capture, w->number, true, NULL);
	assert_int_equal(hear(w, fd, out, sizeof(out)), 48);
	settle(w);
	assert_int_equal(w->asked, 2);
	capture_answered(w->capture, w->number, false, "no");
	assert_true(hear(w, fd, out, sizeof(out)) > 2);
	assert_int_equal(out[5] & 0xf, DNS_NXDOMAIN);
	SAY(gone, TCP_QUERY);
	settle(w);
	assert_int_equal(w->capture->n_questions, 1);
	assert_int_equal(setsockopt(gone, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
	(void)fd_close(TAKE_FD(gone));
	settle(w);
	assert_int_equal(w->capture->n_questions, 0);
	capture_answered(w->capture, w->number, true, NULL);
}

/* A full table stops UDP until there is an answer, and fails TCP queries at once. */
TEST_WITH(late_answers_are_limited, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int fd = dial(w, CAPTURE_DNS_UDP), tcp = dial(w, CAPTURE_DNS_TCP);
	char out[512];

	w->later = true;
	for (size_t i = 0; i < QUESTIONS_MAX + 1; i++)
		SAY(fd, ALLOWED);
	settle(w);
	assert_int_equal(w->asked, QUESTIONS_MAX);
	SAY(tcp, TCP_QUERY);
	assert_true(hear(w, tcp, out, sizeof(out)) > 2);
	assert_int_equal(out[5] & 0xf, DNS_SERVFAIL);
	assert_int_equal(w->asked, QUESTIONS_MAX);
	capture_answered(w->capture, w->number, true, NULL);
	assert_int_equal(code_of(w, fd), DNS_NOERROR);
	settle(w);
	assert_int_equal(w->asked, QUESTIONS_MAX + 1);
	/* No answer comes: the capture reports that before the program's own timeout. */
	assert_int_equal(code_of(w, fd), DNS_SERVFAIL);
	for (size_t i = 0; w->capture->n_questions > 0; i++) {
		assert_true(i < 1000);
		settle(w);
	}
}

/* ---- the proxy ---- */

#define CONNECT "CONNECT allowed.test:443 HTTP/1.1\r\nHost: x\r\n\r\n"

TEST_WITH(connect_leaves_what_follows, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int fd = dial(w, CAPTURE_PROXY);
	char out[512];
	size_t n;

	SAY(fd, "CONN");
	settle(w);
	SAY(fd, "ECT allowed.test:443 HTTP/1.1\r\n\r\nhello");
	settle(w);
	assert_int_equal(w->connected, 1);
	assert_int_equal(w->how, CAPTURE_BY_CONNECT);
	assert_string_equal(w->target.name.text, "allowed.test");
	assert_int_equal(w->target.port, 443);
	assert_int_equal(recv(w->fd, out, sizeof(out), MSG_DONTWAIT), 5);
	assert_memory_equal(out, "hello", 5);
	assert_int_equal(capture_reply(w->fd, w->how, FRONT_OK, NULL), 0);
	n = hear(w, fd, out, sizeof(out));
	assert_memory_equal(out, "HTTP/1.1 200 ", 13);
	assert_memory_equal(out + n - 4, "\r\n\r\n", 4);
	assert_int_equal(w->capture->n_heads, 0);
}

TEST_WITH(socks_in_steps, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int fd = dial(w, CAPTURE_PROXY);
	char out[16];

	SAY(fd, "\5\1\0");
	assert_int_equal(hear(w, fd, out, sizeof(out)), 2);
	SAY(fd, "\5\1\0\3\14allowed.test\0\x16");
	settle(w);
	assert_int_equal(w->connected, 1);
	assert_int_equal(w->how, CAPTURE_BY_SOCKS5);
	assert_int_equal(w->target.port, 22);
	capture_refuse(TAKE_FD(w->fd), w->how, FRONT_DENIED, "no");
	assert_int_equal(hear(w, fd, out, sizeof(out)), 10);
	assert_int_equal(out[1], 2);
	assert_int_equal(hear(w, fd, out, sizeof(out)), 0);
}

/* An address of ours stands for its name even if the program connects by address; an unassigned
 * address is refused. */
TEST_WITH(addresses_of_ours_are_names, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int dns = dial(w, CAPTURE_DNS_UDP), fd = dial(w, CAPTURE_PROXY),
			    none = dial(w, CAPTURE_PROXY), own = dial(w, CAPTURE_PROXY);
	char out[512];
	uint32_t addr;

	assert_int_equal(RESOLVE(w, dns, ALLOWED, &addr), DNS_NOERROR);
	SAY(fd, "CONNECT 198.18.1.0:443 HTTP/1.1\r\n\r\n");
	settle(w);
	assert_int_equal(w->connected, 1);
	assert_false(w->target.is_addr);
	assert_string_equal(w->target.name.text, "allowed.test");
	SAY(none, "CONNECT 198.18.1.1:443 HTTP/1.1\r\n\r\n");
	assert_true(hear(w, none, out, sizeof(out)) > 12);
	assert_memory_equal(out, "HTTP/1.1 403", 12);
	SAY(own, "CONNECT 127.0.0.1:53 HTTP/1.1\r\n\r\n");
	assert_true(hear(w, own, out, sizeof(out)) > 12);
	assert_memory_equal(out, "HTTP/1.1 403", 12);
	assert_int_equal(w->connected, 1);
}

TEST_WITH(wrong_heads, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int get = dial(w, CAPTURE_PROXY), method = dial(w, CAPTURE_PROXY),
			    direct = dial(w, CAPTURE_TCP);
	char out[512];

	SAY(get, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	assert_true(hear(w, get, out, sizeof(out)) > 12);
	assert_memory_equal(out, "HTTP/1.1 501", 12);
	SAY(method, "\5\1\1");
	assert_int_equal(hear(w, method, out, sizeof(out)), 2);
	assert_int_equal(hear(w, method, out, sizeof(out)), 0);
	/* A stream to the sandbox's own loopback. */
	turn(w, direct);
	assert_true(recv(direct, out, sizeof(out), 0) < 0 && errno == ECONNRESET);
	assert_int_equal(w->connected, 0);
}

TEST_WITH(heads_are_limited_and_in_time, setup, teardown)
{
	struct world *w = *state;
	int fds[HEADS_MAX + 1];
	_cleanup_close_ int dns = dial(w, CAPTURE_DNS_TCP);
	char out[512];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = dial(w, CAPTURE_PROXY);
	settle(w);
	assert_int_equal(w->capture->n_heads, HEADS_MAX);
	SAY(fds[HEADS_MAX], CONNECT);
	settle(w);
	assert_int_equal(w->connected, 0);
	(void)close(fds[0]);
	settle(w);
	assert_int_equal(w->connected, 1);
	/* Silent clients are closed at their timeout. */
	for (size_t i = 1; i < HEADS_MAX; i++) {
		assert_int_equal(hear(w, fds[i], out, sizeof(out)), 0);
		(void)close(fds[i]);
	}
	assert_int_equal(hear(w, dns, out, sizeof(out)), 0);
	assert_int_equal(w->capture->n_heads + w->capture->n_dns, 0);
	(void)close(fds[HEADS_MAX]);
}

/* ---- file descriptors ---- */

/* Without free file descriptors, pending connections wait: the loop does not spin, and none is
 * lost. */
TEST_WITH(without_descriptors_it_waits, setup, teardown)
{
	struct world *w = *state;
	_cleanup_close_ int fd = dial(w, CAPTURE_PROXY), room = dup(fd);
	struct rlimit was, none;
	size_t rounds = 0;
	uint64_t end_at;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = (struct rlimit){ .rlim_cur = (rlim_t)room, .rlim_max = was.rlim_max };
	room = fd_close(room);
	SAY(fd, CONNECT);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	for (end_at = clock_mono() + 250 * NSEC_PER_MSEC; clock_mono() < end_at; rounds++)
		assert_int_equal(loop_once(w->loop, end_at), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_int_equal(w->connected, 0);
	assert_true(rounds < 20);
	for (end_at = clock_mono() + 20 * NSEC_PER_SEC; !w->connected && clock_mono() < end_at;)
		assert_int_equal(loop_once(w->loop, end_at), 0);
	assert_int_equal(w->connected, 1);
}

/* In the order of a packet. */
TEST(sockets_find_their_places)
{
	struct capture_sockets s = CAPTURE_SOCKETS_INIT;

	assert_int_equal(capture_sockets_mask(&s), 0);
	assert_int_equal(capture_sockets_place(&s, 0), 0);
	for (int i = 0; i < CAPTURE_SOCKETS - 1; i++)
		s.fds[i] = 100 + i;
	assert_int_equal(capture_sockets_place(&s, 0x1f), -EBADMSG); /* more than there are */
	assert_int_equal(capture_sockets_place(&s, 0x7), -EBADMSG);  /* fewer */
	assert_int_equal(capture_sockets_place(&s, 0x1f & ~(1 << CAPTURE_TCP6)), 0);
	assert_int_equal(s.fds[CAPTURE_TCP], 100);
	assert_int_equal(s.fds[CAPTURE_TCP6], -EBADF);
	assert_int_equal(s.fds[CAPTURE_PROXY], 103);
	assert_int_equal(capture_sockets_mask(&s), 0x1f & ~(1 << CAPTURE_TCP6));
}

/* ---- faults ---- */

/* Uses each socket once; with a fault a client is turned away, and nothing leaks. */
static int use_all(void)
{
	static const enum capture_socket which[] = { CAPTURE_TCP, CAPTURE_DNS_TCP, CAPTURE_PROXY };
	struct world w;
	int r = begin(&w, 2);

	for (size_t i = 0; i < ARRAY_SIZE(which) && r == 0; i++) {
		_cleanup_close_ int fd = dial(&w, which[i]);

		(void)!send(fd, TCP_QUERY, sizeof(TCP_QUERY) - 1, MSG_NOSIGNAL);
		for (size_t k = 0; k < 4 && r == 0; k++)
			r = loop_once(w.loop, 0);
	}
	end(&w);
	return r;
}

TEST(anything_may_fail)
{
	FAIL_SWEEP(use_all());
}
