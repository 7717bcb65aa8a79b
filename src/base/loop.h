/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop: epoll(7), one timerfd for all timers, one signalfd for all signals, pidfds for
 * children. Single-threaded and level-triggered. The caller owns the sources: they start zeroed
 * (except cb and arg) and live until loop_del_*() or loop_free(). A callback may delete any source,
 * also its own; events already fetched for a deleted source are dropped.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/util.h"

enum {
	LOOP_TIMERS_MAX = 65536, /* armed at the same time; -ENOSPC beyond */
};

struct loop;

/* A descriptor. `events` are EPOLLIN, EPOLLOUT, ...; the callback gets the reported events. */
struct loop_fd {
	void (*cb)(struct loop_fd *src, uint32_t events);
	void *arg;
	int fd;
	/* private */
	struct loop *loop;
	struct loop_fd *prev, *next; /* all descriptors of the loop */
	uint32_t events;
};

/* A one-shot timer at an absolute clock_mono() time; set it again from its callback to repeat. */
struct loop_timer {
	void (*cb)(struct loop_timer *src);
	void *arg;
	/* private */
	struct loop *loop;
	uint64_t when;
	size_t slot; /* place in the heap + 1; 0: not armed */
};

/*
 * A signal, blocked and read from the signalfd while registered; one source per signal number.
 * loop_del_signal() restores the mask; a signal still pending is then delivered normally.
 */
struct loop_signal {
	void (*cb)(struct loop_signal *src, int signo);
	void *arg;
	/* private */
	struct loop *loop;
	int signo;
};

/*
 * Every function returns 0 or -errno. loop_free() accepts NULL, returns NULL, and removes the
 * remaining sources. Deleting a source that is not registered is a no-op.
 */
int loop_new(struct loop **ret);
struct loop *loop_free(struct loop *l);

/* -EEXIST if `src` is already added, -EPERM for files that epoll cannot watch (regular files). */
int loop_add_fd(struct loop *l, struct loop_fd *src, int fd, uint32_t events);
int loop_mod_fd(struct loop_fd *src, uint32_t events); /* -ENOENT if not added */
void loop_del_fd(struct loop_fd *src);		       /* call before closing the descriptor */

/*
 * Arms the timer, or moves it to another time. A timer set by a timer's callback waits for the next
 * round, even if it is due. Timers for the same time fire in any order.
 */
int loop_set_timer(struct loop *l, struct loop_timer *src, uint64_t when);
void loop_del_timer(struct loop_timer *src);

/* -EBUSY if the signal has a source already, -EINVAL for signals that cannot be blocked. */
int loop_add_signal(struct loop *l, struct loop_signal *src, int signo);
void loop_del_signal(struct loop_signal *src);

/*
 * Waits for events at most until `deadline` (clock_mono(); 0: poll, UINT64_MAX: no limit) and
 * dispatches one round of them. Must not be called from a callback.
 */
int loop_once(struct loop *l, uint64_t deadline);

/*
 * Dispatches until loop_stop(); returns its `result`, or -errno. After loop_stop() no callback
 * runs; pending events wait for the next loop_run().
 */
int loop_run(struct loop *l);
void loop_stop(struct loop *l, int result);

static inline void cleanup_loop(struct loop **l)
{
	(void)loop_free(*l);
}

#define _cleanup_loop_ _cleanup_(cleanup_loop)
