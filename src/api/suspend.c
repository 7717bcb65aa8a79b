/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suspends VMs to disk and resumes them on demand. Both take seconds, so jobs do them; clients that
 * want the same VM resumed share a job. A suspended sandbox has no warden, and its box is read from
 * its directory alone (box.c).
 *
 * Another process may resume the same sandbox: `hutch resume`, or a second hutchd. A job then waits
 * until the sandbox runs.
 */
#include "api/suspend.h"

#include "api/box.h"
#include "api/turn.h"
#include "base/clock.h"

enum {
	CLAIMED_S = 5,	/* until the warden of another process's resume starts */
	RESUME_S = 600, /* until that warden is ready */
};

/* A request that waits for a turn. */
struct waiter {
	struct request *request;
	struct turn *turn;
	void (*then)(struct request *r, struct box *b);
	struct waiter *next;
};

static void waiter_drop(struct request *r)
{
	struct waiter *w = r->data;
	struct waiter **p = &w->turn->waiting;

	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
	free(w);
}

/* Continues a waiting request, with the box as it is now. */
static void answer(struct turn *t, struct waiter *w, const struct err *e)
{
	struct request *r = w->request;
	void (*then)(struct request * r, struct box * b) = w->then;
	struct box *b = box_find(r->api, t->id);

	waiter_drop(r);
	r->data = NULL;
	r->drop = NULL;
	if (e)
		request_fail_err(r, e);
	else if (!b)
		request_fail(r, 404, "the sandbox has ended");
	else {
		request_enter(r);
		then(r, b);
		request_leave();
	}
}

/* Requests that arrive while others are answered get a new turn. */
static void finish(struct turn *t, const struct err *e)
{
	t->ops = NULL;
	while (t->waiting)
		answer(t, t->waiting, e);
	turn_free(t);
}

/* `shared`: joins a running turn of the same kind. */
static void start(struct request *r, const struct box *b, bool shared, uint64_t deadline,
		  const struct job_ops *ops, void (*then)(struct request *r, struct box *b))
{
	struct waiter *w = calloc(1, sizeof(*w));
	struct turn *t = shared ? turn_find(r->api, b->sandbox.id, ops) : NULL;
	struct err e = ERR_INIT;

	if (!w)
		(void)err_oom(&e);
	else if (!t)
		t = turn_new(r->api, b->sandbox.id, b->owner, deadline, ops, &e);
	if (!w || !t) {
		free(w);
		request_fail_err(r, &e);
		return;
	}
	*w = (struct waiter){ .request = r, .turn = t, .then = then, .next = t->waiting };
	t->waiting = w;
	r->data = w;
	r->drop = waiter_drop;
}

static int find(const struct turn *t, struct state_root *root, struct sandbox *b, struct err *e)
{
	int r = state_root_open(root, e);

	return r < 0 ? r : sandbox_find(root, t->id, b, e);
}

/* ---- suspend ---- */

static int suspend_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	char name[SANDBOX_SNAPSHOT];
	int r = find(arg, &root, &b, e);

	(void)ret;
	return r < 0 ? r : sandbox_save(&b, WIRE_SAVE_SUSPEND, name, e);
}

static void suspend_done(void *arg, const json_t *result, const struct err *e)
{
	finish(arg, result ? NULL : e);
}

static void suspended(struct request *r, struct box *b)
{
	(void)b;
	request_empty(r, 204);
}

void box_suspend(struct request *r, const struct box *b)
{
	static const struct job_ops ops = { .work = suspend_work, .done = suspend_done };

	start(r, b, false, 0, &ops, suspended);
}

/* ---- resume ---- */

/* Waits for another process that resumes it; `claimed`: seconds until its warden starts. True: it
 * runs. */
static bool await_other(const struct sandbox *b, uint64_t claimed)
{
	const uint64_t now = clock_mono();
	enum state_phase phase = state_wait(b->dir, STATE_ON_DISK, now + claimed * NSEC_PER_SEC);

	if (phase == STATE_STARTING)
		phase = state_wait(b->dir, STATE_STARTING, now + RESUME_S * NSEC_PER_SEC);
	return phase == STATE_RUNNING || phase == STATE_PAUSED;
}

/* `resume` false: only waits, and the repeated request sees the outcome. */
static int work(const struct turn *t, bool resume, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	int r = find(t, &root, &b, e);

	if (r < 0)
		return r;
	if (resume)
		r = sandbox_resume(&root, &b, t->deadline, e);
	else
		(void)await_other(&b, 0);
	return r == -EBUSY && await_other(&b, CLAIMED_S) ? 0 : r;
}

static int resume_work(void *arg, json_t **ret, struct err *e)
{
	(void)ret;
	return work(arg, true, e);
}

/* `hutch resume` may have resumed it meanwhile; that counts as success. */
static void resume_done(void *arg, const json_t *result, const struct err *e)
{
	struct turn *t = arg;
	const struct box *b;

	t->ops = NULL;
	b = result ? NULL : box_find(t->api, t->id);
	finish(t, result || (b && !b->suspended) ? NULL : e);
}

static const struct job_ops resume_ops = { .work = resume_work, .done = resume_done };

void box_unsuspend(struct request *r, const struct box *b, uint64_t deadline,
		   void (*then)(struct request *r, struct box *b))
{
	start(r, b, true, deadline, &resume_ops, then);
}

/* ---- waiting for a resume ---- */

static int await_work(void *arg, json_t **ret, struct err *e)
{
	(void)ret;
	return work(arg, false, e);
}

static void awaited(struct request *r, struct box *b)
{
	void (*again)(struct request * r) = r->then;

	(void)b;
	r->then = NULL;
	again(r);
}

bool box_is_resuming(const struct box *b)
{
	return b->suspended && (turn_find(b->api, b->sandbox.id, &resume_ops) ||
				state_phase(b->sandbox.dir) == STATE_STARTING);
}

bool box_await(struct request *r, const struct box *b, void (*again)(struct request *r))
{
	static const struct job_ops ops = { .work = await_work, .done = resume_done };
	const bool ours = turn_find(b->api, b->sandbox.id, &resume_ops);

	if (!box_is_resuming(b))
		return false;
	r->then = again;
	start(r, b, true, 0, ours ? &resume_ops : &ops, awaited);
	return true;
}
