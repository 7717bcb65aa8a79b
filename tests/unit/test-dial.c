/* SPDX-License-Identifier: Apache-2.0 */
#include "test-egress.h"

#include "egress/dial.h"
#include "fail.h"

struct result {
	bool done;
	int fd;
	struct addr a;
};

static void on_done(struct dial *d, int fd, const struct addr *a)
{
	struct result *r = d->arg;

	r->done = true;
	r->fd = fd;
	if (a)
		r->a = *a;
}

static struct addr addr(const char *text)
{
	struct addr a;
	struct err e;

	assert_int_equal(addr_parse(text, strlen(text), &a, &e), 0);
	return a;
}

#define ADDRS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static struct result dial_all(struct world *w, bool not_here, const char *const *texts)
{
	struct result res = { 0 };
	struct dial d = { .done = on_done, .arg = &res, .not_here = not_here };
	struct addr v[16];
	size_t n = 0;
	int r;

	for (; texts[n]; n++)
		v[n] = addr(texts[n]);
	r = dial_start(&d, w->loop, v, n, 4433);
	if (r < 0)
		return (struct result){ .done = true, .fd = r };
	WORLD_UNTIL(w, res.done);
	return res;
}

TEST_WITH(v6_comes_first, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	_listening_ v4 = world_listen("93.184.0.1", 4433);
	_listening_ v6 = world_listen("2606:2800::1", 4433);
	struct result r = dial_all(w, true, ADDRS("93.184.0.1", "2606:2800::1"));
	size_t fds;

	assert_true(r.fd >= 0);
	assert_int_equal(r.a.family, 6);
	(void)fd_close(r.fd);
	fds = fail_count_fds();
	/* After an immediate refusal, the next address is tried at once. */
	r = dial_all(w, true, ADDRS("93.184.0.1", "2606:2800::9"));
	assert_true(r.fd >= 0);
	assert_int_equal(r.a.family, 4);
	(void)fd_close(r.fd);
	assert_int_equal(fail_count_fds(), fds);
}

/* A listener with a full queue: connections to it get no answer. */
static int listen_full(const char *text, int fillers[3])
{
	int fd = world_listen(text, 4433);
	socklen_t n;
	struct sockaddr_storage ss = world_addr(text, 4433, &n);

	assert_int_equal(listen(fd, 0), 0);
	for (size_t i = 0; i < 3; i++) {
		fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		(void)connect(fillers[i], (struct sockaddr *)&ss, n);
	}
	return fd;
}

TEST_WITH(silent_addresses_are_overtaken, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	_listening_ v4 = world_listen("93.184.0.1", 4433);
	int fillers[3];
	_listening_ full = listen_full("93.184.0.5", fillers);
	uint64_t start;
	struct result r;

	world_rest(w, 20);
	start = clock_mono();
	r = dial_all(w, true, ADDRS("93.184.0.5", "93.184.0.1"));
	assert_true(r.fd >= 0);
	assert_int_equal(r.a.bytes[3], 1);
	assert_true(clock_mono() - start >= DIAL_STAGGER_MS * NSEC_PER_MSEC);
	(void)fd_close(r.fd);
	/* An address that cannot even be tried costs no time. */
	r = dial_all(w, true, ADDRS("2606:2801::1", "93.184.0.1"));
	assert_true(r.fd >= 0);
	(void)fd_close(r.fd);
	for (size_t i = 0; i < 3; i++)
		(void)fd_close(fillers[i]);
}

TEST_WITH(nobody_answers, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	size_t fds = fail_count_fds();

	assert_int_equal(dial_all(w, true, ADDRS("93.184.0.1", "2606:2800::1")).fd, -ECONNREFUSED);
	assert_int_equal(dial_all(w, true, ADDRS("8.8.8.8")).fd, -ENETUNREACH);
	assert_int_equal(fail_count_fds(), fds);
}

TEST_WITH(own_addresses_are_known, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	_listening_ l = world_listen("93.185.0.1", 4433);
	struct result r;

	assert_int_equal(dial_all(w, true, ADDRS("93.185.0.1")).fd, -EXDEV);
	/* The listener has seen no connection. */
	assert_int_equal(accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), -1);
	assert_int_equal(errno, EAGAIN);
	r = dial_all(w, false, ADDRS("93.185.0.1"));
	assert_true(r.fd >= 0);
	(void)fd_close(r.fd);
}

TEST_WITH(stopped_calls_nobody, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	size_t fds = fail_count_fds();
	struct result res = { 0 };
	struct dial d = { .done = on_done, .arg = &res };
	struct addr a = addr("93.184.0.1");

	assert_int_equal(dial_start(&d, w->loop, &a, 1, 4433), 0);
	dial_stop(&d);
	dial_stop(&d);
	world_rest(w, 50);
	assert_false(res.done);
	assert_int_equal(fail_count_fds(), fds);
}
