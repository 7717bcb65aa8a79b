/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pause of a virtual machine: it goes to disk and ends, and is started again when somebody
 * wants it. Both take seconds and are work for jobs. In between there is no warden, and the box is
 * one that is read from its directory alone (box.c).
 */
#include <string.h>

#include "e2b.h"

struct suspend {
	struct request *request; /* NULL: whoever asked has gone, which changes nothing */
	struct job *job;
	char id[SPEC_ID + 1];
	uint64_t deadline; /* ms from when it goes on */
	void (*then)(struct request *r, struct box *b);
};

static void suspend_drop(struct request *r)
{
	struct suspend *s = r->data;

	s->request = NULL;
	if (!s->job)
		free(s);
}

/* Back to whoever asked, with the box as it is now; `s` is gone then. */
static void finish(struct suspend *s, const struct err *e)
{
	struct request *r = s->request;
	void (*then)(struct request * r, struct box * b) = s->then;
	struct box *b = r ? box_find(r->api, s->id) : NULL;

	if (r) {
		r->data = NULL;
		r->drop = NULL;
	}
	free(s);
	if (!r)
		return;
	if (e)
		request_fail_err(r, e);
	else if (!b)
		request_fail(r, 404, "the sandbox has ended");
	else
		then(r, b);
}

static void start(struct request *r, const struct box *b, uint64_t deadline,
		  const struct job_ops *ops, void (*then)(struct request *r, struct box *b))
{
	struct suspend *s = calloc(1, sizeof(*s));
	struct err e = ERR_INIT;

	if (!s) {
		request_fail(r, 503, "out of memory");
		return;
	}
	*s = (struct suspend){ .request = r, .then = then, .deadline = deadline };
	(void)snprintf(s->id, sizeof(s->id), "%s", b->sandbox.id);
	r->data = s;
	r->drop = suspend_drop;
	if (job_start(r->api->jobs, ops, s, &s->job, &e) < 0)
		finish(s, &e);
}

static int find(const struct suspend *s, struct state_root *root, struct sandbox *b, struct err *e)
{
	int r = state_root_open(root, e);

	return r < 0 ? r : sandbox_find(root, s->id, b, e);
}

/* ---- to disk ---- */

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
	struct suspend *s = arg;

	s->job = NULL;
	finish(s, result ? NULL : e);
}

static void suspended(struct request *r, struct box *b)
{
	(void)b;
	request_empty(r, 204);
}

void e2b_suspend(struct request *r, const struct box *b)
{
	static const struct job_ops ops = { .work = suspend_work, .done = suspend_done };

	start(r, b, 0, &ops, suspended);
}

/* ---- and back ---- */

static int resume_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	int r = find(arg, &root, &b, e);

	(void)ret;
	return r < 0 ? r : sandbox_resume(&root, &b, ((struct suspend *)arg)->deadline, e);
}

/* Two may want it at once: it is enough that one of them had it. */
static void resume_done(void *arg, const json_t *result, const struct err *e)
{
	struct suspend *s = arg;
	const struct box *b = s->request ? box_find(s->request->api, s->id) : NULL;

	s->job = NULL;
	finish(s, !result && (!b || b->suspended) ? e : NULL);
}

void e2b_unsuspend(struct request *r, const struct box *b, uint64_t deadline,
		   void (*then)(struct request *r, struct box *b))
{
	static const struct job_ops ops = { .work = resume_work, .done = resume_done };

	start(r, b, deadline, &ops, then);
}
