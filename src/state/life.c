/* SPDX-License-Identifier: Apache-2.0 */
#include "state/life.h"

#include <string.h>

#include "base/str.h"
#include "state/state.h"

enum {
	LIFE_FILE_MAX = 4096,
	WORD_MAX = 16,
};

static const char schema[] = "hutch.life/1";
static const char file[] = "life.json";
static const char running[] = "running", paused[] = "paused";

bool met_anything(const struct met *m)
{
	return m->oom_kills > 0 || m->pids_refused > 0 || m->disk_full || m->inodes_full;
}

static json_t *met_json(const struct met *m)
{
	return JSON_OBJECT({ "oom_kills", json_number(m->oom_kills) },
			   { "pids_refused", json_number(m->pids_refused) },
			   { "disk_full", json_boolean(m->disk_full) },
			   { "inodes_full", json_boolean(m->inodes_full) });
}

int life_write(int dir, const struct life *l, struct err *e)
{
	_cleanup_json_ json_t *j =
		JSON_OBJECT({ "schema", json_string(schema) },
			    { "state", json_string(l->paused ? paused : running) },
			    { "deadline_ms", json_number(l->deadline) },
			    { "on_timeout", json_string(on_timeout_names[l->on_timeout]) });
	_cleanup_free_ char *text = NULL;

	if (j && l->stopped != LIFE_RUNS &&
	    json_put(j, "stopped", json_string(life_stop_names[l->stopped])) < 0)
		return err_oom(e);
	if (j && met_anything(&l->met) && json_put(j, "met", met_json(&l->met)) < 0)
		return err_oom(e);
	if (j && l->disk_lost && json_put(j, "disk_lost", json_true()) < 0)
		return err_oom(e);
	text = j ? json_write_canonical(j) : NULL;
	return text ? state_write(dir, file, text, strlen(text), e) : err_oom(e);
}

static int read_state(const json_t *j, bool *ret, struct err *e)
{
	const char *word = NULL;
	int r = json_get_string(j, "state", WORD_MAX, &word, e);

	if (r < 0)
		return r;
	*ret = str_eq(word, paused);
	return *ret || str_eq(word, running) ? 0 : err_set(e, -EINVAL, "'state' is not known");
}

/* Optional: missing if the sandbox is not stopped. */
static int read_stopped(const json_t *j, enum life_stop *ret, struct err *e)
{
	const char *word = NULL;
	int r = json_object_get(j, "stopped") ? json_get_string(j, "stopped", WORD_MAX, &word, e)
					      : 0;

	if (!word || r < 0)
		return r;
	for (*ret = LIFE_DISK_FULL; *ret < LIFE_STOPS; (*ret)++)
		if (str_eq(word, life_stop_names[*ret]))
			return 0;
	return err_set(e, -EINVAL, "'stopped' is not known");
}

static int read_on_timeout(const json_t *j, enum on_timeout *ret, struct err *e)
{
	const char *word = NULL;
	int r = json_get_string(j, "on_timeout", WORD_MAX, &word, e);

	if (r == 0 && on_timeout_parse(word, ret) < 0)
		r = err_set(e, -EINVAL, "'on_timeout' is not known");
	return r;
}

/* Optional: missing if no limit was reached. */
static int read_met(const json_t *j, struct met *ret, struct err *e)
{
	static const char *const keys[] = { "oom_kills", "pids_refused", "disk_full", "inodes_full",
					    NULL };
	const json_t *met = json_object_get(j, "met");
	int r = met ? json_only_keys(met, keys, e) : 0;

	if (!met || r < 0)
		return r;
	r = json_get_u64(met, "oom_kills", INT64_MAX, &ret->oom_kills, e);
	if (r == 0)
		r = json_get_u64(met, "pids_refused", INT64_MAX, &ret->pids_refused, e);
	if (r == 0)
		r = json_get_bool(met, "disk_full", &ret->disk_full, e);
	return r < 0 ? r : json_get_bool(met, "inodes_full", &ret->inodes_full, e);
}

static int read_all(const json_t *j, void *ret, struct err *e)
{
	struct life *l = ret;
	static const char *const keys[] = { "schema",  "state", "deadline_ms", "on_timeout",
					    "stopped", "met",	"disk_lost",   NULL };
	const char *what = NULL;
	int r = json_only_keys(j, keys, e);

	if (r == 0)
		r = json_get_string(j, "schema", sizeof(schema), &what, e);
	if (r == 0 && !str_eq(what, schema))
		r = err_set(e, -EINVAL, "'schema' is not %s", schema);
	if (r == 0)
		r = read_state(j, &l->paused, e);
	if (r == 0)
		r = read_stopped(j, &l->stopped, e);
	if (r == 0)
		r = json_get_u64(j, "deadline_ms", INT64_MAX, &l->deadline, e);
	if (r == 0)
		r = read_on_timeout(j, &l->on_timeout, e);
	if (r == 0 && json_object_get(j, "disk_lost"))
		r = json_get_bool(j, "disk_lost", &l->disk_lost, e);
	return r < 0 ? r : read_met(j, &l->met, e);
}

int life_read(int dir, struct life *ret, struct err *e)
{
	struct life l = { 0 };
	int r = state_read(dir, file, LIFE_FILE_MAX, read_all, &l, e);

	if (r == 0)
		*ret = l;
	return r;
}
