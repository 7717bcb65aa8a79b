/* SPDX-License-Identifier: Apache-2.0 */
#include "state/end.h"

#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "state/state.h"

enum {
	END_FILE_MAX = 16 * 1024,
	REASON_MAX = 32
};

static const char schema[] = "hutch.end/1";
static const char file[] = "end.json";

const char *const end_reason_names[END_REASONS + 1] = {
	[END_KILLED] = "killed", [END_CLIENT] = "client-gone", [END_TTL] = "ttl",
	[END_IDLE] = "idle",	 [END_GUEST] = "guest-ended",  [END_PROTOCOL] = "protocol",
	[END_KEEPER] = "keeper", [END_WARDEN] = "warden",      [END_SUSPENDED] = "suspended",
};

static const struct {
	const char *key;
	size_t at;
} numbers[] = {
	{ "time", offsetof(struct end, time) },
	{ "oom_kills", offsetof(struct end, oom_kills) },
	{ "pids_refused", offsetof(struct end, pids_refused) },
	{ "throttled", offsetof(struct end, throttled) },
	{ "memory_peak", offsetof(struct end, memory_peak) },
	{ "cpu_us", offsetof(struct end, cpu_us) },
};

void end_add_met(struct end *end, const struct met *met)
{
	end->told = met_anything(met);
	end->oom_kills += met->oom_kills;
	end->pids_refused += met->pids_refused;
	end->disk_full |= met->disk_full;
	end->inodes_full |= met->inodes_full;
}

void end_read_killer(int dir, struct end *end)
{
	char by[sizeof(end->by)];

	if (end->reason == END_KILLED && fd_read_line(dir, STATE_KILLER, by, sizeof(by)) == 0 &&
	    str_is_visible(by, strlen(by)))
		memcpy(end->by, by, sizeof(by));
}

static json_t *end_json(const struct end *end)
{
	_cleanup_json_ json_t *j =
		JSON_OBJECT({ "schema", json_string(schema) },
			    { "reason", json_string(end_reason_names[end->reason]) },
			    { "disk_full", json_boolean(end->disk_full) },
			    { "inodes_full", json_boolean(end->inodes_full) });

	if (j && end->told && json_put(j, "told", json_true()) < 0)
		return NULL;
	if (j && end->disk_lost && json_put(j, "disk_lost", json_true()) < 0)
		return NULL;
	if (j && end->by[0] && json_put(j, "by", json_string(end->by)) < 0)
		return NULL;

	/* Clamp the kernel's counters: memory.max_usage of cgroup v1 can exceed JSON's integers. */
	for (size_t i = 0; j && i < ARRAY_SIZE(numbers); i++) {
		uint64_t n = *(const uint64_t *)((const char *)end + numbers[i].at);

		if (json_put(j, numbers[i].key, json_number(MIN(n, (uint64_t)INT64_MAX))) < 0)
			return NULL;
	}
	return TAKE_PTR(j);
}

int end_write(int dir, const struct end *end, struct err *e)
{
	_cleanup_json_ json_t *j = end_json(end);
	_cleanup_free_ char *text = j ? json_write_canonical(j) : NULL;

	assert(end->reason < END_REASONS);
	return text ? state_write(dir, file, text, strlen(text), e) : err_oom(e);
}

static int read_reason(const json_t *j, enum end_reason *ret, struct err *e)
{
	const char *name = NULL;
	int r = json_get_string(j, "reason", REASON_MAX, &name, e);

	if (r < 0)
		return r;
	for (int i = 0; i < END_REASONS; i++)
		if (str_eq(name, end_reason_names[i])) {
			*ret = (enum end_reason)i;
			return 0;
		}
	return err_set(e, -EINVAL, "'reason' is not known");
}

static int read_all(const json_t *j, void *ret, struct err *e)
{
	struct end *end = ret;
	static const char *const keys[] = {
		"schema",    "reason",	    "time",   "oom_kills", "pids_refused",
		"throttled", "memory_peak", "cpu_us", "disk_full", "inodes_full",
		"disk_lost", "told",	    "by",     NULL
	};
	const char *what = NULL, *by = "";
	int r = json_only_keys(j, keys, e);

	if (r == 0)
		r = json_get_string(j, "schema", sizeof(schema), &what, e);
	if (r == 0 && !str_eq(what, schema))
		r = err_set(e, -EINVAL, "'schema' is not %s", schema);
	if (r == 0)
		r = read_reason(j, &end->reason, e);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(numbers); i++)
		r = json_get_u64(j, numbers[i].key, INT64_MAX,
				 (uint64_t *)((char *)end + numbers[i].at), e);
	if (r == 0)
		r = json_get_bool(j, "disk_full", &end->disk_full, e);
	if (r == 0)
		r = json_get_bool(j, "inodes_full", &end->inodes_full, e);
	/* Optional. */
	if (r == 0 && json_object_get(j, "told"))
		r = json_get_bool(j, "told", &end->told, e);
	if (r == 0 && json_object_get(j, "disk_lost"))
		r = json_get_bool(j, "disk_lost", &end->disk_lost, e);
	if (r == 0 && json_object_get(j, "by"))
		r = json_get_string(j, "by", END_BY_MAX, &by, e);
	(void)snprintf(end->by, sizeof(end->by), "%s", by);
	return r;
}

int end_read(int dir, struct end *ret, struct err *e)
{
	struct end end = { 0 };
	int r = state_read(dir, file, END_FILE_MAX, read_all, &end, e);

	if (r == 0)
		*ret = end;
	return r;
}
