/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadline and pause of a sandbox. The keeper forwards clients' requests; the warden decides,
 * because the keeper is not trusted.
 *
 * Two times matter. The ttl is the policy's: it ends the sandbox and cannot be moved. The deadline
 * is the owner's: it is never later than the ttl, and ends or pauses the sandbox. Both stand still
 * during a pause: the sandbox's clock stays at `paused_at`, and resuming moves both by the length
 * of the pause. So a deadline that is set during a pause counts from the resume.
 *
 * life.json says "paused" of a running sandbox for no longer than one write takes: it is written
 * after everything has stopped, and again before anything resumes. If it cannot be written, nothing
 * changes.
 */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "warden/warden.h"

#define FREEZE_TIME (5 * NSEC_PER_SEC)

#define NEVER UINT64_MAX

/* The sandbox's time: it stands still during a pause. */
static uint64_t own_clock(const struct lifetime *l)
{
	return l->paused ? l->paused_at : clock_mono();
}

uint64_t lifetime_due(const struct lifetime *l)
{
	return l->paused ? NEVER : MIN(l->deadline, l->ttl);
}

/* The deadline as clients see it: wall clock, milliseconds. */
static uint64_t shown_deadline(const struct lifetime *l)
{
	const uint64_t due = lifetime_due(l), now = clock_mono();

	if (due == NEVER)
		return 0;
	return (clock_wall() + (due > now ? due - now : 0)) / NSEC_PER_MSEC;
}

static int write_down(const struct warden *w, const struct lifetime *l, struct err *e)
{
	const struct life life = { .paused = l->paused,
				   .stopped = w->stopped,
				   .deadline = shown_deadline(l),
				   .on_timeout = l->on_timeout,
				   .met = w->met,
				   .disk_lost = w->disk_watch.lost };
	int r = life_write(w->dir, &life, e);

	return r < 0 ? r : FAULT_ERR("life-written", e);
}

static int no_freezer(const struct warden *w, struct err *e)
{
	return err_set(e, -EOPNOTSUPP,
		       "a deadline cannot pause this sandbox, there is no freezer: %s",
		       w->receipt.pause_seen);
}

int lifetime_begin(struct warden *w, struct err *e)
{
	const uint64_t now = clock_mono(), deadline = w->spec.deadline;
	const uint64_t ttl = w->spec.ttl_left > 0 ? w->spec.ttl_left : w->spec.limits.ttl;

	w->life = (struct lifetime){ .on_timeout = w->spec.on_timeout,
				     .ttl = ttl > 0 ? now + ttl * NSEC_PER_MSEC : NEVER,
				     .deadline = deadline > 0 ? now + deadline * NSEC_PER_MSEC
							      : NEVER };
	if (w->life.on_timeout == ON_TIMEOUT_PAUSE && !w->receipt.pause)
		return no_freezer(w, e);
	return write_down(w, &w->life, e);
}

void lifetime_stopped(struct warden *w, enum life_stop why)
{
	struct err e = ERR_INIT;

	w->stopped = why;
	if (write_down(w, &w->life, &e) < 0)
		log_error("%s", e.msg);
}

int lifetime_lost(struct warden *w, struct err *e)
{
	return write_down(w, &w->life, e);
}

void lifetime_met(struct warden *w, uint64_t value)
{
	struct err e = ERR_INIT;

	if (met_unpack(value, &w->met) && write_down(w, &w->life, &e) < 0)
		log_error("%s", e.msg);
}

/* ---- pause and resume ---- */

static int freeze(const struct warden *w, struct err *e)
{
	int r = w->engine->pause(&w->group, clock_mono() + FREEZE_TIME);

	if (r < 0)
		return err_set(e, r, "cannot freeze the sandbox: %s", strerror(-r));
	return FAULT_ERR("life-frozen", e);
}

static int thaw(const struct warden *w, struct err *e)
{
	int r = w->engine->resume(&w->group, clock_mono() + FREEZE_TIME);

	if (r < 0)
		return err_set(e, r, "cannot thaw the sandbox: %s", strerror(-r));
	return FAULT_ERR("life-thawed", e);
}

static int stop(const struct warden *w, struct lifetime *next, struct err *e)
{
	struct err ignored = ERR_INIT;
	int r = freeze(w, e);

	next->paused = true;
	next->paused_at = clock_mono();
	if (r == 0)
		r = write_down(w, next, e);
	if (r == 0)
		return 0;
	(void)thaw(w, &ignored);
	(void)write_down(w, &w->life, &ignored);
	return r;
}

/* Resumes. A deadline that caused the pause is cleared. */
static int unpause(const struct warden *w, struct lifetime *next, struct err *e)
{
	const uint64_t pause = clock_mono() - next->paused_at;
	struct err ignored = ERR_INIT;
	int r;

	if (next->deadline <= next->paused_at)
		next->deadline = NEVER;
	if (next->deadline != NEVER)
		next->deadline += pause;
	if (next->ttl != NEVER)
		next->ttl += pause;
	next->paused = false;
	r = write_down(w, next, e);
	if (r == 0)
		r = thaw(w, e);
	if (r == 0)
		return 0;
	(void)w->engine->pause(&w->group, clock_mono() + FREEZE_TIME);
	(void)write_down(w, &w->life, &ignored);
	return r;
}

/* ---- requests ---- */

/* Checks a request and applies it to `next`. */
static enum life_result judge(const struct warden *w, const struct life_order *o,
			      struct lifetime *next)
{
	const uint64_t now = own_clock(next);

	if (o->want != WANT_NOTHING && next->paused == (o->want == WANT_PAUSED))
		return LIFE_ALREADY;
	if (o->want == WANT_PAUSED && w->saving.active) {
		/* A stopped VM would never finish the snapshot. */
		log_warning("it cannot be paused while a snapshot of it is made");
		return LIFE_FAILED;
	}
	if ((o->want == WANT_PAUSED || o->on_timeout == THEN_PAUSE) && !w->receipt.pause)
		return LIFE_NO_FREEZER;
	if (o->on_timeout != THEN_AS_BEFORE)
		next->on_timeout = o->on_timeout == THEN_PAUSE ? ON_TIMEOUT_PAUSE : ON_TIMEOUT_END;
	if (o->timeout > 0)
		next->deadline = now + o->timeout * NSEC_PER_MSEC;
	return o->timeout > 0 && next->deadline > next->ttl ? LIFE_TOO_LATE : LIFE_DONE;
}

static int carry_out(struct warden *w, const struct life_order *o, struct lifetime *next,
		     struct err *e)
{
	if (o->want == WANT_PAUSED)
		return stop(w, next, e);
	if (o->want == WANT_RUNNING)
		return unpause(w, next, e);
	return o->timeout > 0 || o->on_timeout != THEN_AS_BEFORE ? write_down(w, next, e) : 0;
}

static uint64_t left_of_ttl(const struct lifetime *l)
{
	const uint64_t now = own_clock(l);

	return l->ttl > now ? (l->ttl - now) / NSEC_PER_MSEC : 0;
}

struct life_answer lifetime_order(struct warden *w, const struct life_order *o)
{
	struct lifetime next = w->life;
	struct life_answer a = { .result = judge(w, o, &next) };
	struct err e = ERR_INIT;

	if (a.result == LIFE_DONE && carry_out(w, o, &next, &e) < 0) {
		log_error("%s", e.msg);
		a.result = LIFE_FAILED;
	}
	if (a.result == LIFE_DONE)
		w->life = next;
	a.paused = w->life.paused;
	a.ms = a.result == LIFE_TOO_LATE ? left_of_ttl(&w->life) : shown_deadline(&w->life);
	return a;
}

void lifetime_rest(const struct lifetime *l, struct spec *ret)
{
	const uint64_t now = own_clock(l);

	ret->on_timeout = l->on_timeout;
	ret->deadline = 0;
	if (l->deadline != NEVER && l->deadline > now)
		ret->deadline = MAX((l->deadline - now) / NSEC_PER_MSEC, UINT64_C(1));
	else if (l->deadline != NEVER && l->on_timeout == ON_TIMEOUT_END)
		ret->deadline = 1; /* the deadline has passed: end at once */
	ret->ttl_left = l->ttl != NEVER ? MAX(left_of_ttl(l), UINT64_C(1)) : 0;
}

bool lifetime_pauses(const struct lifetime *l)
{
	return l->on_timeout == ON_TIMEOUT_PAUSE && clock_mono() < l->ttl;
}

bool lifetime_over(struct warden *w)
{
	struct lifetime next = w->life;
	struct err e = ERR_INIT;

	if (!lifetime_pauses(&next))
		return true;
	if (stop(w, &next, &e) == 0) {
		w->life = next;
		return false;
	}
	log_error("cannot pause the sandbox at its deadline, so it ends: %s", e.msg);
	return true;
}
