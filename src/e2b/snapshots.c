/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots and forks of the E2B API. A snapshot belongs to the owner of its sandbox, which the
 * spec saved with it names. Jobs do all the work: they write memory to disk and start VMs.
 */
#include <string.h>

#include "base/clock.h"
#include "e2b/e2b.h"
#include "engine/engine.h"
#include "snapshot/snapshot.h"

enum {
	FORKS_MAX = 100,
};

/* Object and parameters of one of these jobs. */
struct snap {
	struct api *api;
	struct request *request;
	struct job *job;
	char id[SPEC_ID + 1];
	char owner[64];
	bool all; /* administrator: of any owner */
	struct quota quota;
	char name[SANDBOX_SNAPSHOT];
	uint64_t count, deadline;
	void (*answer)(struct request *r, const json_t *result);
};

static void snap_drop(struct request *r)
{
	struct snap *s = r->data;

	if (s->job)
		job_abandon(s->job, NULL, NULL);
	free(s);
}

static void snap_done(void *arg, const json_t *result, const struct err *e)
{
	struct snap *s = arg;
	struct request *r = s->request;

	s->job = NULL;
	if (result)
		s->answer(r, result);
	else
		request_fail_err(r, e);
}

static struct snap *snap_new(struct request *r,
			     void (*answer)(struct request *r, const json_t *result))
{
	struct snap *s = calloc(1, sizeof(*s));

	if (!s) {
		request_fail(r, 503, "out of memory");
		return NULL;
	}
	*s = (struct snap){ .api = r->api,
			    .request = r,
			    .all = r->role == ROLE_ADMIN,
			    .quota = r->grant.quota,
			    .answer = answer };
	(void)snprintf(s->owner, sizeof(s->owner), "%s", r->owner);
	r->data = s;
	r->drop = snap_drop;
	return s;
}

static void snap_start(struct snap *s, enum pool pool, const struct job_ops *ops)
{
	struct err e = ERR_INIT;

	if (job_start(s->api->pools[pool], s->owner, ops, s, &s->job, &e) < 0)
		request_fail_err(s->request, &e);
}

/* ---- owner ---- */

int e2b_snapshot_is_for(const char *name, const char *owner, bool all, struct err *e)
{
	_cleanup_spec_ struct spec was = { 0 };
	_cleanup_json_ json_t *api = NULL;
	struct err own = ERR_INIT;
	int r;

	if (!snapshot_key_valid(name))
		return 0;
	r = snapshot_spec(name, &was, &own);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return (*e = own).num;
	if (all)
		return 1;
	if (!was.api[0])
		return 0; /* made by hutch: for administrators only */
	r = json_read(was.api, strlen(was.api), &api, e);
	return r < 0 ? r : str_eq(json_string_value(json_object_get(api, "owner")) ?: "", owner);
}

/* ---- a snapshot ---- */

static int save_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	char name[SANDBOX_SNAPSHOT];
	const struct snap *s = arg;
	int r = state_root_open(&root, e);

	if (r == 0)
		r = sandbox_find(&root, s->id, &b, e);
	if (r == 0)
		r = sandbox_save(&b, WIRE_SAVE_KEEP, name, e);
	if (r < 0)
		return r;
	*ret = JSON_OBJECT({ "snapshotID", json_string(name) }, { "names", json_array() });
	return *ret ? 0 : err_oom(e);
}

static void save_answer(struct request *r, const json_t *result)
{
	request_answer(r, 201, json_incref((json_t *)result));
}

static void have_save(struct request *r)
{
	static const struct job_ops ops = { .work = save_work, .done = snap_done };
	const struct box *b = request_box(r);
	struct snap *s;

	if (!b)
		return;
	if (!engine_can(&b->spec, ENGINE_SNAPSHOTS)) {
		request_fail(r, 400, "only a sandbox of level %s can be saved",
			     level_names[engine_with(ENGINE_SNAPSHOTS)->level]);
		return;
	}
	s = snap_new(r, save_answer);
	if (!s)
		return;
	(void)snprintf(s->id, sizeof(s->id), "%s", b->sandbox.id);
	snap_start(s, POOL_LIFE, &ops);
}

void e2b_snapshot(struct request *r)
{
	request_json(r, true, have_save);
}

/* ---- list ---- */

static int list_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *all = NULL, *list = json_array();
	struct err ignored = ERR_INIT; /* an unreadable snapshot does not hide the others */
	const struct snap *s = arg;
	const json_t *one;
	size_t i;
	int r = list ? snapshot_list(&all, e) : err_oom(e);

	if (r < 0)
		return r;
	json_array_foreach(all, i, one)
	{
		const json_t *info = json_object_get(one, "info");
		const char *name = json_string_value(json_object_get(one, "id"));
		const char *of = json_string_value(json_object_get(info, "sandbox"));

		/* Not for clients: snapshots of suspended sandboxes and of forks. */
		if (!name || !of || json_is_true(json_object_get(info, "fork")) ||
		    json_is_true(json_object_get(info, "suspended")) ||
		    (s->id[0] && !str_eq(of, s->id)) ||
		    e2b_snapshot_is_for(name, s->owner, s->all, &ignored) <= 0)
			continue;
		if (json_push(list, JSON_OBJECT({ "snapshotID", json_string(name) },
						{ "names", json_array() })) < 0)
			return err_oom(e);
	}
	*ret = JSON_OBJECT({ "list", TAKE_PTR(list) });
	return *ret ? 0 : err_oom(e);
}

static void list_answer(struct request *r, const json_t *result)
{
	request_answer(r, 200, json_incref(json_object_get(result, "list")));
}

void e2b_snapshots(struct request *r)
{
	static const struct job_ops ops = { .work = list_work, .done = snap_done };
	struct snap *s = snap_new(r, list_answer);
	_cleanup_free_ char *id = NULL;

	if (!s)
		return;
	if (http_query(r->x, "sandboxID", &id) == 0)
		(void)snprintf(s->id, sizeof(s->id), "%s", id);
	snap_start(s, POOL_LOOK, &ops);
}

/* ---- removal ---- */

static int remove_work(void *arg, json_t **ret, struct err *e)
{
	const struct snap *s = arg;

	(void)ret;
	return sandbox_needs_snapshot(s->name, e) < 0 ? e->num : snapshot_remove(s->name, e);
}

static void remove_answer(struct request *r, const json_t *result)
{
	(void)result;
	request_empty(r, 204);
}

bool e2b_remove_snapshot(struct request *r, const char *name)
{
	static const struct job_ops ops = { .work = remove_work, .done = snap_done };
	struct err e = ERR_INIT;
	struct snap *s;
	int rc = e2b_snapshot_is_for(name, r->owner, r->role == ROLE_ADMIN, &e);

	if (rc < 0)
		request_fail_err(r, &e);
	if (rc <= 0)
		return rc < 0;
	s = snap_new(r, remove_answer);
	if (s) {
		(void)snprintf(s->name, sizeof(s->name), "%s", name);
		snap_start(s, POOL_LOOK, &ops);
	}
	return true;
}

/* ---- forks ---- */

/* Copies hutchd's data of the original, with new tokens; "" if hutch created the original. */
static char *own_api(const char *text, int dir, struct err *e)
{
	char token[BOX_TOKEN + 1];
	_cleanup_json_ json_t *j = NULL;

	if (!text[0])
		return strdup("");
	if (box_read_api(text, dir, &j, e) < 0)
		return NULL;
	box_draw_token(token);
	if (json_put(j, "token", json_string(token)) < 0)
		return NULL;
	box_draw_token(token);
	if (json_is_string(json_object_get(j, "traffic")) &&
	    json_put(j, "traffic", json_string(token)) < 0)
		return NULL;
	return json_write_line(j);
}

static int fork_one(const struct snap *s, const struct state_root *root, int dir,
		    const struct sandbox_fork *f, json_t *list, struct err *e)
{
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_free_ char *api = own_api(f->plan.api, dir, e);
	struct sandbox_fork own = *f;
	struct err failed = ERR_INIT;
	json_t *entry;

	if (!api)
		return e->num ? e->num : err_oom(e);
	own.plan.deadline = s->deadline;
	own.plan.quota = s->all || !quota_limits(&s->quota) ? NULL : &s->quota;
	if (sandbox_fork_one(root, &own, api, &b, &failed) < 0) {
		const int code = failed.num == -EUSERS ? 429 : 500;

		if (code == 500)
			(void)job_conceal(s->all, &failed, "the copy cannot be started");
		entry = JSON_OBJECT(
			{ "error", JSON_OBJECT({ "code", json_integer(code) },
					       { "message", json_string(failed.msg) }) });
	} else {
		entry = JSON_OBJECT({ "id", json_string(b.id) });
	}
	return json_push(list, entry) < 0 ? err_oom(e) : 0;
}

static int fork_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_(sandbox_fork_end) struct sandbox_fork f = SANDBOX_FORK_INIT;
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_json_ json_t *list = json_array();
	const struct snap *s = arg;
	int r = list ? state_root_open(&root, e) : err_oom(e);

	if (r == 0)
		r = sandbox_find(&root, s->id, &b, e);
	if (r == 0)
		r = sandbox_fork_begin(&b, &f, e);
	for (uint64_t i = 0; r == 0 && i < s->count; i++)
		r = fork_one(s, &root, b.dir, &f, list, e);
	if (r < 0)
		return r;
	*ret = JSON_OBJECT({ "list", TAKE_PTR(list) });
	return *ret ? 0 : err_oom(e);
}

static json_t *fork_entry(struct api *api, const json_t *one)
{
	const char *id = json_string_value(json_object_get(one, "id"));
	const struct box *b = id ? box_find(api, id) : NULL;

	if (b) {
		api->counts.created++;
		return JSON_OBJECT({ "sandbox", e2b_sandbox(b) });
	}
	if (id)
		return JSON_OBJECT(
			{ "error",
			  JSON_OBJECT({ "code", json_integer(500) },
				      { "message", json_string("it has ended at once") }) });
	return json_incref((json_t *)one);
}

static void fork_answer(struct request *r, const json_t *result)
{
	json_t *list = json_array();
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(result, "list"), i, one)
	{
		if (list && json_push(list, fork_entry(r->api, one)) < 0)
			list = (json_decref(list), NULL);
	}
	request_answer(r, 201, list);
}

static void have_fork(struct request *r)
{
	static const struct job_ops ops = { .work = fork_work, .done = snap_done };
	const json_t *count = json_object_get(r->body, "count");
	const struct box *b = request_box(r);
	struct err e = ERR_INIT;
	uint64_t seconds = 0;
	struct snap *s = b ? snap_new(r, fork_answer) : NULL;
	int rc;

	if (!s)
		return;
	/* The copy would have the policy of its original, and so the secrets. */
	if (!request_may_use(r, b->spec.agent)) {
		request_fail(r, 403, "the key may not use the agent of sandbox %s any more",
			     b->sandbox.id);
		return;
	}
	(void)snprintf(s->id, sizeof(s->id), "%s", b->sandbox.id);
	s->count = 1;
	rc = e2b_timeout(r->body, "timeout", E2B_TIMEOUT_DEFAULT, &seconds, &e);
	if (rc == 0 && count && !json_is_null(count))
		rc = json_get_u64(r->body, "count", FORKS_MAX, &s->count, &e);
	if (rc == 0 && (s->count == 0 || seconds == 0))
		rc = err_set(&e, -EINVAL, "count and timeout: expected at least 1");
	s->deadline = seconds * 1000;
	if (rc < 0)
		request_fail_err(r, &e);
	else
		snap_start(s, POOL_START, &ops);
}

void e2b_fork(struct request *r)
{
	request_json(r, true, have_fork);
}
