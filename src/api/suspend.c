/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suspends VMs to disk and resumes them on demand. Both take seconds, so jobs do them; clients that
 * want the same VM resumed share a job. A suspended sandbox has no warden, and its box is read from
 * its directory alone (box.c).
 */
#include "api/suspend.h"

#include "api/box.h"
#include "api/turn.h"

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

static int resume_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	int r = find(arg, &root, &b, e);

	(void)ret;
	return r < 0 ? r : sandbox_resume(&root, &b, ((struct turn *)arg)->deadline, e);
}

/* `hutch resume` may have resumed it meanwhile; that counts as success. */
static void resume_done(void *arg, const json_t *result, const struct err *e)
{
	struct turn *t = arg;
	const struct box *b;

	t->ops = NULL; /* reads the box again */
	b = result ? NULL : box_find(t->api, t->id);
	finish(t, result || (b && !b->suspended) ? NULL : e);
}

void box_unsuspend(struct request *r, const struct box *b, uint64_t deadline,
		   void (*then)(struct request *r, struct box *b))
{
	static const struct job_ops ops = { .work = resume_work, .done = resume_done };

	start(r, b, true, deadline, &ops, then);
}
