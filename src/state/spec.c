/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes spec.json. Tables map keys to members of struct spec, for both directions;
 * check() validates the values once, at the end.
 */
#include "state/spec.h"

#include <string.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "receipt/layer.h"
#include "state/spec-inner.h"
#include "state/state.h"

enum {
	TEXT_MAX = 4096,
	PATH_TEXT_MAX = 4095,
	ENV_TEXT_MAX = 128 * 1024,
	RULE_BYTES_MAX = 300,
	GROUP_MAX = 8, /* keys of an object with a table */
};

#define IDS_LAST ((UINT64_C(1) << 32) - 65536 - 1)
#define HEX	 "0123456789abcdef"

static const char schema[] = "hutch.spec/1";
static const char file[] = "spec.json";

struct field {
	const char *key;
	size_t at; /* in struct spec */
	uint64_t max;
};

#define FIELD(k, f, m)                                             \
	{                                                          \
		.key = k, .at = offsetof(struct spec, f), .max = m \
	}

static const struct field texts[] = {
	FIELD("id", id, SPEC_ID),
	FIELD("agent", agent, TEXT_MAX),
	FIELD("policy", policy, SPEC_DIGEST),
	FIELD("image", image, TEXT_MAX),
	FIELD("image_digest", image_digest, SPEC_DIGEST),
	FIELD("root", root, PATH_TEXT_MAX),
	FIELD("user", user, TEXT_MAX),
	FIELD("workspace", workspace, PATH_TEXT_MAX),
};

static const struct field machine[] = {
	FIELD("kernel", machine.kernel, PATH_TEXT_MAX),
	FIELD("initrd", machine.initrd, PATH_TEXT_MAX),
	FIELD("root", machine.root, PATH_TEXT_MAX),
	FIELD("blank", machine.blank, PATH_TEXT_MAX),
	FIELD("snapshot", machine.snapshot, PATH_TEXT_MAX),
	FIELD("snapshots", machine.snapshots, PATH_TEXT_MAX),
	FIELD("accel", machine.accel, TEXT_MAX),
};

/* Optional: specs of earlier versions do not have these keys. */
static const struct field versions[] = {
	FIELD("hypervisor", machine.hypervisor, TEXT_MAX),
	FIELD("kernel_version", machine.kernel_version, TEXT_MAX),
};

static const struct field numbers[] = {
	FIELD("image_uid", image_uid, IDS_LAST),
	FIELD("image_gid", image_gid, IDS_LAST),
	FIELD("created", created, INT64_MAX),
};

static const struct field limits[] = {
	FIELD("cpus", limits.cpus, INT64_MAX),
	FIELD("memory", limits.memory, INT64_MAX),
	FIELD("disk", limits.disk, INT64_MAX),
	FIELD("output", limits.output, INT64_MAX),
	FIELD("pids", limits.pids, INT64_MAX),
	FIELD("timeout", limits.timeout, INT64_MAX),
	FIELD("ttl", limits.ttl, INT64_MAX / 1000000),
	FIELD("idle", limits.idle, INT64_MAX / 1000000),
};

static const struct field budgets[] = {
	FIELD("bytes_out", egress.bytes_out, INT64_MAX),
	FIELD("bytes_in", egress.bytes_in, INT64_MAX),
	FIELD("streams", egress.streams, UINT32_MAX),
	FIELD("streams_per_minute", egress.streams_per_minute, UINT32_MAX),
	FIELD("names", egress.names, UINT32_MAX),
};

static const struct field lists[] = {
	FIELD("env", env, ENV_TEXT_MAX),
	FIELD("read", read, PATH_TEXT_MAX),
	FIELD("write", write, PATH_TEXT_MAX),
	FIELD("execute", execute, PATH_TEXT_MAX),
	FIELD("egress_allow", egress.allow, RULE_BYTES_MAX),
	FIELD("egress_deny", egress.deny, RULE_BYTES_MAX),
};

static const struct field narrow = FIELD("egress_narrow", egress.narrow, RULE_BYTES_MAX);

/* Only if hutch-tap runs. */
static const struct field tap[] = {
	FIELD("tap", tap, SPEC_TAP_MAX),
	FIELD("tap_roots", tap_roots, PATH_TEXT_MAX),
};

static const struct field tap_lists[] = {
	FIELD("tap_hosts", tap_hosts, RULE_BYTES_MAX),
	FIELD("tap_secrets", tap_secrets, TEXT_MAX),
};

/* Only if the output is filtered. */
static const struct field filter = FIELD("filter", filter, TEXT_MAX);
static const struct field filter_rules = FIELD("filter_rules", filter_rules, TEXT_MAX);

static const struct field flags[] = {
	FIELD("once", once, 0),
	FIELD("remove", remove, 0),
};

const char *const on_timeout_names[ON_TIMEOUTS + 1] = {
	[ON_TIMEOUT_END] = "end",
	[ON_TIMEOUT_PAUSE] = "pause",
};

int on_timeout_parse(const char *s, enum on_timeout *ret)
{
	for (int i = 0; i < ON_TIMEOUTS; i++)
		if (str_eq(s, on_timeout_names[i])) {
			*ret = (enum on_timeout)i;
			return 0;
		}
	return -EINVAL;
}

static void *member(const struct spec *s, const struct field *f)
{
	return (char *)s + f->at;
}

/* ---- reading ---- */

static int read_texts(const json_t *j, const struct field *f, size_t n, struct spec *s,
		      struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = json_get_string(j, f[i].key, f[i].max, member(s, &f[i]), e);
	return r;
}

static int read_numbers(const json_t *j, const struct field *f, size_t n, struct spec *s,
			struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = json_get_u64(j, f[i].key, f[i].max, member(s, &f[i]), e);
	return r;
}

static int read_flags(const json_t *j, struct spec *s, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(flags); i++)
		r = json_get_bool(j, flags[i].key, member(s, &flags[i]), e);
	return r;
}

static int get_array(const json_t *j, const char *key, const json_t **ret, struct err *e)
{
	const json_t *a = json_object_get(j, key);

	if (!a)
		return err_set(e, -ENOENT, "'%s' is missing", key);
	if (!json_is_array(a))
		return err_set(e, -EINVAL, "'%s' is not a list", key);
	if (json_array_size(a) > SPEC_LIST_MAX)
		return err_set(e, -EINVAL, "'%s' has more than %d entries", key, SPEC_LIST_MAX);
	*ret = a;
	return 0;
}

static int read_list(const json_t *j, const struct field *f, struct spec *s, struct err *e)
{
	struct spec_list *list = member(s, f);
	const json_t *a = NULL;
	int r = get_array(j, f->key, &a, e);

	if (r < 0)
		return r;
	list->v = calloc(json_array_size(a) + 1, sizeof(list->v[0]));
	if (!list->v)
		return err_oom(e);
	for (size_t i = 0; i < json_array_size(a); i++) {
		const json_t *one = json_array_get(a, i);

		if (!json_is_string(one) || json_string_length(one) > f->max)
			return err_set(e, -EINVAL,
				       "'%s' has an entry that is not a text of at most "
				       "%llu bytes",
				       f->key, (unsigned long long)f->max);
		list->v[list->n++] = json_string_value(one);
	}
	return 0;
}

static int read_lists(const json_t *j, struct spec *s, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(lists); i++)
		r = read_list(j, &lists[i], s, e);
	/* Specs of earlier versions do not have it. */
	if (r == 0 && json_object_get(j, narrow.key))
		r = read_list(j, &narrow, s, e);
	return r;
}

/* All keys or none. */
static int read_tap(const json_t *j, struct spec *s, struct err *e)
{
	bool any = false;
	int r;

	s->tap = s->tap_roots = s->ledger = "";
	for (size_t i = 0; i < ARRAY_SIZE(tap); i++)
		any |= json_object_get(j, tap[i].key) || json_object_get(j, tap_lists[i].key);
	if (!any)
		return 0;
	r = read_texts(j, tap, ARRAY_SIZE(tap), s, e);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(tap_lists); i++)
		r = read_list(j, &tap_lists[i], s, e);
	/* Only forks have it. */
	if (r == 0 && json_object_get(j, "ledger"))
		r = json_get_string(j, "ledger", SPEC_ID, &s->ledger, e);
	return r;
}

/* Both keys or none. */
static int read_filter(const json_t *j, struct spec *s, struct err *e)
{
	s->filter = "";
	if (!json_object_get(j, filter.key) && !json_object_get(j, filter_rules.key))
		return 0;
	if (read_texts(j, &filter, 1, s, e) < 0 || read_list(j, &filter_rules, s, e) < 0)
		return e->num;
	/* hutch-filter checks both when it reads them. */
	return s->filter[0] && s->filter_rules.n > 0
		       ? 0
		       : err_set(e, -EINVAL, "'filter' or 'filter_rules' is empty");
}

static int layer_bit(const json_t *name, uint64_t *set)
{
	for (unsigned int i = 0; json_is_string(name) && i < LAYER_MAX; i++)
		if (str_eq(json_string_value(name), layer_names[i])) {
			*set |= UINT64_C(1) << i;
			return 0;
		}
	return -EINVAL;
}

static int read_layers(const json_t *j, const char *key, uint64_t *ret, struct err *e)
{
	const json_t *a = NULL;
	int r = get_array(j, key, &a, e);

	for (size_t i = 0; r == 0 && i < json_array_size(a); i++)
		if (layer_bit(json_array_get(a, i), ret) < 0)
			r = err_set(e, -EINVAL, "'%s' has an entry that is not a layer", key);
	return r;
}

/* Reads an object that must have exactly the keys of its table. */
static int read_group(const json_t *j, const char *key, const struct field *f, size_t n,
		      int (*read)(const json_t *j, const struct field *f, size_t n, struct spec *s,
				  struct err *e),
		      struct spec *s, struct err *e)
{
	const char *keys[GROUP_MAX + 1] = { 0 };
	const json_t *group = json_object_get(j, key);
	int r;

	assert(n <= GROUP_MAX);
	for (size_t i = 0; i < n; i++)
		keys[i] = f[i].key;
	if (!group)
		return err_set(e, -ENOENT, "'%s' is missing", key);
	r = json_only_keys(group, keys, e);
	if (r == 0)
		r = read(group, f, n, s, e);
	return r < 0 ? err_wrap(e, "%s", key) : 0;
}

/* Optional: specs of earlier versions do not have these keys. */
static int read_api(const json_t *j, struct spec *s, struct err *e)
{
	int r = 0;

	s->api = s->chain = s->request = "";
	if (json_object_get(j, "api"))
		r = json_get_string(j, "api", SPEC_API_MAX, &s->api, e);
	if (r == 0 && json_object_get(j, "chain"))
		r = json_get_string(j, "chain", SPEC_CHAIN, &s->chain, e);
	if (r == 0 && json_object_get(j, "ttl_left"))
		r = json_get_u64(j, "ttl_left", INT64_MAX / 1000000, &s->ttl_left, e);
	if (r == 0 && json_object_get(j, "request"))
		r = json_get_string(j, "request", SPEC_REQUEST_MAX, &s->request, e);
	if (r == 0 && json_object_get(j, "trace"))
		r = json_get_bool(j, "trace", &s->trace, e);
	return r < 0 || !s->chain[0] ||
			       (str_has_prefix(s->chain, s->id) &&
				spec_id_valid(s->chain + strlen(s->id)))
		       ? r
		       : err_set(e, -EINVAL, "'chain' does not belong to this sandbox");
}

/* Optional: earlier versions had only containers, and one engine per level. engine_of() reports an
 * unknown engine. */
static int read_level(const json_t *j, struct spec *s, struct err *e)
{
	const char *level = level_names[LEVEL_DEFAULT];
	int r = 0;

	s->engine = "";
	if (json_object_get(j, "level"))
		r = json_get_string(j, "level", TEXT_MAX, &level, e);
	if (r == 0 && json_object_get(j, "engine"))
		r = json_get_string(j, "engine", SPEC_ENGINE_MAX, &s->engine, e);
	if (r == 0 && level_parse(level, &s->level) < 0)
		r = err_set(e, -EINVAL, "'level': '%.40s' is not an isolation level", level);
	return r;
}

static int read_versions(const json_t *j, struct spec *s, struct err *e)
{
	s->machine.hypervisor = s->machine.kernel_version = "";
	if (!json_object_get(j, "versions"))
		return 0;
	return read_group(j, "versions", versions, ARRAY_SIZE(versions), read_texts, s, e);
}

/* Where the scratch is. Optional: specs of earlier versions do not have these keys. */
static int read_scratch(const json_t *j, struct spec *s, struct err *e)
{
	int r = 0;

	s->blank = "";
	if (json_object_get(j, "in_memory"))
		r = json_get_bool(j, "in_memory", &s->in_memory, e);
	if (r == 0 && json_object_get(j, "nested"))
		r = json_get_bool(j, "nested", &s->nested, e);
	if (r == 0 && json_object_get(j, "disk_overcommit"))
		r = json_get_bool(j, "disk_overcommit", &s->overcommit, e);
	if (r == 0 && json_object_get(j, "blank"))
		r = json_get_string(j, "blank", PATH_TEXT_MAX, &s->blank, e);
	return r < 0 || !s->blank[0] || spec_is_path(s->blank)
		       ? r
		       : err_set(e, -EINVAL, "'blank' is not an absolute path");
}

/* Optional: specs of earlier versions do not have these keys. */
static int read_deadline(const json_t *j, struct spec *s, struct err *e)
{
	const char *then = NULL;
	int r = 0;

	if (json_object_get(j, "deadline"))
		r = json_get_u64(j, "deadline", INT64_MAX / 1000000, &s->deadline, e);
	if (r == 0 && json_object_get(j, "disk_bandwidth"))
		r = json_get_u64(j, "disk_bandwidth", INT64_MAX, &s->limits.disk_bandwidth, e);
	if (r == 0 && json_object_get(j, "disk_ops"))
		r = json_get_u64(j, "disk_ops", INT64_MAX, &s->limits.disk_ops, e);
	if (r == 0 && json_object_get(j, "snapshot_space"))
		r = json_get_u64(j, "snapshot_space", INT64_MAX, &s->snapshot_space, e);
	if (r < 0 || !json_object_get(j, "on_timeout"))
		return r;
	r = json_get_string(j, "on_timeout", TEXT_MAX, &then, e);
	if (r == 0 && on_timeout_parse(then, &s->on_timeout) < 0)
		r = err_set(e, -EINVAL, "'on_timeout' is not known");
	return r;
}

/* ---- validation ---- */

static bool is_digest(const char *s)
{
	return strlen(s) == SPEC_DIGEST && strspn(s, HEX) == SPEC_DIGEST;
}

static int check_paths(const struct spec_list *list, const char *key, struct err *e)
{
	for (size_t i = 0; i < list->n; i++)
		if (!spec_is_path(list->v[i]))
			return err_set(e, -EINVAL, "'%s' has an entry that is not an absolute path",
				       key);
	return 0;
}

static int check_env(const struct spec_list *list, struct err *e)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->v[i][0] == '=' || !strchr(list->v[i], '='))
			return err_set(e, -EINVAL, "'env' has an entry that is not NAME=value");
	return 0;
}

static int check_machine(const struct spec *s, struct err *e)
{
	if (!s->machine.kernel)
		return 0;
	if (!spec_is_path(s->machine.kernel) || !spec_is_path(s->machine.initrd) ||
	    !spec_is_path(s->machine.root) || !spec_is_path(s->machine.blank) ||
	    !spec_is_path(s->machine.snapshots) ||
	    (s->machine.snapshot[0] && !spec_is_path(s->machine.snapshot)))
		return err_set(e, -EINVAL, "'machine' has an entry that is not an absolute path");
	if (!str_eq(s->machine.accel, "kvm") && !str_eq(s->machine.accel, "tcg"))
		return err_set(e, -EINVAL, "'machine.accel' is neither kvm nor tcg");
	return 0;
}

static int check(const struct spec *s, struct err *e)
{
	int r;

	if (s->id[0] && !spec_id_valid(s->id))
		return err_set(e, -EINVAL, "'id' is no id");
	if (!is_digest(s->policy) || !is_digest(s->image_digest))
		return err_set(e, -EINVAL, "'policy' or 'image_digest' is not a digest");
	if (!spec_is_path(s->root) || !spec_is_path(s->workspace))
		return err_set(e, -EINVAL, "'root' or 'workspace' is not an absolute path");
	if (s->limits.ttl > 0 && s->deadline > s->limits.ttl)
		return err_set(e, -EINVAL, "'deadline' is later than the end of the ttl");
	if (s->nested && s->level < LEVEL_OWN_KERNEL)
		return err_set(e, -EINVAL, "'nested' is for VMs");
	r = check_machine(s, e);
	if (r == 0)
		r = spec_check_tap(s, e);
	if (r == 0)
		r = check_env(&s->env, e);
	if (r == 0)
		r = check_paths(&s->read, "read", e);
	if (r == 0)
		r = check_paths(&s->write, "write", e);
	return r < 0 ? r : check_paths(&s->execute, "execute", e);
}

static int read_all(const json_t *j, struct spec *s, struct err *e)
{
	/* clang-format off */
	static const char *const keys[] = {
		"schema", "id", "agent", "policy", "image", "image_digest", "root", "image_uid", "image_gid",
		"created", "require", "limits", "user", "workspace", "api", "env", "read", "write", "execute",
		"once", "remove", "budgets", "egress_allow", "egress_deny", "egress_narrow", "deadline",
		"on_timeout", "machine", "snapshot_space", "level", "engine", "chain", "ttl_left",
		"limits_asked", "egress_proxy", "request", "trace", "in_memory", "blank",
		"disk_overcommit", "disk_bandwidth", "disk_ops", "versions", "nested", "tap",
		"tap_roots", "tap_hosts", "tap_secrets", "ledger", "filter", "filter_rules", NULL
	};
	/* clang-format on */

	const char *what = NULL;
	int r = json_only_keys(j, keys, e);

	if (r == 0)
		r = json_get_string(j, "schema", sizeof(schema), &what, e);
	if (r == 0 && !str_eq(what, schema))
		r = err_set(e, -EINVAL, "'schema' is not %s", schema);
	if (r == 0)
		r = read_texts(j, texts, ARRAY_SIZE(texts), s, e);
	if (r == 0)
		r = read_numbers(j, numbers, ARRAY_SIZE(numbers), s, e);
	if (r == 0)
		r = read_layers(j, "require", &s->require, e);
	if (r == 0 && json_object_get(j, "limits_asked"))
		r = read_layers(j, "limits_asked", &s->limits_asked, e);
	if (r == 0)
		r = read_group(j, "limits", limits, ARRAY_SIZE(limits), read_numbers, s, e);
	if (r == 0)
		r = read_group(j, "budgets", budgets, ARRAY_SIZE(budgets), read_numbers, s, e);
	if (r == 0)
		r = read_level(j, s, e);
	/* Containers do not have it. */
	if (r == 0 && json_object_get(j, "machine"))
		r = read_group(j, "machine", machine, ARRAY_SIZE(machine), read_texts, s, e);
	if (r == 0)
		r = read_versions(j, s, e);
	if (r == 0)
		r = read_scratch(j, s, e);
	if (r == 0)
		r = read_deadline(j, s, e);
	if (r == 0)
		r = read_api(j, s, e);
	if (r == 0)
		r = read_flags(j, s, e);
	if (r == 0)
		r = read_lists(j, s, e);
	if (r == 0)
		r = read_tap(j, s, e);
	if (r == 0)
		r = read_filter(j, s, e);
	s->egress.proxy = "";
	if (r == 0 && json_object_get(j, "egress_proxy"))
		r = json_get_string(j, "egress_proxy", RULE_BYTES_MAX, &s->egress.proxy, e);
	return r < 0 ? r : check(s, e);
}

int spec_parse(const char *text, size_t n, struct spec *ret, struct err *e)
{
	_cleanup_spec_ struct spec s = { 0 };
	int r = n > SPEC_FILE_MAX ? err_set(e, -EFBIG, "larger than %d bytes", SPEC_FILE_MAX)
				  : json_read(text, n, &s.json, e);

	if (r == 0)
		r = read_all(s.json, &s, e);
	/* A missing key must not look like a missing file. */
	if (r < 0)
		return e->num = r == -ENOENT ? -EINVAL : r;
	*ret = s;
	s = (struct spec){ 0 };
	return 0;
}

int spec_read(int dir, struct spec *ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(SPEC_FILE_MAX);
	_cleanup_spec_ struct spec s = { 0 };
	int r = fd_read_file(dir, file, &b, e);

	if (r < 0)
		return r;
	r = spec_parse(buf_text(&b), b.len, &s, e);
	/* Only a plan that was not started may have an empty id. */
	if (r == 0 && !s.id[0])
		r = err_set(e, -EINVAL, "'id' is empty");
	if (r < 0)
		return err_wrap(e, file);
	*ret = s;
	s = (struct spec){ 0 };
	return 0;
}

/* ---- writing ---- */

static json_t *numbers_json(const struct spec *s, const struct field *f, size_t n)
{
	_cleanup_json_ json_t *j = json_object();

	for (size_t i = 0; j && i < n; i++)
		if (json_put(j, f[i].key, json_number(*(const uint64_t *)member(s, &f[i]))) < 0)
			return NULL;
	return TAKE_PTR(j);
}

static json_t *layers_json(uint64_t set)
{
	const char *names[LAYER_MAX];
	size_t n = 0;

	for (unsigned int i = 0; i < LAYER_MAX; i++)
		if (set & (UINT64_C(1) << i))
			names[n++] = layer_names[i];
	return json_texts(names, n);
}

static json_t *list_json(const struct spec *s, const struct field *f)
{
	const struct spec_list *list = member(s, f);

	return json_texts(list->v, list->n);
}

static json_t *texts_json(const struct spec *s, const struct field *f, size_t n)
{
	_cleanup_json_ json_t *j = json_object();

	for (size_t i = 0; j && i < n; i++)
		if (json_put(j, f[i].key,
			     json_string(*(const char *const *)member(s, &f[i]) ?: "")) < 0)
			return NULL;
	return TAKE_PTR(j);
}

static int put_tap(json_t *j, const struct spec *s)
{
	int r = 0;

	if (!s->tap || !s->tap[0])
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(tap); i++)
		r |= json_put(j, tap[i].key,
			      json_string(*(const char *const *)member(s, &tap[i]) ?: ""));
	for (size_t i = 0; i < ARRAY_SIZE(tap_lists); i++)
		r |= json_put(j, tap_lists[i].key, list_json(s, &tap_lists[i]));
	if (s->ledger && s->ledger[0])
		r |= json_put(j, "ledger", json_string(s->ledger));
	return r;
}

static int put_filter(json_t *j, const struct spec *s)
{
	if (!s->filter || !s->filter[0])
		return 0;
	return json_put(j, filter.key, json_string(s->filter)) |
	       json_put(j, filter_rules.key, list_json(s, &filter_rules));
}

static int put_tables(json_t *j, const struct spec *s)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		r |= json_put(j, texts[i].key,
			      json_string(*(const char *const *)member(s, &texts[i])));
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		r |= json_put(j, flags[i].key, json_boolean(*(const bool *)member(s, &flags[i])));
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		r |= json_put(j, lists[i].key, list_json(s, &lists[i]));
	r |= json_put(j, narrow.key, list_json(s, &narrow));
	return r | put_tap(j, s) | put_filter(j, s);
}

char *spec_write(const struct spec *s)
{
	_cleanup_json_ json_t *j = numbers_json(s, numbers, ARRAY_SIZE(numbers));

	if (!j || json_put(j, "schema", json_string(schema)) < 0 ||
	    json_put(j, "api", json_string(s->api ? s->api : "")) < 0 ||
	    json_put(j, "deadline", json_number(s->deadline)) < 0 ||
	    json_put(j, "on_timeout", json_string(on_timeout_names[s->on_timeout])) < 0 ||
	    json_put(j, "limits", numbers_json(s, limits, ARRAY_SIZE(limits))) < 0 ||
	    json_put(j, "budgets", numbers_json(s, budgets, ARRAY_SIZE(budgets))) < 0 ||
	    json_put(j, "require", layers_json(s->require)) < 0 || put_tables(j, s) < 0)
		return NULL;
	if (s->limits_asked && json_put(j, "limits_asked", layers_json(s->limits_asked)) < 0)
		return NULL;
	if (s->egress.proxy && s->egress.proxy[0] &&
	    json_put(j, "egress_proxy", json_string(s->egress.proxy)) < 0)
		return NULL;
	if (s->chain && s->chain[0] && json_put(j, "chain", json_string(s->chain)) < 0)
		return NULL;
	if (s->request && s->request[0] && json_put(j, "request", json_string(s->request)) < 0)
		return NULL;
	if (s->trace && json_put(j, "trace", json_true()) < 0)
		return NULL;
	if (s->in_memory && json_put(j, "in_memory", json_true()) < 0)
		return NULL;
	if (s->limits.disk_bandwidth > 0 &&
	    json_put(j, "disk_bandwidth", json_number(s->limits.disk_bandwidth)) < 0)
		return NULL;
	if (s->limits.disk_ops > 0 && json_put(j, "disk_ops", json_number(s->limits.disk_ops)) < 0)
		return NULL;
	if (s->nested && json_put(j, "nested", json_true()) < 0)
		return NULL;
	if (s->overcommit && json_put(j, "disk_overcommit", json_true()) < 0)
		return NULL;
	if (s->blank && s->blank[0] && json_put(j, "blank", json_string(s->blank)) < 0)
		return NULL;
	if (s->ttl_left > 0 && json_put(j, "ttl_left", json_number(s->ttl_left)) < 0)
		return NULL;
	if (s->level != LEVEL_UNSET && s->level != LEVEL_DEFAULT &&
	    json_put(j, "level", json_string(level_names[s->level])) < 0)
		return NULL;
	if (s->engine && s->engine[0] && json_put(j, "engine", json_string(s->engine)) < 0)
		return NULL;
	if (s->machine.kernel &&
	    (json_put(j, "machine", texts_json(s, machine, ARRAY_SIZE(machine))) < 0 ||
	     json_put(j, "versions", texts_json(s, versions, ARRAY_SIZE(versions))) < 0 ||
	     json_put(j, "snapshot_space", json_number(s->snapshot_space)) < 0))
		return NULL;
	return json_write_canonical(j);
}

int spec_store(int dir, const struct spec *s, struct err *e)
{
	_cleanup_free_ char *text = spec_write(s);

	return text ? state_write(dir, file, text, strlen(text), e) : err_oom(e);
}

const char *spec_chain(const struct spec *s)
{
	return s->chain && s->chain[0] ? s->chain : s->id;
}

/* Parses hutchd's data; *ret is NULL if hutchd did not create the sandbox. */
static int parse_api(const struct spec *s, json_t **ret, struct err *e)
{
	*ret = NULL;
	return s->api && s->api[0] ? json_read(s->api, strlen(s->api), ret, e) : 0;
}

int spec_owner(const struct spec *s, char out[static SPEC_OWNER_MAX + 1], struct err *e)
{
	_cleanup_json_ json_t *j = NULL;
	const char *owner;
	int r = parse_api(s, &j, e);

	owner = json_string_value(json_object_get(j, "owner"));
	(void)snprintf(out, SPEC_OWNER_MAX + 1, "%s", owner ? owner : "");
	return r;
}

int spec_is_build(const struct spec *s, bool *ret, struct err *e)
{
	_cleanup_json_ json_t *j = NULL;
	int r = parse_api(s, &j, e);

	*ret = json_is_string(json_object_get(j, "build"));
	return r;
}

void spec_done(struct spec *s)
{
	/* A spec that was not parsed does not own its lists. */
	for (size_t i = 0; s->json && i < ARRAY_SIZE(lists); i++)
		free(((struct spec_list *)member(s, &lists[i]))->v);
	for (size_t i = 0; s->json && i < ARRAY_SIZE(tap_lists); i++)
		free(((struct spec_list *)member(s, &tap_lists[i]))->v);
	if (s->json) {
		free(s->egress.narrow.v);
		free(s->filter_rules.v);
	}
	json_decref(s->json);
	free(s->policy_text);
	*s = (struct spec){ 0 };
}
