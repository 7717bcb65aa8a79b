/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every source is a loop_fd in one epoll set, including the loop's own timerfd and signalfd.
 *
 * Timers are in a binary heap, the earliest first. Before each wait the timerfd is set to the first
 * timer or the caller's deadline, whichever is earlier, unless it is set to an earlier time
 * already. So setting and deleting timers needs no system call, and deleting cannot fail. The
 * timerfd only wakes the loop; the clock decides which timers are due. A wake-up for a deleted
 * timer costs less than setting the timerfd for every timeout that is never reached.
 *
 * The events that epoll_wait(2) returned stay in the struct while they are dispatched. Deleting a
 * source clears its entry there, so its memory may be freed before the round is over.
 */
#include "base/loop.h"

#include <sys/signalfd.h>
#include <sys/timerfd.h>

#include "base/clock.h"

enum {
	LOOP_BATCH = 64,       /* events fetched at once */
	LOOP_TIMERS_FIRST = 16 /* slots in a new heap */
};

struct loop {
	int epfd;
	struct loop_fd timer_src, signal_src;
	struct loop_fd *fds;

	struct loop_timer **heap;
	size_t n_timers, cap_timers;
	uint64_t armed; /* time the timerfd is set to; UINT64_MAX: off */
	uint64_t round; /* timers up to this time have fired */

	struct loop_signal *signals[NSIG];
	sigset_t watched, was_blocked;

	struct epoll_event batch[LOOP_BATCH];
	int n_batch, next; /* batch[next] is the first undispatched event */
	bool dispatching, stopping;
	int result;
};

int loop_add_fd(struct loop *l, struct loop_fd *src, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = src };

	if (src->loop)
		return -EEXIST;
	if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	src->fd = fd;
	src->events = events;
	src->loop = l;
	src->prev = NULL;
	src->next = l->fds;
	if (l->fds)
		l->fds->prev = src;
	l->fds = src;
	return 0;
}

int loop_mod_fd(struct loop_fd *src, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = src };

	if (!src->loop)
		return -ENOENT;
	if (src->events == events) /* level-triggered: no change */
		return 0;
	if (epoll_ctl(src->loop->epfd, EPOLL_CTL_MOD, src->fd, &ev) < 0)
		return -errno;
	src->events = events;
	return 0;
}

void loop_del_fd(struct loop_fd *src)
{
	struct loop *l = src->loop;

	if (!l)
		return;
	(void)epoll_ctl(l->epfd, EPOLL_CTL_DEL, src->fd, NULL);
	for (int i = l->next; i < l->n_batch; i++)
		if (l->batch[i].data.ptr == src)
			l->batch[i].data.ptr = NULL;
	if (src->prev)
		src->prev->next = src->next;
	else
		l->fds = src->next;
	if (src->next)
		src->next->prev = src->prev;
	src->prev = src->next = NULL;
	src->loop = NULL;
}

static void heap_put(struct loop *l, size_t i, struct loop_timer *t)
{
	l->heap[i] = t;
	t->slot = i + 1;
}

/* Puts `t` into the hole at `i`, moving the hole until no timer precedes its parent. */
static void heap_settle(struct loop *l, size_t i, struct loop_timer *t)
{
	for (; i > 0 && l->heap[(i - 1) / 2]->when > t->when; i = (i - 1) / 2)
		heap_put(l, i, l->heap[(i - 1) / 2]);
	for (;;) {
		size_t child = 2 * i + 1;

		if (child + 1 < l->n_timers && l->heap[child + 1]->when < l->heap[child]->when)
			child++;
		if (child >= l->n_timers || l->heap[child]->when >= t->when)
			break;
		heap_put(l, i, l->heap[child]);
		i = child;
	}
	heap_put(l, i, t);
}

static int heap_reserve(struct loop *l)
{
	size_t cap = MAX(l->cap_timers * 2, (size_t)LOOP_TIMERS_FIRST);
	struct loop_timer **heap;

	if (l->n_timers < l->cap_timers)
		return 0;
	if (l->n_timers >= LOOP_TIMERS_MAX)
		return -ENOSPC;
	heap = realloc(l->heap, cap * sizeof(*heap));
	if (!heap)
		return -ENOMEM;
	l->heap = heap;
	l->cap_timers = cap;
	return 0;
}

int loop_set_timer(struct loop *l, struct loop_timer *src, uint64_t when)
{
	size_t i = src->slot - 1;
	int r;

	assert(src->slot == 0 || src->loop == l);
	if (src->slot == 0) {
		r = heap_reserve(l);
		if (r < 0)
			return r;
		i = l->n_timers++;
	}
	src->loop = l;
	/* Not in the current round: a timer that is always due would starve other sources. */
	src->when = MAX(when, l->round + 1);
	heap_settle(l, i, src);
	return 0;
}

void loop_del_timer(struct loop_timer *src)
{
	struct loop *l = src->loop;
	struct loop_timer *last;

	if (src->slot == 0)
		return;
	last = l->heap[--l->n_timers];
	if (last != src)
		heap_settle(l, src->slot - 1, last);
	src->slot = 0;
	src->loop = NULL;
}

static int set_mask(int how, int signo, sigset_t *ret_old)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, signo);
	return -pthread_sigmask(how, &set, ret_old);
}

int loop_add_signal(struct loop *l, struct loop_signal *src, int signo)
{
	sigset_t old, watched = l->watched;
	bool blocked;
	int r;

	if (signo == SIGKILL || signo == SIGSTOP || sigaddset(&watched, signo) < 0)
		return -EINVAL;
	if (src->loop || l->signals[signo])
		return -EBUSY;
	r = set_mask(SIG_BLOCK, signo, &old);
	if (r < 0)
		return r;
	blocked = sigismember(&old, signo) == 1;
	if (signalfd(l->signal_src.fd, &watched, 0) < 0) {
		r = -errno;
		if (!blocked)
			(void)set_mask(SIG_UNBLOCK, signo, NULL);
		return r;
	}
	(void)(blocked ? sigaddset : sigdelset)(&l->was_blocked, signo);
	l->watched = watched;
	l->signals[signo] = src;
	src->loop = l;
	src->signo = signo;
	return 0;
}

void loop_del_signal(struct loop_signal *src)
{
	struct loop *l = src->loop;

	if (!l)
		return;
	(void)sigdelset(&l->watched, src->signo);
	/* Changing the mask of an open signalfd cannot fail. */
	(void)signalfd(l->signal_src.fd, &l->watched, 0);
	l->signals[src->signo] = NULL;
	src->loop = NULL;
	if (sigismember(&l->was_blocked, src->signo) == 0)
		(void)set_mask(SIG_UNBLOCK, src->signo, NULL);
}

static void on_timerfd(struct loop_fd *src, uint32_t events)
{
	struct loop *l = src->arg;
	uint64_t count;

	/* Read only to clear it; the heap is checked after every wait. */
	(void)!read(src->fd, &count, sizeof(count));
	l->armed = UINT64_MAX;
}

/* Reads one signal per call: the callback may delete any source, and further signals stay queued.
 */
static void on_signalfd(struct loop_fd *src, uint32_t events)
{
	struct loop *l = src->arg;
	struct signalfd_siginfo info;
	struct loop_signal *s;

	if (read(src->fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	s = info.ssi_signo < NSIG ? l->signals[info.ssi_signo] : NULL;
	if (s)
		s->cb(s, s->signo);
}

/* Adds a descriptor that the loop owns; `fd` may be -1 with errno from the call that made it. */
static int add_own(struct loop *l, struct loop_fd *src, int fd,
		   void (*cb)(struct loop_fd *src, uint32_t events))
{
	int r;

	if (fd < 0)
		return -errno;
	src->cb = cb;
	src->arg = l;
	r = loop_add_fd(l, src, fd, EPOLLIN);
	if (r < 0)
		(void)fd_close(fd);
	return r;
}

int loop_new(struct loop **ret)
{
	_cleanup_loop_ struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->timer_src.fd = l->signal_src.fd = -EBADF;
	l->armed = UINT64_MAX;
	(void)sigemptyset(&l->watched);
	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epfd < 0)
		return -errno;
	r = add_own(l, &l->timer_src, timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
		    on_timerfd);
	if (r < 0)
		return r;
	r = add_own(l, &l->signal_src, signalfd(-1, &l->watched, SFD_CLOEXEC | SFD_NONBLOCK),
		    on_signalfd);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(l);
	return 0;
}

struct loop *loop_free(struct loop *l)
{
	if (!l)
		return NULL;
	assert(!l->dispatching);
	for (size_t i = 0; i < ARRAY_SIZE(l->signals); i++)
		if (l->signals[i])
			loop_del_signal(l->signals[i]);
	while (l->n_timers > 0)
		loop_del_timer(l->heap[l->n_timers - 1]);
	while (l->fds)
		loop_del_fd(l->fds);
	(void)fd_close(l->signal_src.fd);
	(void)fd_close(l->timer_src.fd);
	(void)fd_close(l->epfd);
	free(l->heap);
	free(l);
	return NULL;
}

static int arm(struct loop *l, uint64_t when)
{
	const struct itimerspec spec = {
		.it_value = { .tv_sec = (time_t)(when / NSEC_PER_SEC),
			      .tv_nsec = (long)(when % NSEC_PER_SEC) },
	};

	if (when >= l->armed)
		return 0;
	/* All zero would disarm the timer; the caller never arms for the past, so never for 0. */
	if (timerfd_settime(l->timer_src.fd, TFD_TIMER_ABSTIME, &spec, NULL) < 0)
		return -errno;
	l->armed = when;
	return 0;
}

static void dispatch_fds(struct loop *l)
{
	while (l->next < l->n_batch && !l->stopping) {
		const struct epoll_event *ev = &l->batch[l->next++];
		struct loop_fd *src = ev->data.ptr;
		uint32_t events;

		if (!src)
			continue;
		/* An earlier callback may have called loop_mod_fd() on a source in this batch. */
		events = ev->events & (src->events | EPOLLERR | EPOLLHUP);
		if (events)
			src->cb(src, events);
	}
	l->n_batch = l->next = 0;
}

static void dispatch_timers(struct loop *l)
{
	l->round = clock_mono();
	while (l->n_timers > 0 && l->heap[0]->when <= l->round && !l->stopping) {
		struct loop_timer *t = l->heap[0];

		loop_del_timer(t);
		t->cb(t);
	}
}

int loop_once(struct loop *l, uint64_t deadline)
{
	uint64_t wake = l->n_timers > 0 ? MIN(deadline, l->heap[0]->when) : deadline;
	bool wait = wake > clock_mono();
	int r;

	assert(!l->dispatching);
	r = wait ? arm(l, wake) : 0;
	if (r < 0)
		return r;
	/* Without a handler, EINTR still occurs after SIGSTOP and SIGCONT, see signal(7). */
	r = RETRY_EINTR(epoll_wait(l->epfd, l->batch, LOOP_BATCH, wait ? -1 : 0));
	if (r < 0)
		return -errno;
	l->n_batch = r;
	l->dispatching = true;
	dispatch_fds(l);
	dispatch_timers(l);
	l->dispatching = false;
	return 0;
}

int loop_run(struct loop *l)
{
	while (!l->stopping) {
		int r = loop_once(l, UINT64_MAX);

		if (r < 0)
			return r;
	}
	l->stopping = false;
	return l->result;
}

void loop_stop(struct loop *l, int result)
{
	l->result = result;
	l->stopping = true;
}
