/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hutch's additions to the E2B API: /hutch/v1, /metrics, /health. Most of it is the output of the
 * command line with --json.
 */
#include "v1/v1.h"

#include <string.h>

#include "api/body.h"
#include "api/box.h"
#include "base/clock.h"
#include "builtin/default-store.h"
#include "engine/cgroup.h"
#include "template/template.h"
#include "v1/mcp-http.h"
#include "v1/openapi.h"
#include "v1/tool.h"

static const char json[] = "application/json", lines[] = "application/x-ndjson";
static const char refusal[] = "this host could not do it";

static void health(struct request *r)
{
	request_answer(r, 200, JSON_OBJECT({ "status", json_string("ok") }));
}

static void version(struct request *r)
{
	tool_answer(r, json, refusal, (const char *const[]){ "version", "--json", NULL });
}

static void doctor(struct request *r)
{
	tool_answer(r, json, refusal, (const char *const[]){ "doctor", "--json", NULL });
}

/* Only the operator may see paths and ids of the host. */
static void without_places(const struct request *r, json_t *j)
{
	static const char *const places[] = { "root",	   "ids",     "image_uid", "blank",
					      "image_gid", "machine", "file" };
	json_t *one;
	size_t k;

	json_array_foreach(j, k, one)
	{
		without_places(r, one);
	}
	for (size_t i = 0; json_is_object(j) && i < ARRAY_SIZE(places); i++)
		(void)json_object_del(j, places[i]);
}

/* A build's image belongs to its template, maybe another key's; errors may name host files. */
static void images_of_all(const struct request *r, json_t *list)
{
	for (size_t i = json_array_size(list); i > 0; i--) {
		json_t *one = json_array_get(list, i - 1);
		const char *name = json_string_value(json_object_get(one, "name"));

		if (!name || template_is_image(name) ||
		    (json_object_get(one, "error") &&
		     json_put(one, "error", json_string("it cannot be read")) < 0))
			(void)json_array_remove(list, i - 1);
	}
	without_places(r, list);
}

static void images(struct request *r)
{
	tool_answer_narrowed(r, images_of_all, refusal,
			     (const char *const[]){ "image", "ls", "--json", NULL });
}

static void image(struct request *r)
{
	struct err e = ERR_INIT;
	bool hidden = r->role != ROLE_ADMIN && template_is_image(r->args[0]);
	int rc = image_name_valid(r->args[0]) && !hidden ? image_find(r->args[0], &e) : -ENOENT;

	if (rc == -ENOENT)
		request_fail(r, 404, "there is no image '%s'", r->args[0]);
	else
		tool_answer_narrowed(r, without_places, "this image cannot be read",
				     (const char *const[]){ "image", "inspect", "--json", "--",
							    r->args[0], NULL });
}

static void granted_only(const struct request *r, json_t *list)
{
	for (size_t i = json_array_size(list); i > 0; i--) {
		const json_t *one = json_array_get(list, i - 1);
		const char *name = json_string_value(json_object_get(one, "name"));

		if (!name || !request_may_use(r, name))
			(void)json_array_remove(list, i - 1);
	}
	without_places(r, list);
}

static void policies(struct request *r)
{
	tool_answer_narrowed(r, granted_only, refusal,
			     (const char *const[]){ "agents", "--json", NULL });
}

/* Accepts names only: hutch would also accept a path, and quotes files that it cannot compile. */
static int find_policy(const char *name, struct err *e)
{
	_cleanup_default_store_ struct default_store store = { 0 };
	const struct source *found = NULL;
	int r = default_store_open(&store, NULL, 0, e);

	return r < 0 ? r : store_find(&store.store, STORE_AGENTS, name, NULL, &found, e);
}

static void policy(struct request *r)
{
	char text[REQUEST_TEXT_MAX / 2];
	struct err e = ERR_INIT;
	int rc = request_may_use(r, r->args[0]) ? find_policy(r->args[0], &e) : -ENOENT;

	(void)snprintf(text, sizeof(text), "the policy of agent '%s' does not compile on this host",
		       r->args[0]);
	if (rc == -ENOENT)
		request_fail(r, 404, "there is no agent '%s'", r->args[0]);
	else
		tool_answer(r, json, text,
			    (const char *const[]){ "config", "compile", "--", r->args[0], NULL });
}

/* ---- one sandbox, also an ended one ---- */

static void of_box(struct request *r, const char *command)
{
	_cleanup_close_ int dir = request_dir(r);

	if (dir >= 0)
		tool_answer_narrowed(r, without_places, refusal,
				     (const char *const[]){ command, "--json", r->args[0], NULL });
}

static void inspect(struct request *r)
{
	of_box(r, "inspect");
}

static void receipt(struct request *r)
{
	of_box(r, "receipt");
}

static void egress_log(struct request *r)
{
	_cleanup_close_ int dir = request_dir(r);

	if (dir >= 0)
		tool_answer(r, lines, refusal,
			    (const char *const[]){ "egress", "log", "--json", r->args[0], NULL });
}

/* {"allow": RULE} or {"deny": RULE} */
static void have_rule(struct request *r)
{
	const char *allow = json_string_value(json_object_get(r->body, "allow"));
	const char *deny = json_string_value(json_object_get(r->body, "deny"));
	const struct box *b = request_box(r);

	if (!b)
		return;
	if (!allow == !deny)
		request_fail(r, 400, "expected {\"allow\": RULE} or {\"deny\": RULE}");
	else
		tool_answer(r, json, refusal,
			    (const char *const[]){ "egress", allow ? "allow" : "deny", "--",
						   b->sandbox.id, allow ? allow : deny, NULL });
}

static void egress_rule(struct request *r)
{
	request_json(r, false, have_rule);
}

/* ---- the audit log ---- */

/* Only possible ids and times become arguments of a command. */
static bool is_plain(const char *s)
{
	return s[0] && strlen(s) < 64 &&
	       s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789TZ:.+-")] == '\0' && s[0] != '-';
}

static void audit(struct request *r)
{
	_cleanup_free_ char *sandbox = NULL, *since = NULL;
	const char *argv[TOOL_ARGS] = { "audit", "show", "--json" };
	size_t n = 3;

	(void)http_query(r->x, "sandbox", &sandbox);
	(void)http_query(r->x, "since", &since);
	if ((sandbox && !is_plain(sandbox)) || (since && !is_plain(since))) {
		request_fail(r, 400, "sandbox: expected an id; since: expected a time");
		return;
	}
	if (sandbox) {
		argv[n++] = "--sandbox";
		argv[n++] = sandbox;
	}
	if (since) {
		argv[n++] = "--since";
		argv[n++] = since;
	}
	tool_answer(r, lines, refusal, argv);
}

static void audit_verify(struct request *r)
{
	tool_answer(r, json, refusal, (const char *const[]){ "audit", "verify", "--json", NULL });
}

static void events(struct request *r)
{
	tool_follow(r, (const char *const[]){ "audit", "show", "--json", "--follow", "--since",
					      "0s", NULL });
}

/* ---- metrics ---- */

struct totals {
	size_t running, paused, stopped;
	uint64_t memory, cpu_us, oom_kills;
};

static int add_up(struct box *b, void *arg)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct cgroup_usage u = { 0 };
	char group[STATE_GROUP_MAX];
	struct totals *t = arg;

	box_refresh(b);
	t->paused += b->state == BOX_PAUSED;
	t->stopped += b->state == BOX_RUNNING && b->stopped;
	t->running += b->state == BOX_RUNNING && !b->stopped;
	cgroup_open(state_group(&b->api->root, b->sandbox.id, group), &g);
	cgroup_usage(&g, &u);
	t->memory += u.memory;
	t->cpu_us += u.cpu_us;
	t->oom_kills += u.oom_kills;
	return 0;
}

static void put_metric(struct buf *b, const char *name, const char *type, const char *help,
		       double value)
{
	(void)buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, type, name,
			 value);
}

static void metrics(struct request *r)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);
	const struct api *a = r->api;
	struct totals t = { 0 };
	size_t jobs = 0;

	(void)box_each(r->api, add_up, &t);
	for (size_t i = 0; i < POOLS; i++)
		jobs += jobs_running(a->pools[i]);
	put_metric(&b, "hutch_sandboxes_running", "gauge", "Running sandboxes.", (double)t.running);
	put_metric(&b, "hutch_sandboxes_paused", "gauge", "Paused sandboxes.", (double)t.paused);
	put_metric(&b, "hutch_sandboxes_stopped", "gauge",
		   "VMs that have stopped because the host's disk is full.", (double)t.stopped);
	put_metric(&b, "hutch_sandboxes_memory_bytes", "gauge", "Memory used by all sandboxes.",
		   (double)t.memory);
	put_metric(&b, "hutch_sandboxes_cpu_seconds", "gauge",
		   "CPU time used by the existing sandboxes.", (double)t.cpu_us / 1e6);
	put_metric(&b, "hutch_sandboxes_oom_kills", "gauge",
		   "Processes of the existing sandboxes killed by a memory limit.",
		   (double)t.oom_kills);
	put_metric(&b, "hutchd_jobs", "gauge", "Running and waiting starts, ends and builds.",
		   (double)jobs);
	put_metric(&b, "hutchd_requests_total", "counter", "Requests since the start of hutchd.",
		   (double)a->counts.requests);
	put_metric(&b, "hutchd_sandboxes_created_total", "counter",
		   "Sandboxes created since the start of hutchd.", (double)a->counts.created);
	put_metric(&b, "hutchd_sandboxes_killed_total", "counter",
		   "Sandboxes ended on request since the start of hutchd.",
		   (double)a->counts.killed);
	put_metric(&b, "hutchd_start_time_seconds", "gauge", "When hutchd was started.",
		   (double)a->started / 1e9);
	if (b.err < 0)
		request_fail(r, 503, "out of memory");
	else
		request_text(r, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
}

static void openapi(struct request *r)
{
	request_text(r, 200, json, openapi_json, openapi_json_n);
}

enum {
	ANYBODY = ROLE_NOBODY | ROLE_METRICS | ROLE_USER | ROLE_ADMIN,
	KEYS = ROLE_USER | ROLE_ADMIN,
};

static const struct route v1_routes[] = {
	{ "GET", "/health", ANYBODY, health },
	{ "GET", "/metrics", ROLE_METRICS | ROLE_ADMIN, metrics },
	{ "GET", "/hutch/v1/openapi.json", ANYBODY, openapi },
	{ "GET", "/hutch/v1/version", KEYS, version },
	{ "GET", "/hutch/v1/doctor", ROLE_ADMIN, doctor },
	{ "GET", "/hutch/v1/images", KEYS, images },
	{ "GET", "/hutch/v1/images/{}", KEYS, image },
	{ "GET", "/hutch/v1/policies", KEYS, policies },
	{ "GET", "/hutch/v1/policies/{}", KEYS, policy },
	{ "GET", "/hutch/v1/sandboxes/{}", KEYS, inspect },
	{ "GET", "/hutch/v1/sandboxes/{}/receipt", KEYS, receipt },
	{ "GET", "/hutch/v1/sandboxes/{}/egress", KEYS, egress_log },
	{ "POST", "/hutch/v1/sandboxes/{}/egress", ROLE_ADMIN, egress_rule },
	{ "GET", "/hutch/v1/audit", ROLE_ADMIN, audit },
	{ "GET", "/hutch/v1/audit/verify", ROLE_ADMIN, audit_verify },
	{ "GET", "/hutch/v1/events", ROLE_ADMIN, events },
	{ NULL },
};

static int begin(struct api *a, struct err *e)
{
	return mcp_sessions_new(a->config->loop, &a->mcp, e);
}

static void end(struct api *a)
{
	a->mcp = mcp_sessions_free(a->mcp);
}

static const struct route *const tables[] = { v1_routes, mcp_routes, NULL };
const struct api_part v1_part = { .routes = { [PLANE_CONTROL] = tables },
				  .begin = begin,
				  .end = end };
