/* SPDX-License-Identifier: Apache-2.0 */
/* One sandbox of the E2B API: its description, end, deadline, pause and network. */
#include <string.h>

#include "api/suspend.h"
#include "base/clock.h"
#include "e2b/e2b.h"
#include "engine/engine.h"

/* ---- description ---- */

static json_t *domain_json(const struct box *b)
{
	const char *told = b->api->config->told_domain;

	return json_string(told ? told : "hutch.invalid"); /* RFC 2606: reserved */
}

json_t *e2b_sandbox(const struct box *b)
{
	return JSON_OBJECT(
		{ "sandboxID", json_string(b->sandbox.id) },
		{ "templateID", json_string(b->template) }, { "clientID", json_string("hutch") },
		{ "envdVersion", json_string(API_ENVD_VERSION) },
		{ "envdAccessToken", json_string(b->token) },
		{ "trafficAccessToken", b->traffic[0] ? json_string(b->traffic) : json_null() },
		{ "domain", domain_json(b) });
}

static json_t *time_json(uint64_t wall)
{
	char text[CLOCK_RFC3339_MAX];

	return json_string(clock_format(wall, text));
}

/* A paused sandbox has no end, but E2B requires a time. */
static uint64_t end_of(const struct box *b)
{
	if (b->deadline > 0)
		return b->deadline * NSEC_PER_MSEC;
	return b->spec.created + (b->spec.limits.ttl ? b->spec.limits.ttl * NSEC_PER_MSEC
						     : UINT64_C(365) * 24 * 3600 * NSEC_PER_SEC);
}

static int add_detail(json_t *j, const struct box *b)
{
	int r = json_put(j, "envdAccessToken", json_string(b->token));

	r |= json_put(j, "domain", domain_json(b));
	r |= json_put(j, "allowInternetAccess", json_boolean(b->internet));
	if (b->network)
		r |= json_put(j, "network", json_incref(b->network));
	r |= json_put(
		j, "lifecycle",
		JSON_OBJECT({ "onTimeout", json_string(b->pause_at_deadline ? "pause" : "kill") },
			    { "autoResume", json_boolean(b->auto_resume) }));
	return r;
}

json_t *e2b_info(struct box *b, bool detail)
{
	_cleanup_json_ json_t *j = NULL;

	box_refresh(b);
	j = JSON_OBJECT({ "sandboxID", json_string(b->sandbox.id) },
			{ "templateID", json_string(b->template) },
			{ "alias", json_string(b->template) }, { "clientID", json_string("hutch") },
			{ "startedAt", time_json(b->spec.created) },
			{ "endAt", time_json(end_of(b)) }, { "cpuCount", json_number(box_cpus(b)) },
			{ "memoryMB", json_number(b->spec.limits.memory >> 20) },
			{ "diskSizeMB", json_number(b->spec.limits.disk >> 20) },
			{ "metadata", json_incref(b->metadata) },
			{ "state", json_string(b->state == BOX_PAUSED ? "paused" : "running") },
			{ "envdVersion", json_string(API_ENVD_VERSION) });
	if (!j || (detail && add_detail(j, b) < 0))
		return NULL;
	return TAKE_PTR(j);
}

void e2b_get(struct request *r)
{
	struct box *b = request_box(r);

	if (b)
		request_answer(r, 200, e2b_info(b, true));
}

/* ---- the end ---- */

enum {
	KILL_BY = SPEC_OWNER_MAX + 8,
};

static const char by_hutchd[] = "hutchd";

struct kill {
	char id[SPEC_ID + 1];
	char by[KILL_BY];	 /* who requested it */
	struct request *request; /* NULL: no client waits */
	struct job *job;
	struct err why; /* the error to answer with; none: 204 */
};

static int kill_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	const struct kill *k = arg;
	struct err owed = ERR_INIT;
	int r = state_root_open(&root, e);

	if (r == 0)
		r = sandbox_find(&root, k->id, &b, e);
	return r < 0 ? r : sandbox_kill(&root, &b, k->by, &owed, e);
}

static void kill_done(void *arg, const json_t *result, const struct err *e)
{
	struct kill *k = arg;
	struct request *r = k->request;

	k->job = NULL;
	if (!r) {
		if (!result && e->num != -ENOENT)
			log_error("cannot end sandbox %s: %s", k->id, e->msg);
		free(k);
	} else if (k->why.num < 0) {
		if (!result && e->num != -ENOENT)
			log_error("cannot end sandbox %s: %s", k->id, e->msg);
		request_fail_err(r, &k->why);
	} else if (!result && e->num != -ENOENT) {
		request_fail_err(r, e);
	} else {
		r->api->counts.killed++;
		request_empty(r, 204);
	}
}

static const struct job_ops kill_ops = { .work = kill_work, .done = kill_done };

/* The kill continues without its client. */
static void kill_drop(struct request *r)
{
	struct kill *k = r->data;

	k->request = NULL;
	if (!k->job)
		free(k);
}

/* `by`: who requested it, as text. */
static struct kill *kill_start(struct api *a, const char *owner, const char *id, const char *by,
			       struct err *e)
{
	struct kill *k = calloc(1, sizeof(*k));

	if (!k)
		return (void)err_oom(e), NULL;
	(void)snprintf(k->id, sizeof(k->id), "%s", id);
	(void)snprintf(k->by, sizeof(k->by), "%s", by);
	if (job_start(a->pools[POOL_END], owner, &kill_ops, k, &k->job, e) == 0)
		return k;
	free(k);
	return NULL;
}

void e2b_kill_unwanted(struct api *a, const char *owner, const char *id)
{
	struct err e = ERR_INIT;

	if (!kill_start(a, owner, id, by_hutchd, &e))
		log_error("cannot end sandbox %s: %s", id, e.msg);
}

/* Names the key, or the local user for a request by the Unix socket without a key. */
static const char *killer_of(const struct request *r, char out[static KILL_BY])
{
	if (r->owner[0])
		(void)snprintf(out, KILL_BY, "key %s", r->owner);
	else if (r->x->local)
		(void)snprintf(out, KILL_BY, "uid %u", r->x->uid);
	else
		return by_hutchd;
	return out;
}

/* `why`: an earlier failure, so hutchd itself is the killer. False: failed, and was answered. */
static bool kill_for(struct request *r, const char *id, const struct err *why)
{
	char by[KILL_BY];
	struct err e = ERR_INIT;
	struct kill *k =
		kill_start(r->api, r->owner, id, why->num < 0 ? by_hutchd : killer_of(r, by), &e);

	if (!k) {
		request_fail_err(r, &e);
		return false;
	}
	k->request = r;
	k->why = *why;
	r->data = k;
	r->drop = kill_drop;
	return true;
}

static void end(struct request *r, const struct box *b)
{
	const struct err none = ERR_INIT;

	(void)kill_for(r, b->sandbox.id, &none);
}

void e2b_kill_failed(struct request *r, const char *id, const struct err *why)
{
	if (!kill_for(r, id, why))
		log_error("cannot kill sandbox %s, whose ready command failed: "
			  "remove it with 'hutch rm -f %s'",
			  id, id);
}

void e2b_destroy(struct request *r)
{
	struct box *b = request_box(r);

	if (b)
		end(r, b);
}

/* ---- deadline, pause, resume ---- */

static void life_failed(struct request *r, enum wire_code code, const char *text)
{
	int status = code == WIRE_EXISTS	? 409
		     : code == WIRE_TOO_MANY	? 429
		     : code == WIRE_INVALID	? 400
		     : code == WIRE_UNSUPPORTED ? 501
						: 500;

	if (code == WIRE_GONE)
		request_no_box(r);
	else
		request_fail(r, status, "%s", text[0] ? text : wire_code_name(code));
}

int e2b_timeout(const json_t *body, const char *key, uint64_t otherwise, uint64_t *ret,
		struct err *e)
{
	const json_t *value = json_object_get(body, key);

	*ret = otherwise;
	if (!value || json_is_null(value))
		return 0;
	return json_get_u64(body, key, E2B_TIMEOUT_MAX, ret, e);
}

static void timeout_set(struct request *r, struct box *b, enum wire_code code, const char *text)
{
	if (code == WIRE_DONE)
		request_empty(r, 204);
	else
		life_failed(r, code, text);
}

static void have_timeout(struct request *r)
{
	struct err e = ERR_INIT;
	uint64_t seconds = 0;
	struct box *b = request_box(r);

	if (!b || box_await(r, b, have_timeout))
		return;
	if (e2b_timeout(r->body, "timeout", UINT64_MAX, &seconds, &e) < 0)
		request_fail_err(r, &e);
	else if (seconds == UINT64_MAX)
		request_fail(r, 400, "timeout is missing");
	else if (seconds == 0)
		end(r, b);
	else
		box_life(r, b, seconds * 1000, 0, timeout_set);
}

void e2b_set_timeout(struct request *r)
{
	request_json(r, false, have_timeout);
}

/* Returns the new deadline in ms from now if it is later than the old one, else 0. */
static uint64_t later(struct box *b, uint64_t seconds)
{
	uint64_t now = clock_wall() / NSEC_PER_MSEC;

	box_refresh(b);
	return b->deadline == 0 || now + seconds * 1000 > b->deadline ? seconds * 1000 : 0;
}

static void have_refresh(struct request *r)
{
	struct err e = ERR_INIT;
	uint64_t seconds = 0, ms;
	struct box *b = request_box(r);

	if (!b || box_await(r, b, have_refresh))
		return;
	if (e2b_timeout(r->body, "duration", E2B_TIMEOUT_DEFAULT_V1, &seconds, &e) < 0) {
		request_fail_err(r, &e);
		return;
	}
	ms = later(b, MAX(seconds, (uint64_t)E2B_TIMEOUT_DEFAULT_V1));
	if (ms == 0 || b->state == BOX_PAUSED)
		request_empty(r, 204);
	else
		box_life(r, b, ms, 0, timeout_set);
}

void e2b_refresh(struct request *r)
{
	request_json(r, true, have_refresh);
}

static void paused(struct request *r, struct box *b, enum wire_code code, const char *text)
{
	struct request *next;

	if (code != WIRE_DONE) {
		life_failed(r, code, text);
		return;
	}
	request_empty(r, 204);
	/* No running request of the sandbox continues. */
	for (struct request *one = b->requests; one; one = next) {
		next = one->next;
		request_gone(one);
	}
}

static void have_pause(struct request *r)
{
	struct box *b = request_box(r);

	if (!b || box_await(r, b, have_pause))
		return;
	box_refresh(b);
	if (json_is_false(json_object_get(r->body, "memory")))
		request_fail(r, 400, "memory: pausing without the memory is not supported");
	else if (b->state == BOX_PAUSED)
		request_fail(r, 409, "sandbox %s is already paused", b->sandbox.id);
	else if (engine_can(&b->spec, ENGINE_SNAPSHOTS))
		box_suspend(r, b);
	else
		box_life(r, b, 0, WIRE_PAUSED, paused);
}

void e2b_pause(struct request *r)
{
	request_json(r, true, have_pause);
}

static void resumed(struct request *r, struct box *b, enum wire_code code, const char *text)
{
	if (code == WIRE_DONE || code == WIRE_EXISTS)
		request_answer(r, 201, e2b_sandbox(b));
	else
		life_failed(r, code, text);
}

static void prolonged(struct request *r, struct box *b, enum wire_code code, const char *text)
{
	if (code == WIRE_DONE)
		request_answer(r, 200, e2b_sandbox(b));
	else
		life_failed(r, code, text);
}

/* The VM runs again. If another request resumed it, that request set the deadline. */
static void unsuspended(struct request *r, struct box *b)
{
	struct err ignored = ERR_INIT;
	uint64_t seconds = E2B_TIMEOUT_DEFAULT;

	(void)e2b_timeout(r->body, "timeout", E2B_TIMEOUT_DEFAULT, &seconds, &ignored);
	if (box_is_as_late(b, seconds))
		request_answer(r, 201, e2b_sandbox(b));
	else
		box_life(r, b, MAX(seconds, UINT64_C(1)) * 1000, 0, resumed);
}

static void have_connect(struct request *r)
{
	struct err e = ERR_INIT;
	uint64_t seconds = 0, ms;
	struct box *b = request_box(r);

	if (!b)
		return;
	if (e2b_timeout(r->body, "timeout", E2B_TIMEOUT_DEFAULT, &seconds, &e) < 0) {
		request_fail_err(r, &e);
		return;
	}
	ms = later(b, seconds);
	if (b->suspended)
		box_unsuspend(r, b, MAX(seconds, UINT64_C(1)) * 1000, unsuspended);
	else if (b->state == BOX_PAUSED)
		box_life(r, b, MAX(seconds, UINT64_C(1)) * 1000, WIRE_RUNNING, resumed);
	else if (ms == 0)
		request_answer(r, 200, e2b_sandbox(b));
	else
		box_life(r, b, ms, 0, prolonged);
}

void e2b_connect(struct request *r)
{
	request_json(r, true, have_connect);
}

static void have_resume(struct request *r)
{
	struct box *b = request_box(r);

	if (!b)
		return;
	box_refresh(b);
	if (b->state == BOX_PAUSED)
		have_connect(r);
	else
		request_fail(r, 409, "sandbox %s runs", b->sandbox.id);
}

void e2b_resume(struct request *r)
{
	request_json(r, true, have_resume);
}
