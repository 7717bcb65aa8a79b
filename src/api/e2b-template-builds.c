/* SPDX-License-Identifier: Apache-2.0 */
/* Builds of templates: jobs of a queue of their own, and what becomes of them. */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#include "clock.h"
#include "e2b.h"
#include "quota-enter.h"
#include "recipe.h"

struct build {
	struct recipe_terms terms;
	char agent[256], key[64];
	char owner[TEMPLATE_NAME_MAX + 1]; /* whose the template is */
	struct key_grant grant;
	struct template_build build;
	json_t *recipe;
};

static void build_free(struct build *b)
{
	json_decref(b->recipe);
	free(b);
}

static int build_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	const struct build *b = arg;
	int r;

	/* Whoever serves next says that the build has failed: so it does not go on. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	r = template_store_open(&s, b->owner, false, e);
	return r < 0 ? r : recipe_run(&s, &b->build, b->recipe, &b->terms, e);
}

/* One that died on the way has left no end. */
static void build_done(void *arg, const json_t *result, const struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	struct err own = ERR_INIT;
	struct build *b = arg;

	if (!result && template_store_open(&s, b->owner, false, &own) == 0 &&
	    template_end(&s, b->build.template, b->build.build, e->msg, NULL, &own) < 0 &&
	    own.num != -EALREADY)
		log_error("build %s: %s", b->build.build, own.msg);
	build_free(b);
}

static const struct job_ops build_ops = { .work = build_work, .done = build_done };

static int may_build(const struct request *r, struct err *e)
{
	const size_t has = jobs_of(r->api->pools[POOL_BUILD], r->owner);

	return r->role == ROLE_ADMIN
		       ? 0
		       : quota_compare(r->owner, QUOTA_BUILDS, r->grant.quota.most[QUOTA_BUILDS],
				       has, has + 1, e);
}

static int start_build(struct request *r, struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	struct build *b;
	struct job *job;
	int rc = recipe_check(r->body, e);

	if (rc == 0)
		rc = may_build(r, e);
	if (rc == 0)
		rc = e2b_template_store(r, r->args[0], &s, e);
	if (rc < 0)
		return rc;
	b = calloc(1, sizeof(*b));
	if (!b)
		return err_oom(e);
	memcpy(b->owner, s.owner, sizeof(b->owner));
	(void)snprintf(b->agent, sizeof(b->agent), "%s", request_agent(r));
	(void)snprintf(b->key, sizeof(b->key), "%s", r->owner);
	b->grant = r->grant;
	b->terms = (struct recipe_terms){ .agent = b->agent,
					  .owner = b->owner,
					  .level = b->grant.level,
					  .all = r->role == ROLE_ADMIN,
					  .key = b->key };
	if (!b->terms.all && quota_limits(&b->grant.quota))
		b->terms.quota = &b->grant.quota;
	b->recipe = json_incref(r->body);
	rc = template_get(&s, r->args[0], r->args[1], &b->build, e);
	if (rc == 0)
		rc = template_building(&s, r->args[0], r->args[1], e);
	if (rc == 0)
		rc = job_start(r->api->pools[POOL_BUILD], r->owner, &build_ops, b, &job, e);
	if (rc < 0)
		build_free(b);
	return rc;
}

static void have_recipe(struct request *r)
{
	struct err e = ERR_INIT;

	if (start_build(r, &e) < 0)
		request_fail_err(r, &e);
	else
		request_empty(r, 202);
}

void e2b_template_build(struct request *r)
{
	request_json(r, false, have_recipe);
}

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
	/* What it is first, then what it said: so its last words are never missed. */
	if (rc == 0)
		rc = template_get(&s, r->args[0], r->args[1], &b, &e);
	if (rc == 0)
		rc = template_log_read(&s, b.build, from, TEMPLATE_PAGE_MAX, &log, &e);
	if (rc < 0)
		request_fail_err(r, &e);
	else
		request_answer(r, 200, status_of(&b, log));
}
