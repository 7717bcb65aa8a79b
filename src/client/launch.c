/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one call at a time: the start command until the guest accepts it, then the ready command
 * until it exits, repeated after a pause while its status is not 0. The `limit` timer ends the
 * whole launch.
 */
#include "client/launch.h"

#include <string.h>

#include "base/clock.h"
#include "base/trace.h"
#include "client/runner.h"

struct launch {
	struct loop *loop;
	struct peer *peer;
	struct call *call;
	char *ready;
	uint64_t limit_ms;
	struct loop_timer again, limit;
	char request[TRACE_ID_MAX + 1];
	int status; /* exit status of the ready command; -1: unknown */
	void (*done)(void *arg, const struct err *e);
	void *arg;
};

static void finish(struct launch *l, const struct err *e)
{
	loop_del_timer(&l->again);
	loop_del_timer(&l->limit);
	l->done(l->arg, e); /* done() may have freed `l` */
}

/* The connection has ended, or the guest refused the command. */
static void fail(struct launch *l, const char *which, enum wire_code code, const char *text)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, -EIO, "the %s command: %s", which, text[0] ? text : wire_code_name(code));
	finish(l, &e);
}

static int exec(struct launch *l, const struct runner_command *c, const struct call_ops *ops,
		struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(RUNNER_OPEN_MAX);
	char before[TRACE_ID_MAX + 1];
	int r = runner_put_command(&b, c, e);

	if (r < 0)
		return r;
	(void)snprintf(before, sizeof(before), "%s", trace_request());
	trace_set_request(l->request);
	r = peer_call(l->peer, WIRE_OP_EXEC, &b, ops, l, &l->call, e);
	trace_set_request(before);
	return r;
}

/* ---- the ready command ---- */

static void on_msg(struct call *c, enum wire_msg kind, const struct fields *f, void *arg)
{
	struct launch *l = arg;

	if (kind == WIRE_MSG_EXIT && fields_number(f, TAG_SIGNAL, 0) == 0)
		l->status = (int)fields_number(f, TAG_CODE, 0);
}

static void on_ready_closed(struct call *c, enum wire_code code, const char *text, void *arg)
{
	struct err e = ERR_INIT;
	struct launch *l = arg;

	l->call = NULL;
	if (code != WIRE_DONE) {
		fail(l, "ready", code, text);
		return;
	}
	if (l->status != 0) {
		if (loop_set_timer(l->loop, &l->again,
				   clock_mono() + RUNNER_PAUSE_MS * NSEC_PER_MSEC) == 0)
			return;
		(void)err_oom(&e);
	}
	finish(l, &e);
}

static int try_ready(struct launch *l, struct err *e)
{
	static const struct call_ops ops = { .msg = on_msg, .closed = on_ready_closed };
	const struct runner_command c = { .script = l->ready };

	l->status = -1;
	return exec(l, &c, &ops, e);
}

static void on_again(struct loop_timer *t)
{
	struct launch *l = t->arg;
	struct err e = ERR_INIT;

	if (try_ready(l, &e) < 0)
		finish(l, &e);
}

static void on_limit(struct loop_timer *t)
{
	struct launch *l = t->arg;
	struct err e = ERR_INIT;

	if (l->call)
		peer_close(l->call);
	l->call = NULL;
	(void)err_set(&e, -ETIME, "the %s command did not succeed within %llu s",
		      l->ready ? "ready" : "start", (unsigned long long)(l->limit_ms / 1000));
	finish(l, &e);
}

/* ---- the start command ---- */

static void on_started(struct call *c, const struct fields *f, void *arg)
{
	struct launch *l = arg;
	struct err e = ERR_INIT;

	peer_close(c); /* the command is detached and keeps running */
	l->call = NULL;
	if (!l->ready || try_ready(l, &e) < 0)
		finish(l, &e);
}

static void on_start_closed(struct call *c, enum wire_code code, const char *text, void *arg)
{
	struct launch *l = arg;

	l->call = NULL;
	fail(l, "start", code, text);
}

static int begin(struct launch *l, const char *start, struct err *e)
{
	static const struct call_ops ops = { .accepted = on_started, .closed = on_start_closed };
	const struct runner_command c = { .script = start, .detach = true };

	if (loop_set_timer(l->loop, &l->limit, clock_mono() + l->limit_ms * NSEC_PER_MSEC) < 0)
		return err_oom(e);
	return start ? exec(l, &c, &ops, e) : try_ready(l, e);
}

/* ---- life ---- */

int launch_new(struct loop *loop, int fd, const struct launch_terms *terms,
	       void (*done)(void *arg, const struct err *e), void *arg, struct launch **ret,
	       struct err *e)
{
	struct launch *l = calloc(1, sizeof(*l));
	int r;

	assert(terms->start || terms->ready);
	if (!l || (terms->ready && !(l->ready = strdup(terms->ready)))) {
		(void)fd_close(fd);
		free(l);
		return err_oom(e);
	}
	l->loop = loop;
	l->limit_ms = terms->limit_ms;
	l->done = done;
	l->arg = arg;
	l->again = (struct loop_timer){ .cb = on_again, .arg = l };
	l->limit = (struct loop_timer){ .cb = on_limit, .arg = l };
	(void)snprintf(l->request, sizeof(l->request), "%s", trace_request());
	r = peer_new(loop, fd, NULL, NULL, &l->peer, e);
	if (r == 0)
		r = begin(l, terms->start, e);
	if (r < 0) {
		(void)launch_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

struct launch *launch_free(struct launch *l)
{
	if (!l)
		return NULL;
	loop_del_timer(&l->again);
	loop_del_timer(&l->limit);
	if (l->call)
		peer_close(l->call);
	(void)peer_free(l->peer);
	free(l->ready);
	free(l);
	return NULL;
}
