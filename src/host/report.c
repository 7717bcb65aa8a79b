/* SPDX-License-Identifier: Apache-2.0 */
/* Names, and the report as JSON. */
#include "base/json-util.h"
#include "host/host.h"

static const char *const area_names[] = {
	[HOST_AREA_KERNEL] = "kernel",	   [HOST_AREA_CGROUPS] = "cgroups",
	[HOST_AREA_ENGINES] = "engines",   [HOST_AREA_USERS] = "users",
	[HOST_AREA_STORAGE] = "storage",   [HOST_AREA_SECRETS] = "secrets",
	[HOST_AREA_HARDWARE] = "hardware",
};
static_assert(ARRAY_SIZE(area_names) == HOST_AREA_MAX, "an area without a name");

static const char *const state_names[] = {
	[HOST_OK] = "ok",
	[HOST_INFO] = "info",
	[HOST_WARN] = "warn",
	[HOST_FAIL] = "fail",
};
static_assert(ARRAY_SIZE(state_names) == HOST_STATE_MAX, "a state without a name");

static const char *const verdict_names[] = {
	[HOST_READY] = "ready",
	[HOST_LIMITED] = "limited",
	[HOST_UNAVAILABLE] = "unavailable",
};
static_assert(ARRAY_SIZE(verdict_names) == HOST_VERDICT_MAX, "a verdict without a name");

const char *host_verdict_name(enum host_verdict v)
{
	return verdict_names[v];
}

static json_t *host_object(const struct host_report *r)
{
	_cleanup_json_ json_t *o = json_object();

	if (!o || json_put(o, "kernel", json_string(r->kernel)) < 0 ||
	    json_put(o, "arch", json_string(r->arch)) < 0 ||
	    json_put(o, "os", json_string(r->os)) < 0 ||
	    json_put(o, "user", json_string(r->user)) < 0 ||
	    json_put(o, "uid", json_integer(r->uid)) < 0)
		return NULL;
	return TAKE_PTR(o);
}

static json_t *check_object(const struct host_check *c)
{
	_cleanup_json_ json_t *o = json_object();

	if (!o || json_put(o, "id", json_string(c->id)) < 0 ||
	    json_put(o, "area", json_string(area_names[c->area])) < 0 ||
	    json_put(o, "state", json_string(state_names[c->state])) < 0 ||
	    json_put(o, "value", json_string(c->value)) < 0 ||
	    json_put(o, "detail", json_string(c->detail)) < 0 ||
	    json_put(o, "advice", json_string(c->advice)) < 0)
		return NULL;
	return TAKE_PTR(o);
}

static json_t *level_object(enum level l, const struct host_level_report *lr)
{
	_cleanup_json_ json_t *o = json_object();

	if (!o || json_put(o, "level", json_string(level_names[l])) < 0 ||
	    json_put(o, "state", json_string(verdict_names[lr->verdict])) < 0 ||
	    json_put(o, "why", json_string(lr->why)) < 0)
		return NULL;
	return TAKE_PTR(o);
}

int host_report_json(const struct host_report *r, json_t **ret)
{
	_cleanup_json_ json_t *o = json_object(), *checks = json_array(), *levels = json_array();

	for (size_t i = 0; i < r->n_checks; i++)
		if (json_push(checks, check_object(&r->checks[i])) < 0)
			return -ENOMEM;
	for (enum level l = LEVEL_FIRST; l < LEVEL_MAX; l++)
		if (json_push(levels, level_object(l, &r->levels[l])) < 0)
			return -ENOMEM;
	if (!o || json_put(o, "host", host_object(r)) < 0 ||
	    json_put(o, "checks", TAKE_PTR(checks)) < 0 ||
	    json_put(o, "levels", TAKE_PTR(levels)) < 0)
		return -ENOMEM;
	*ret = TAKE_PTR(o);
	return 0;
}
