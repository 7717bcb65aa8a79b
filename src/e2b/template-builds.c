/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds of templates. Another process may hold the lock on their files, and the loop must not
 * block, so each step is a job:
 *
 *   take   POOL_LOOK    marks the waiting build as building
 *
 *   run    POOL_BUILD   runs the recipe, which records the result; the client was answered before
 *
 *   end    POOL_LOOK    marks the build as failed if one of these died or could not be started
 *
 * A build continues without its client. If hutchd dies, take and run die with it, and the next
 * hutchd marks the build as failed.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/proc.h"
#include "e2b/e2b.h"
#include "e2b/recipe.h"
#include "sandbox/quota-enter.h"

enum {
	END_AGAIN_S = 5,
};

struct build {
	struct api *api;
	struct request *request; /* NULL: answered, or the client is gone */
	char trace[TRACE_REQUEST + 1];
	pid_t hutchd;
	struct recipe_terms terms;
	char agent[256], key[64];
	struct key_grant grant;
	char template[REQUEST_ARG_MAX + 1], id[REQUEST_ARG_MAX + 1];
	json_t *recipe;
	bool taken;			   /* it is building, for us */
	char owner[TEMPLATE_NAME_MAX + 1]; /* the template's, set by take */
	struct err failure;
	struct loop_timer again; /* retries end */
	struct build *next;	 /* in the api's list */
};

static void build_free(struct build *b)
{
	struct build **p = &b->api->builds;

	while (*p != b)
		p = &(*p)->next;
	*p = b->next;
	loop_del_timer(&b->again);
	json_decref(b->recipe);
	free(b);
}

void e2b_builds_free(struct api *a)
{
	while (a->builds)
		build_free(a->builds);
}

static int start_job(struct build *b, enum pool pool, const struct job_ops *ops, struct err *e)
{
	struct job *job;
	int r;

	trace_set_request(b->trace);
	r = job_start(b->api->pools[pool], b->key, ops, b, &job, e);
	trace_set_request("");
	return r;
}

static void answer(struct build *b)
{
	if (b->request && b->failure.num < 0)
		request_fail_err(b->request, &b->failure);
	else if (b->request)
		request_empty(b->request, 202);
}

/* In a child: dies with hutchd, because the next hutchd marks the build as failed. */
static int die_with_hutchd(const struct build *b, struct err *e)
{
	return proc_die_with(b->hutchd, SIGKILL) < 0 ? err_set(e, -ESRCH, "hutchd has ended") : 0;
}

/* ---- end ---- */

static void end(struct build *b);

static int open_store(const struct build *b, struct template_store *s, struct err *e)
{
	return b->taken ? template_store_open(s, b->owner, false, e)
			: e2b_template_store_of(b->terms.all, b->key, b->template, s, e);
}

static int end_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	const struct build *b = arg;
	int r = open_store(b, &s, e);

	(void)ret;
	return r < 0 ? r : template_end(&s, b->template, b->id, b->failure.msg, NULL, e);
}

static void on_again(struct loop_timer *t)
{
	end(t->arg);
}

/* Retries, so that no build stays "building" for ever. The client waits for one attempt only. */
static void end_later(struct build *b, const struct err *e)
{
	log_error("cannot end build %s, trying again: %s", b->id, e->msg);
	answer(b);
	if (loop_set_timer(b->api->config->loop, &b->again,
			   clock_mono() + END_AGAIN_S * NSEC_PER_SEC) < 0)
		build_free(b);
}

static void end_done(void *arg, const json_t *result, const struct err *e)
{
	struct build *b = arg;

	/* The build has ended itself, was never taken, or is gone. */
	if (!result && e->num != -EALREADY && e->num != -ENOENT) {
		end_later(b, e);
		return;
	}
	answer(b);
	build_free(b);
}

static void end(struct build *b)
{
	static const struct job_ops ops = { .work = end_work, .done = end_done };
	struct err e = ERR_INIT;

	if (start_job(b, POOL_LOOK, &ops, &e) < 0)
		end_later(b, &e);
}

/* ---- run ---- */

static int run_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	struct template_build build = { 0 };
	const struct build *b = arg;
	int r = die_with_hutchd(b, e);

	(void)ret;
	if (r == 0)
		r = open_store(b, &s, e);
	if (r == 0)
		r = template_get(&s, b->template, b->id, &build, e);
	return r < 0 ? r : recipe_run(&s, &build, b->recipe, &b->terms, e);
}

static void run_done(void *arg, const json_t *result, const struct err *e)
{
	struct build *b = arg;

	b->failure = *e;
	if (result)
		build_free(b);
	else
		end(b);
}

static void run(struct build *b)
{
	static const struct job_ops ops = { .work = run_work, .done = run_done };

	if (start_job(b, POOL_BUILD, &ops, &b->failure) < 0)
		end(b);
	else
		answer(b);
}

/* ---- take ---- */

static int take(const struct build *b, struct template_store *s, struct err *e)
{
	struct template_build build = { 0 };
	int r = die_with_hutchd(b, e);

	if (r == 0)
		r = open_store(b, s, e);
	if (r == 0)
		r = template_get(s, b->template, b->id, &build, e);
	return r < 0 ? r : template_building(s, b->template, b->id, e);
}

/* A refusal is a result too. A job without a result has died at an unknown point. */
static int take_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	int r = take(arg, &s, e);

	*ret = r < 0 ? JSON_OBJECT({ "errno", json_integer(-r) },
				   { "message", json_string(e->msg) })
		     : JSON_OBJECT({ "owner", json_string(s.owner) });
	return *ret ? 0 : err_oom(e);
}

/* Another request has taken the same build: this one must not end it. */
static bool is_taken(const struct build *b)
{
	const struct build *o = b->api->builds;

	while (o && !(o->taken && str_eq(o->id, b->id)))
		o = o->next;
	return o != NULL;
}

static void take_done(void *arg, const json_t *result, const struct err *e)
{
	const char *owner = json_string_value(json_object_get(result, "owner"));
	const char *message = json_string_value(json_object_get(result, "message"));
	struct build *b = arg;

	if (owner) {
		(void)snprintf(b->owner, sizeof(b->owner), "%s", owner);
		b->taken = true;
		run(b);
		return;
	}
	b->failure = *e;
	if (message)
		(void)err_set(&b->failure,
			      -(int)json_integer_value(json_object_get(result, "errno")), "%s",
			      message);
	if (!message && !is_taken(b)) {
		end(b);
		return;
	}
	answer(b);
	build_free(b);
}

/* ---- the request ---- */

static int may_build(const struct request *r, struct err *e)
{
	size_t has = 0;

	if (r->role == ROLE_ADMIN)
		return 0;
	for (const struct build *b = r->api->builds; b; b = b->next)
		has += str_eq(b->key, r->owner);
	return quota_compare(r->owner, QUOTA_BUILDS, r->grant.quota.most[QUOTA_BUILDS], has,
			     has + 1, e);
}

static void build_drop(struct request *r)
{
	((struct build *)r->data)->request = NULL;
}

static struct build *build_new(struct request *r)
{
	struct build *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	*b = (struct build){ .api = r->api,
			     .hutchd = getpid(),
			     .grant = r->grant,
			     .recipe = json_incref(r->body),
			     .failure = ERR_INIT,
			     .again = { .cb = on_again, .arg = b },
			     .next = r->api->builds };
	(void)snprintf(b->trace, sizeof(b->trace), "%s", r->id);
	(void)snprintf(b->template, sizeof(b->template), "%s", r->args[0]);
	(void)snprintf(b->id, sizeof(b->id), "%s", r->args[1]);
	(void)snprintf(b->agent, sizeof(b->agent), "%s", request_agent(r));
	(void)snprintf(b->key, sizeof(b->key), "%s", r->owner);
	b->terms = (struct recipe_terms){ .agent = b->agent,
					  .owner = b->owner,
					  .level = b->grant.level,
					  .all = r->role == ROLE_ADMIN,
					  .key = b->key };
	if (!b->terms.all && quota_limits(&b->grant.quota))
		b->terms.quota = &b->grant.quota;
	r->api->builds = b;
	return b;
}

static int start_build(struct request *r, struct err *e)
{
	static const struct job_ops ops = { .work = take_work, .done = take_done };
	struct build *b = NULL;
	int rc = recipe_check(r->body, e);

	/* Checked here, because errors from a child must be UTF-8. */
	if (rc == 0 && !template_build_valid(r->args[1]))
		rc = err_set(e, -EINVAL, "'%.80s' is not the id of a build", r->args[1]);
	if (rc == 0)
		rc = may_build(r, e);
	if (rc < 0)
		return rc;
	b = build_new(r);
	if (!b)
		return err_oom(e);
	rc = start_job(b, POOL_LOOK, &ops, e);
	if (rc < 0) {
		build_free(b);
		return rc;
	}
	b->request = r;
	r->data = b;
	r->drop = build_drop;
	return 0;
}

static void have_recipe(struct request *r)
{
	struct err e = ERR_INIT;

	if (start_build(r, &e) < 0)
		request_fail_err(r, &e);
}

void e2b_template_build(struct request *r)
{
	request_json(r, false, have_recipe);
}

/* ---- status ---- */

static json_t *log_entry(const json_t *one)
{
	char when[CLOCK_RFC3339_MAX];
	json_t *step = json_object_get(one, "step");
	json_t *j = JSON_OBJECT(
		{ "timestamp",
		  json_string(clock_format(
			  (uint64_t)json_integer_value(json_object_get(one, "time")), when)) },
		{ "level", json_incref(json_object_get(one, "level")) },
		{ "message", json_incref(json_object_get(one, "message")) });

	if (j && step && json_put(j, "step", json_incref(step)) < 0)
		j = (json_decref(j), NULL);
	return j;
}

static json_t *log_entries(const json_t *log)
{
	_cleanup_json_ json_t *list = json_array();
	const json_t *one;
	size_t i;

	json_array_foreach(log, i, one)
	{
		if (list && json_push(list, log_entry(one)) < 0)
			return NULL;
	}
	return TAKE_PTR(list);
}

static json_t *reason_of(const struct template_build *b)
{
	json_t *j = JSON_OBJECT({ "message", json_string(b->reason) });

	if (j && b->step[0] && json_put(j, "step", json_string(b->step)) < 0)
		j = (json_decref(j), NULL);
	return j;
}

static json_t *status_of(const struct template_build *b, const json_t *log)
{
	_cleanup_json_ json_t *j = JSON_OBJECT(
		{ "templateID", json_string(b->template) }, { "buildID", json_string(b->build) },
		{ "status", json_string(template_status_names[b->status]) },
		{ "logs", json_array() }, { "logEntries", log_entries(log) });

	if (j && b->status == TEMPLATE_ERROR && json_put(j, "reason", reason_of(b)) < 0)
		return NULL;
	return TAKE_PTR(j);
}

void e2b_template_status(struct request *r)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	_cleanup_json_ json_t *log = NULL;
	_cleanup_free_ char *text = NULL;
	struct template_build b = { 0 };
	struct err e = ERR_INIT;
	uint64_t from = 0;
	int rc = http_query(r->x, "logsOffset", &text);

	if (rc != -ENOENT && (rc < 0 || str_to_u64(text, strlen(text), INT64_MAX, &from) < 0)) {
		request_fail(r, 400, "logsOffset: expected a number");
		return;
	}
	rc = e2b_template_store(r, r->args[0], &s, &e);
	/* Reads the state before the log, so that a finished build's log is complete. */
	if (rc == 0)
		rc = template_get(&s, r->args[0], r->args[1], &b, &e);
	if (rc == 0)
		rc = template_log_read(&s, b.build, from, TEMPLATE_PAGE_MAX, &log, &e);
	if (rc < 0)
		request_fail_err(r, &e);
	else
		request_answer(r, 200, status_of(&b, log));
}
