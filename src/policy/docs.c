/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/docs.h"

#include <string.h>

#include "base/str.h"
#include "policy/schema.h"
#include "policy/value.h"

enum {
	DOC_PATH_MAX = 128
};

typedef int key_fn(const struct key *k, const char *path, void *arg);

static int walk(const struct key *keys, const char *prefix, key_fn *each, void *arg);

/* The keys below a key: of a section, of each secret, or of each item of a list. */
static int walk_members(const struct key *k, const char *path, key_fn *each, void *arg)
{
	char prefix[DOC_PATH_MAX];

	(void)snprintf(prefix, sizeof(prefix), "%s%s", path, k->type == KEY_SECRETS ? ".NAME" : "");
	return walk(k->keys, prefix, each, arg);
}

/* Calls `each` for every key with its full path: single keys first, then sections, recursively. */
static int walk(const struct key *keys, const char *prefix, key_fn *each, void *arg)
{
	for (int sections = 0; sections <= 1; sections++)
		for (const struct key *k = keys; k->name; k++) {
			char path[DOC_PATH_MAX];
			int r;

			if ((k->type == KEY_SECTION) != sections)
				continue;
			(void)snprintf(path, sizeof(path), "%s%s%s", prefix, prefix[0] ? "." : "",
				       k->name);
			r = each(k, path, arg);
			if (r == 0 && k->keys)
				r = walk_members(k, path, each, arg);
			if (r < 0)
				return r;
		}
	return 0;
}

static const char *range(const struct key *k, char *out, size_t n)
{
	char low[VALUE_HINT_MAX], high[VALUE_HINT_MAX];

	out[0] = '\0';
	if (k->type == KEY_SIZE)
		(void)snprintf(out, n, "%s to %s", value_format_size(k->min, low),
			       value_format_size(k->max, high));
	else if (k->type == KEY_DURATION)
		(void)snprintf(out, n, "%s to %s", value_format_duration(k->min, low),
			       value_format_duration(k->max, high));
	else if (k->type == KEY_COUNT)
		(void)snprintf(out, n, "%llu to %llu", (unsigned long long)k->min,
			       (unsigned long long)k->max);
	else if (k->type == KEY_THOUSANDTHS)
		(void)snprintf(out, n, "%g to %g", (double)k->min / 1000, (double)k->max / 1000);
	return out;
}

static int key_text(const struct key *k, const char *path, void *arg)
{
	struct buf *b = arg;
	char limits[128];

	if (k->type == KEY_SECTION)
		return buf_printf(b, "\n### %s\n\n%s%s\n\n", path, k->doc,
				  k->required ? " Required." : "");
	(void)buf_printf(b, "- `%s`: %s", path, key_type_expects(k->type));
	for (size_t i = 0; k->words && k->words[i]; i++)
		if (k->words[i][0])
			(void)buf_printf(b, "%s`%s`", i > 0 && k->words[i - 1][0] ? ", " : ": ",
					 k->words[i]);
	if (range(k, limits, sizeof(limits))[0])
		(void)buf_printf(b, ", from %s", limits);
	if (k->fallback)
		(void)buf_printf(b, ". Default: `%s`", k->fallback);
	return buf_printf(b, ".%s\n  %s\n", k->required ? " Required." : "", k->doc);
}

static json_t *words_json(const char *const *words)
{
	json_t *a = json_array();
	int r = 0;

	for (; r == 0 && *words; words++)
		if (**words)
			r = json_push(a, json_string(*words));
	if (r == 0)
		return a;
	json_decref(a);
	return NULL;
}

static int key_json(const struct key *k, const char *path, void *arg)
{
	_cleanup_json_ json_t *o = json_object();
	char limits[128];
	int r = json_put(o, "key", json_string(path));

	r |= json_put(o, "expects", json_string(key_type_expects(k->type)));
	r |= json_put(o, "required", json_boolean(k->required));
	r |= json_put(o, "doc", json_string(k->doc));
	if (k->fallback)
		r |= json_put(o, "default", json_string(k->fallback));
	if (range(k, limits, sizeof(limits))[0])
		r |= json_put(o, "range", json_string(limits));
	if (k->words)
		r |= json_put(o, "words", words_json(k->words));
	return r < 0 ? -ENOMEM : json_push(arg, TAKE_PTR(o));
}

static json_t *keys_json(const struct key *keys)
{
	json_t *a = json_array();

	if (a && walk(keys, "", key_json, a) == 0)
		return a;
	json_decref(a);
	return NULL;
}

/* Calls `each` for the head of every preset of a kind. */
static int each_preset(struct policy_store *store, enum preset_kind kind,
		       int (*each)(const struct policy_head *, void *), void *arg, struct err *e)
{
	const char *const *names = NULL;
	int r = store_list(store, preset_folder(kind), &names, e);

	for (size_t i = 0; r == 0 && names[i]; i++) {
		_cleanup_diags_ struct diags d = { 0 };
		struct policy_head head;

		r = policy_preset_head(store, kind, names[i], &d, &head, e);
		if (r < 0)
			return err_wrap(e, "preset '%s'", names[i]);
		if (each(&head, arg) < 0)
			r = err_oom(e);
	}
	return r;
}

static int preset_text(const struct policy_head *h, void *arg)
{
	struct buf *b = arg;

	(void)buf_printf(b, "- `%s`: %s.", h->name, h->summary);
	if (h->risk)
		(void)buf_printf(b, " Risk: %s.", h->risk);
	return buf_putc(b, '\n');
}

static int preset_json(const struct policy_head *h, void *arg)
{
	_cleanup_json_ json_t *o = json_object();
	int r = json_put(o, "name", json_string(h->name));

	r |= json_put(o, "summary", json_string(h->summary));
	r |= json_put(o, "file", json_string(h->label));
	if (h->risk)
		r |= json_put(o, "risk", json_string(h->risk));
	return r < 0 ? -ENOMEM : json_push(arg, TAKE_PTR(o));
}

int policy_presets_json(struct policy_store *store, enum preset_kind kind, json_t **ret,
			struct err *e)
{
	_cleanup_json_ json_t *list = json_array();
	int r = list ? each_preset(store, kind, preset_json, list, e) : err_oom(e);

	if (r == 0)
		*ret = TAKE_PTR(list);
	return r;
}

int policy_docs(struct policy_store *store, struct buf *out, struct err *e)
{
	int r = 0;

	(void)buf_puts(out, "# Reference of agent and preset files\n\n## Agent files\n\n");
	(void)walk(agent_keys, "", key_text, out);
	for (int kind = 0; r == 0 && kind < PRESET_KIND_MAX; kind++) {
		(void)buf_printf(out, "\n## Preset files: %s\n\n", preset_kind_names[kind]);
		(void)walk(preset_keys[kind], "", key_text, out);
		(void)buf_printf(out, "\n## Presets: %s\n\n", preset_kind_names[kind]);
		r = each_preset(store, (enum preset_kind)kind, preset_text, out, e);
	}
	if (r == 0 && out->err)
		r = err_oom(e);
	return r;
}

static int kind_json(struct policy_store *store, enum preset_kind kind, json_t *presets,
		     struct err *e)
{
	_cleanup_json_ json_t *o = json_object();
	json_t *list = NULL;
	int r = policy_presets_json(store, kind, &list, e);

	if (r < 0)
		return r;
	r = json_put(o, "list", list);
	r |= json_put(o, "keys", keys_json(preset_keys[kind]));
	if (r == 0)
		r = json_put(presets, preset_kind_names[kind], TAKE_PTR(o));
	return r < 0 ? err_oom(e) : 0;
}

int policy_docs_json(struct policy_store *store, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *top = json_object(), *presets = json_object();
	int r = 0;

	if (!top || !presets || json_put(top, "agent", keys_json(agent_keys)) < 0)
		return err_oom(e);
	for (int kind = 0; r == 0 && kind < PRESET_KIND_MAX; kind++)
		r = kind_json(store, (enum preset_kind)kind, presets, e);
	if (r < 0)
		return r;
	if (json_put(top, "presets", TAKE_PTR(presets)) < 0)
		return err_oom(e);
	*ret = TAKE_PTR(top);
	return 0;
}
