/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/proc.h"
#include "fail.h"

enum {
	MANY = 2000,
	FDS = 150 /* more than epoll_wait() fetches at once */
};

struct box {
	struct loop *loop;
};

static int setup(void **state)
{
	struct box *b = calloc(1, sizeof(*b));

	*state = b;
	return b ? loop_new(&b->loop) : -1;
}

static int teardown(void **state)
{
	struct box *b = *state;

	b->loop = loop_free(b->loop);
	free(b);
	return 0;
}

/* A file descriptor that is always readable, and its source. */
struct ready {
	struct loop_fd src;
	struct ready *victim;
	int hits;
	uint32_t last;
};

static int readable_fd(void)
{
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(write(fds[1], "x", 1), 1);
	(void)fd_close(fds[1]);
	return fds[0];
}

static void count_fd(struct loop_fd *src, uint32_t events)
{
	struct ready *r = src->arg;

	r->hits++;
	r->last = events;
}

static void ready_init(struct loop *l, struct ready *r, void (*cb)(struct loop_fd *, uint32_t))
{
	*r = (struct ready){ .src = { .cb = cb, .arg = r } };
	assert_int_equal(loop_add_fd(l, &r->src, readable_fd(), EPOLLIN), 0);
}

static void ready_done(struct ready *r)
{
	loop_del_fd(&r->src);
	(void)fd_close(r->src.fd);
}

TEST_WITH(a_descriptor_is_reported_while_it_is_ready, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct ready r;

	ready_init(l, &r, count_fd);
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(loop_once(l, UINT64_MAX), 0);
	assert_int_equal(r.hits, 2);
	assert_int_equal(r.last, EPOLLIN | EPOLLHUP); /* the writer is gone */
	loop_del_fd(&r.src);
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(r.hits, 2);
	ready_done(&r);
}

TEST_WITH(events_can_be_changed, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct ready r = { .src = { .cb = count_fd, .arg = &r } };
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(loop_add_fd(l, &r.src, fds[1], 0), 0);
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(r.hits, 0);
	assert_int_equal(loop_mod_fd(&r.src, EPOLLOUT), 0);
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(r.hits, 1);
	assert_int_equal(r.last, EPOLLOUT);
	assert_int_equal(loop_mod_fd(&r.src, 0), 0);
	(void)fd_close(fds[0]);
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(r.last, EPOLLERR); /* EPOLLERR cannot be masked */
	ready_done(&r);
}

TEST_WITH(misuse_is_refused, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct loop_signal sig = { 0 };
	struct loop_timer timer = { 0 };
	struct loop_fd none = { 0 };
	struct ready r;

	ready_init(l, &r, count_fd);
	assert_int_equal(loop_add_fd(l, &r.src, r.src.fd, EPOLLIN), -EEXIST);
	assert_int_equal(loop_add_fd(l, &none, r.src.fd, EPOLLIN), -EEXIST); /* error of epoll */
	assert_int_equal(loop_add_fd(l, &none, -1, EPOLLIN), -EBADF);
	assert_int_equal(loop_mod_fd(&none, EPOLLIN), -ENOENT);
	loop_del_fd(&none);
	loop_del_timer(&timer);
	loop_del_signal(&sig);
	assert_null(loop_free(NULL));
	ready_done(&r);
	assert_int_equal(loop_mod_fd(&r.src, EPOLLIN), -ENOENT);
}

TEST_WITH(a_regular_file_is_refused, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct loop_fd src = { 0 };

	assert_int_equal(loop_add_fd(l, &src, fd, EPOLLIN), -EPERM);
	assert_null(src.loop);
}

TEST_WITH(all_are_served_though_they_are_many, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct ready r[FDS];

	for (size_t i = 0; i < FDS; i++)
		ready_init(l, &r[i], count_fd);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(loop_once(l, 0), 0);
	for (size_t i = 0; i < FDS; i++) {
		assert_true(r[i].hits >= 1);
		ready_done(&r[i]);
	}
}

/* Frees itself and its victim: the memory is gone when the round continues. */
static int kills;

static void kill_both(struct loop_fd *src, uint32_t events)
{
	struct ready *r = src->arg;

	kills++;
	ready_done(r->victim);
	free(r->victim);
	ready_done(r);
	free(r);
}

TEST_WITH(what_is_deleted_in_a_round_is_not_called, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct ready *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));

	ready_init(l, a, kill_both);
	ready_init(l, b, kill_both);
	a->victim = b;
	b->victim = a;
	kills = 0;
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(kills, 1);
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(kills, 1);
}

static int quiet[2];

/* Removes the other source and adds it again, for a file descriptor without data. */
static void replace_other(struct loop_fd *src, uint32_t events)
{
	struct ready *r = src->arg, *victim = r->victim;

	r->hits++;
	ready_done(victim);
	assert_int_equal(loop_add_fd(src->loop, &victim->src, quiet[0], EPOLLIN), 0);
}

TEST_WITH(what_is_replaced_in_a_round_is_not_called, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct ready a, b;

	assert_int_equal(pipe2(quiet, O_CLOEXEC), 0);
	ready_init(l, &a, replace_other);
	ready_init(l, &b, replace_other);
	a.victim = &b;
	b.victim = &a;
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(a.hits + b.hits, 1);
	ready_done(&a);
	ready_done(&b);
	(void)fd_close(quiet[1]);
}

static void mute_other(struct loop_fd *src, uint32_t events)
{
	struct ready *r = src->arg;

	r->hits++;
	assert_int_equal(loop_mod_fd(&r->victim->src, EPOLLOUT), 0);
}

static int full_pipe[2];

/* Sources whose file descriptor has no hang-up, so that a changed mask leaves nothing to report. */
TEST_WITH(what_is_muted_in_a_round_is_not_called, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct ready a = { .src = { .cb = mute_other, .arg = &a } };
	struct ready b = { .src = { .cb = mute_other, .arg = &b } };
	_cleanup_close_ int second = -EBADF;

	assert_int_equal(pipe2(full_pipe, O_CLOEXEC), 0);
	assert_int_equal(write(full_pipe[1], "x", 1), 1);
	second = fcntl(full_pipe[0], F_DUPFD_CLOEXEC, 3);
	a.victim = &b;
	b.victim = &a;
	assert_int_equal(loop_add_fd(l, &a.src, full_pipe[0], EPOLLIN), 0);
	assert_int_equal(loop_add_fd(l, &b.src, second, EPOLLIN), 0);
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(a.hits + b.hits, 1);
	loop_del_fd(&a.src);
	loop_del_fd(&b.src);
	(void)fd_close(full_pipe[0]);
	(void)fd_close(full_pipe[1]);
}

struct tick {
	struct loop_timer timer;
	uint64_t when;
	int hits;
};

static uint64_t last_when;
static int fired, too_early, out_of_order;

static void on_tick(struct loop_timer *src)
{
	struct tick *t = src->arg;

	fired++;
	t->hits++;
	too_early += t->when > clock_mono();
	out_of_order += t->when < last_when;
	last_when = t->when;
}

static uint32_t dice(void)
{
	static uint32_t seed = 12345;

	seed = seed * 1664525 + 1013904223;
	return seed >> 8;
}

static void run_ticks(struct loop *l, int want)
{
	uint64_t deadline = clock_mono() + 20 * NSEC_PER_SEC;

	last_when = 0;
	fired = too_early = out_of_order = 0;
	while (fired < want && clock_mono() < deadline)
		assert_int_equal(loop_once(l, deadline), 0);
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(fired, want);
	assert_int_equal(too_early, 0);
	assert_int_equal(out_of_order, 0);
}

TEST_WITH(timers_fire_in_order_and_never_early, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct tick *t = calloc(MANY, sizeof(*t));
	uint64_t now = clock_mono();
	int gone = 0;

	for (size_t i = 0; i < MANY; i++) {
		t[i].timer = (struct loop_timer){ .cb = on_tick, .arg = &t[i] };
		t[i].when = now + dice() % (20 * NSEC_PER_MSEC);
		assert_int_equal(loop_set_timer(l, &t[i].timer, t[i].when), 0);
	}
	for (size_t i = 0; i < MANY; i++) {
		unsigned int what = dice() % 4;

		if (what == 0) { /* elsewhere, both ways */
			t[i].when = now + dice() % (20 * NSEC_PER_MSEC);
			assert_int_equal(loop_set_timer(l, &t[i].timer, t[i].when), 0);
		} else if (what == 1) {
			loop_del_timer(&t[i].timer);
			loop_del_timer(&t[i].timer);
			t[i].hits = 1;
			gone++;
		}
	}
	run_ticks(l, MANY - gone);
	for (size_t i = 0; i < MANY; i++) {
		assert_int_equal(t[i].hits, 1);
		assert_int_equal(t[i].timer.slot, 0);
	}
	free(t);
}

TEST_WITH(a_due_timer_fires_when_polled, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct tick t = { .timer = { .cb = on_tick, .arg = &t } };

	for (int i = 1; i <= 100; i++) {
		assert_int_equal(loop_set_timer(l, &t.timer, 0), 0);
		assert_int_equal(loop_once(l, 0), 0);
		assert_int_equal(t.hits, i);
	}
}

static struct tick *prey;

static void del_prey(struct loop_timer *src)
{
	on_tick(src);
	loop_del_timer(&prey->timer);
}

TEST_WITH(a_timer_deleted_by_another_does_not_fire, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct tick a = { .timer = { .cb = del_prey, .arg = &a } };
	struct tick b = { .timer = { .cb = on_tick, .arg = &b } };

	prey = &b;
	assert_int_equal(loop_set_timer(l, &b.timer, 2), 0);
	assert_int_equal(loop_set_timer(l, &a.timer, 1), 0);
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(a.hits, 1);
	assert_int_equal(b.hits, 0);
}

static void again_at_once(struct loop_timer *src)
{
	struct tick *t = src->arg;

	t->hits++;
	assert_int_equal(loop_set_timer(prey->timer.arg, src, 0), 0);
}

TEST_WITH(an_eager_timer_starves_nobody, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct tick eager = { .timer = { .cb = again_at_once, .arg = &eager } };
	struct tick other = { .timer = { .cb = on_tick, .arg = &other } };
	struct tick holder = { .timer = { .arg = l } };
	struct ready r;

	prey = &holder;
	ready_init(l, &r, count_fd);
	assert_int_equal(loop_set_timer(l, &eager.timer, 0), 0);
	other.when = clock_mono() + NSEC_PER_MSEC;
	assert_int_equal(loop_set_timer(l, &other.timer, other.when), 0);
	while (other.hits == 0)
		assert_int_equal(loop_once(l, UINT64_MAX), 0);
	assert_true(eager.hits > 1);
	assert_int_equal(eager.hits, r.hits); /* once a round, like all others */
	loop_del_timer(&eager.timer);
	ready_done(&r);
}

/* The timerfd stays armed for the deleted timer. */
TEST_WITH(a_timer_after_one_that_was_deleted, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct tick first = { .timer = { .cb = on_tick, .arg = &first } }, second = first;
	struct ready r;

	ready_init(l, &r, count_fd);
	second.timer.arg = &second;
	first.when = clock_mono() + 20 * NSEC_PER_MSEC;
	second.when = first.when + 20 * NSEC_PER_MSEC;
	assert_int_equal(loop_set_timer(l, &first.timer, first.when), 0);
	assert_int_equal(loop_once(l, UINT64_MAX), 0); /* the descriptor is ready */
	loop_del_timer(&first.timer);
	ready_done(&r);
	assert_int_equal(loop_set_timer(l, &second.timer, second.when), 0);
	fired = too_early = 0;
	while (second.hits == 0)
		assert_int_equal(loop_once(l, UINT64_MAX), 0);
	assert_int_equal(first.hits, 0);
	assert_true(clock_mono() >= second.when);
}

TEST_WITH(timers_are_limited, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct loop_timer *t = calloc(LOOP_TIMERS_MAX + 1, sizeof(*t));

	for (size_t i = 0; i < LOOP_TIMERS_MAX; i++)
		assert_int_equal(loop_set_timer(l, &t[i], UINT64_MAX - i), 0);
	assert_int_equal(loop_set_timer(l, &t[LOOP_TIMERS_MAX], 1), -ENOSPC);
	assert_int_equal(loop_set_timer(l, &t[7], UINT64_MAX), 0); /* no allocation */
	loop_del_timer(&t[0]);
	assert_int_equal(loop_set_timer(l, &t[LOOP_TIMERS_MAX], UINT64_MAX), 0);
	assert_int_equal(loop_once(l, 0), 0);
	for (size_t i = 0; i <= LOOP_TIMERS_MAX; i++)
		loop_del_timer(&t[i]);
	free(t);
}

TEST_WITH(the_deadline_is_kept, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct tick later = { .timer = { .cb = on_tick, .arg = &later } };
	uint64_t start = clock_mono();

	assert_int_equal(loop_set_timer(l, &later.timer, start + 100 * NSEC_PER_SEC), 0);
	assert_int_equal(loop_once(l, start + 5 * NSEC_PER_MSEC), 0);
	assert_true(clock_mono() >= start + 5 * NSEC_PER_MSEC);
	assert_true(clock_mono() < start + 5 * NSEC_PER_SEC);
	assert_int_equal(loop_once(l, start), 0); /* passed: a poll */
	assert_true(clock_mono() < start + 5 * NSEC_PER_SEC);
	assert_int_equal(later.hits, 0);
	loop_del_timer(&later.timer);
}

struct heard {
	struct loop_signal src;
	struct loop_signal *victim;
	int hits;
};

static void on_signal(struct loop_signal *src, int signo)
{
	struct heard *h = src->arg;

	assert_int_equal(signo, src->signo);
	h->hits++;
	if (h->victim)
		loop_del_signal(h->victim);
}

static bool is_blocked(int signo)
{
	sigset_t now;

	assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
	return sigismember(&now, signo) == 1;
}

TEST_WITH(signals_are_heard, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct heard a = { .src = { .cb = on_signal, .arg = &a } };
	struct heard b = { .src = { .cb = on_signal, .arg = &b } };

	assert_int_equal(loop_add_signal(l, &a.src, SIGUSR1), 0);
	assert_int_equal(loop_add_signal(l, &b.src, SIGTERM), 0);
	assert_true(is_blocked(SIGUSR1) && is_blocked(SIGTERM));
	assert_int_equal(raise(SIGUSR1), 0);
	assert_int_equal(raise(SIGTERM), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(a.hits, 1);
	assert_int_equal(b.hits, 1);
	loop_del_signal(&a.src);
	assert_false(is_blocked(SIGUSR1));
	assert_true(is_blocked(SIGTERM));
	loop_del_signal(&b.src);
	loop_del_signal(&b.src);
	assert_false(is_blocked(SIGTERM));
}

TEST_WITH(one_source_for_a_signal, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct heard a = { .src = { .cb = on_signal, .arg = &a } };
	struct heard b = { .src = { .cb = on_signal, .arg = &b } };

	assert_int_equal(loop_add_signal(l, &a.src, SIGUSR1), 0);
	assert_int_equal(loop_add_signal(l, &b.src, SIGUSR1), -EBUSY);
	assert_int_equal(loop_add_signal(l, &a.src, SIGUSR2), -EBUSY);
	assert_int_equal(loop_add_signal(l, &b.src, SIGKILL), -EINVAL);
	assert_int_equal(loop_add_signal(l, &b.src, SIGSTOP), -EINVAL);
	assert_int_equal(loop_add_signal(l, &b.src, 0), -EINVAL);
	assert_int_equal(loop_add_signal(l, &b.src, -1), -EINVAL);
	assert_int_equal(loop_add_signal(l, &b.src, NSIG), -EINVAL);
	assert_false(is_blocked(SIGUSR2));
	loop_del_signal(&a.src);
	assert_int_equal(loop_add_signal(l, &b.src, SIGUSR1), 0);
	loop_del_signal(&b.src);
}

TEST_WITH(what_was_blocked_stays_blocked, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct heard a = { .src = { .cb = on_signal, .arg = &a } };
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGUSR1);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
	assert_int_equal(loop_add_signal(l, &a.src, SIGUSR1), 0);
	loop_del_signal(&a.src);
	assert_true(is_blocked(SIGUSR1));
	assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
	assert_int_equal(loop_add_signal(l, &a.src, SIGUSR1), 0); /* and is asked anew each time */
	loop_del_signal(&a.src);
	assert_false(is_blocked(SIGUSR1));
}

TEST_WITH(a_signal_deleted_by_another_is_not_heard, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct heard a = { .src = { .cb = on_signal, .arg = &a } };
	struct heard b = { .src = { .cb = on_signal, .arg = &b } };

	/* Both signals are ignored, so that restoring the default action is harmless. */
	(void)signal(SIGWINCH, SIG_DFL);
	(void)signal(SIGURG, SIG_DFL);
	a.victim = &b.src;
	b.victim = &a.src;
	assert_int_equal(loop_add_signal(l, &a.src, SIGWINCH), 0);
	assert_int_equal(loop_add_signal(l, &b.src, SIGURG), 0);
	assert_int_equal(raise(SIGWINCH), 0);
	assert_int_equal(raise(SIGURG), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(a.hits + b.hits, 1);
	loop_del_signal(&a.src);
	loop_del_signal(&b.src);
}

static void on_child(struct loop_fd *src, uint32_t events)
{
	struct proc *p = src->arg;
	siginfo_t info;

	assert_true(events & EPOLLIN);
	assert_int_equal(proc_wait(p, 0, &info), 0);
	loop_stop(src->loop, info.si_status);
}

TEST_WITH(a_child_ends, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	const char *const argv[] = { "sh", "-c", "exit 42", NULL };
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct loop_fd src = { .cb = on_child, .arg = &p };
	struct err e = ERR_INIT;

	assert_int_equal(proc_spawn(&(struct proc_spec){ .path = "/bin/sh",
							 .argv = argv,
							 .in = -EBADF,
							 .out = -EBADF,
							 .err = -EBADF },
				    &p, &e),
			 0);
	assert_int_equal(loop_add_fd(l, &src, p.pidfd, EPOLLIN), 0);
	assert_int_equal(loop_run(l), 42);
	loop_del_fd(&src);
}

static void stop_now(struct loop_fd *src, uint32_t events)
{
	struct ready *r = src->arg;

	r->hits++;
	loop_stop(src->loop, 7);
}

TEST_WITH(stop_means_now, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct tick t = { .timer = { .cb = on_tick, .arg = &t } };
	struct ready a, b;

	ready_init(l, &a, stop_now);
	ready_init(l, &b, stop_now);
	assert_int_equal(loop_set_timer(l, &t.timer, 1), 0);
	assert_int_equal(loop_run(l), 7);
	assert_int_equal(a.hits + b.hits, 1);
	assert_int_equal(t.hits, 0);
	assert_int_equal(loop_run(l), 7); /* events not handled are still ready */
	assert_int_equal(a.hits + b.hits, 2);
	ready_done(&a);
	ready_done(&b);
	loop_stop(l, -3); /* before the run: it does not even start */
	assert_int_equal(loop_run(l), -3);
	assert_int_equal(t.hits, 0);
	loop_del_timer(&t.timer);
}

TEST(free_takes_everything_out)
{
	struct loop *l = NULL;
	struct heard h = { .src = { .cb = on_signal, .arg = &h } };
	struct tick t[3] = { 0 };
	struct ready r;

	assert_int_equal(loop_new(&l), 0);
	ready_init(l, &r, count_fd);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_int_equal(loop_set_timer(l, &t[i].timer, 9 - i), 0);
	assert_int_equal(loop_add_signal(l, &h.src, SIGUSR1), 0);
	l = loop_free(l);
	assert_null(l);
	assert_false(is_blocked(SIGUSR1));
	ready_done(&r); /* no-ops all */
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		loop_del_timer(&t[i].timer);
	loop_del_signal(&h.src);
}

static void stop_on_signal(struct loop_signal *src, int signo)
{
	loop_stop(src->loop, 0);
}

static void raise_on_tick(struct loop_timer *src)
{
	(void)raise(SIGURG);
}

/* File descriptor, timer and signal: the timer raises the signal, the signal stops the loop. */
static int whole_life(int fd)
{
	struct ready r = { .src = { .cb = count_fd, .arg = &r } };
	struct loop_timer t = { .cb = raise_on_tick };
	struct loop_signal s = { .cb = stop_on_signal };
	_cleanup_loop_ struct loop *l = NULL;
	int res = loop_new(&l);

	if (res == 0)
		res = loop_add_fd(l, &r.src, fd, 0);
	if (res == 0)
		res = loop_mod_fd(&r.src, EPOLLOUT);
	if (res == 0)
		res = loop_add_signal(l, &s, SIGURG);
	if (res == 0)
		res = loop_set_timer(l, &t, clock_mono() + NSEC_PER_MSEC);
	return res < 0 ? res : loop_run(l);
}

TEST(sweeps)
{
	int fds[2];
	sigset_t none;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	FAIL_SWEEP(whole_life(fds[0]));
	(void)fd_close(fds[0]);
	(void)fd_close(fds[1]);
	/* One run could not restore the mask. */
	(void)sigemptyset(&none);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &none, NULL), 0);
}

TEST_WITH(a_signal_that_cannot_be_watched_is_not_blocked, setup, teardown)
{
	struct loop *l = ((struct box *)*state)->loop;
	struct loop_signal s = { .cb = stop_on_signal };

	fail_arm(1, EIO); /* the mask */
	assert_int_equal(loop_add_signal(l, &s, SIGUSR1), -EIO);
	fail_arm(2, EIO); /* the signalfd */
	assert_int_equal(loop_add_signal(l, &s, SIGUSR1), -EIO);
	fail_off();
	assert_false(is_blocked(SIGUSR1));
	assert_int_equal(loop_add_signal(l, &s, SIGUSR1), 0);
	loop_del_signal(&s);
}
