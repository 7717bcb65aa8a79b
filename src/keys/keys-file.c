/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the text of keys.json, and validates its values. */
#include <sodium.h>
#include <string.h>

#include "base/clock.h"
#include "base/json-util.h"
#include "base/str.h"
#include "keys/keys.h"
#include "receipt/level.h"

static_assert(KEY_HASH == crypto_generichash_BYTES, "BLAKE2b-256");

enum {
	VERSION = 1
};

const char *const key_role_names[] = {
	[KEY_ADMIN] = "admin",
	[KEY_USER] = "user",
	[KEY_METRICS] = "metrics",
	[KEY_ROLES] = NULL,
};

static_assert(ARRAY_SIZE(key_role_names) == KEY_ROLES + 1, "each role has a name");

int key_role_parse(const char *word, enum key_role *ret)
{
	for (int i = 0; i < KEY_ROLES; i++)
		if (str_eq(word, key_role_names[i])) {
			*ret = (enum key_role)i;
			return 0;
		}
	return -EINVAL;
}

static bool all_hex(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!ascii_is_digit(s[i]) && (s[i] < 'a' || s[i] > 'f'))
			return false;
	return true;
}

bool key_text_valid(const char *text, size_t n)
{
	return n == KEY_TEXT && memcmp(text, KEY_START, STRLEN(KEY_START)) == 0 &&
	       all_hex(text + STRLEN(KEY_START), KEY_DIGITS);
}

bool key_name_valid(const char *name)
{
	size_t n = strlen(name);

	if (n == 0 || n > KEY_NAME_MAX || name[0] == '-' || name[n - 1] == '-')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!ascii_is_lower(name[i]) && !ascii_is_digit(name[i]) && name[i] != '-')
			return false;
	return n != KEY_PREFIX || !all_hex(name, n);
}

void key_hash(const char *text, size_t n, uint8_t ret[static KEY_HASH])
{
	static const unsigned char domain[] = "hutch-api-key-1"; /* with its NUL */
	crypto_generichash_state h;

	(void)crypto_generichash_init(&h, NULL, 0, KEY_HASH);
	(void)crypto_generichash_update(&h, domain, sizeof(domain));
	(void)crypto_generichash_update(&h, (const unsigned char *)text, n);
	(void)crypto_generichash_final(&h, ret, KEY_HASH);
	sodium_memzero(&h, sizeof(h));
}

/* ---- grants ---- */

bool key_grant_has(const struct key_grant *g, const char *agent)
{
	for (size_t i = 0; i < g->n_agents; i++)
		if (str_eq(g->agents[i], agent))
			return true;
	return false;
}

static bool agent_name_valid(const char *s, size_t n)
{
	if (n == 0 || n > KEY_AGENT_MAX || s[0] == '-' || s[n - 1] == '-')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!ascii_is_lower(s[i]) && !ascii_is_digit(s[i]) && s[i] != '-')
			return false;
	return true;
}

static int add_agent(struct key_grant *g, const char *s, size_t n, struct err *e)
{
	if (!agent_name_valid(s, n))
		return err_set(e, -EINVAL, "'%.*s' is not the name of an agent",
			       (int)MIN(n, (size_t)80), s);
	if (g->n_agents == KEY_AGENTS_MAX)
		return err_set(e, -EINVAL, "more than %d agents", KEY_AGENTS_MAX);
	memcpy(g->agents[g->n_agents], s, n);
	g->agents[g->n_agents][n] = '\0';
	for (size_t i = 0; i < g->n_agents; i++)
		if (str_eq(g->agents[i], g->agents[g->n_agents]))
			return err_set(e, -EINVAL, "agent '%s' twice", g->agents[i]);
	g->n_agents++;
	return 0;
}

static int set_agents(struct key_grant *g, const char *text, struct err *e)
{
	struct key_grant new = *g;
	int r = 0;

	memset(new.agents, 0, sizeof(new.agents));
	new.n_agents = 0;
	while (r == 0 && *text) {
		size_t n = strcspn(text, ",");

		r = add_agent(&new, text, n, e);
		text += n;
		if (*text == ',' && !*++text && r == 0)
			r = err_set(e, -EINVAL, "an agent is missing after the last comma");
	}
	if (r == 0)
		*g = new;
	return r;
}

static int set_level(struct key_grant *g, const char *text, struct err *e)
{
	enum level ignored;

	if (text[0] && level_parse(text, &ignored) < 0)
		return err_set(e, -EINVAL, "'%.40s' is not an isolation level", text);
	(void)snprintf(g->level, sizeof(g->level), "%s", text);
	return 0;
}

int key_grant_change(struct key_grant *g, const struct key_change *c, struct err *e)
{
	struct key_grant new = *g;
	int r = c->agents ? set_agents(&new, c->agents, e) : 0;

	if (r == 0 && c->level)
		r = set_level(&new, c->level, e);
	for (size_t i = 0; i < QUOTA_KINDS && r == 0; i++) {
		if (!c->quota[i])
			continue;
		if (*c->quota[i] > INT64_MAX)
			return err_set(e, -EINVAL, "'%s' is larger than any host", quota_names[i]);
		new.quota.most[i] = *c->quota[i];
	}
	if (r == 0)
		*g = new;
	return r;
}

/* ---- reading ---- */

static int read_time(const json_t *o, const char *key, bool needed, uint64_t *ret, struct err *e)
{
	const char *text = "";
	int r = json_get_string(o, key, CLOCK_RFC3339_MAX, &text, e);

	if (r == -ENOENT && !needed) {
		*e = (struct err)ERR_INIT;
		return 0;
	}
	if (r == 0 && (clock_parse(text, ret) < 0 || *ret == 0))
		r = err_set(e, -EINVAL, "'%s' is not a time", key);
	return r;
}

static int read_hash(const json_t *o, uint8_t ret[static KEY_HASH], struct err *e)
{
	const char *text = "";
	size_t n = 0;
	int r = json_get_string(o, "hash", (size_t)2 * KEY_HASH, &text, e);

	if (r < 0)
		return r;
	if (!all_hex(text, strlen(text)) ||
	    sodium_hex2bin(ret, KEY_HASH, text, strlen(text), NULL, &n, NULL) < 0 || n != KEY_HASH)
		return err_set(e, -EINVAL, "'hash' is not %d hex digits", 2 * KEY_HASH);
	return 0;
}

static int read_words(const json_t *o, struct key_info *ret, struct err *e)
{
	const char *name = "", *prefix = "", *role = "";
	int r = json_get_string(o, "name", KEY_NAME_MAX, &name, e);

	if (r == 0)
		r = json_get_string(o, "prefix", KEY_PREFIX, &prefix, e);
	if (r == 0)
		r = json_get_string(o, "role", KEY_NAME_MAX, &role, e);
	if (r < 0)
		return r;
	if (!key_name_valid(name))
		return err_set(e, -EINVAL, "'name' is not a name");
	if (strlen(prefix) != KEY_PREFIX || !all_hex(prefix, KEY_PREFIX))
		return err_set(e, -EINVAL, "'prefix' is not %d hex digits", KEY_PREFIX);
	if (key_role_parse(role, &ret->role) < 0)
		return err_set(e, -EINVAL, "'role' is not a role");
	(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	(void)snprintf(ret->prefix, sizeof(ret->prefix), "%s", prefix);
	return 0;
}

/* Missing members keep the default. */
static int read_grant(const json_t *o, struct key_grant *ret, struct err *e)
{
	const json_t *agents = json_object_get(o, "agents"), *one;
	const char *level = "";
	size_t i;
	int r = 0;

	if (agents && !json_is_array(agents))
		return err_set(e, -EINVAL, "'agents' is not an array");
	json_array_foreach(agents, i, one)
	{
		if (r == 0)
			r = json_is_string(one)
				    ? add_agent(ret, json_string_value(one),
						json_string_length(one), e)
				    : err_set(e, -EINVAL,
					      "'agents' has an item that is not a name");
	}
	if (r == 0 && json_object_get(o, "level"))
		r = json_get_string(o, "level", KEY_LEVEL_MAX, &level, e);
	for (size_t k = 0; k < QUOTA_KINDS && r == 0; k++)
		if (json_object_get(o, quota_names[k]))
			r = json_get_u64(o, quota_names[k], INT64_MAX, &ret->quota.most[k], e);
	return r < 0 ? r : set_level(ret, level, e);
}

static int read_entry(const json_t *o, struct key_entry *ret, struct err *e)
{
	static const char *const known[] = { "name",	"prefix", "role",   "hash",	 "created",
					     "expires", "agents", "level",  "sandboxes", "cpus",
					     "memory",	"disk",	  "builds", NULL };
	int r = json_only_keys(o, known, e);

	if (r == 0)
		r = read_words(o, &ret->info, e);
	if (r == 0)
		r = read_hash(o, ret->hash, e);
	if (r == 0)
		r = read_grant(o, &ret->info.grant, e);
	if (r == 0)
		r = read_time(o, "created", true, &ret->info.created, e);
	return r < 0 ? r : read_time(o, "expires", false, &ret->info.expires, e);
}

/* Names, prefixes and hashes must be unique; place_of() relies on unique hashes. */
static int check_new(const struct key_entry *list, size_t n, const struct key_entry *new,
		     struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		if (str_eq(list[i].info.name, new->info.name))
			return err_set(e, -EINVAL, "name '%s' twice", new->info.name);
		if (str_eq(list[i].info.prefix, new->info.prefix))
			return err_set(e, -EINVAL, "prefix '%s' twice", new->info.prefix);
		if (memcmp(list[i].hash, new->hash, KEY_HASH) == 0)
			return err_set(e, -EINVAL, "the same hash twice");
	}
	return 0;
}

static int read_list(const json_t *array, struct key_entry **ret, size_t *ret_n, struct err *e)
{
	_cleanup_free_ struct key_entry *list = NULL;
	size_t n = json_array_size(array);

	if (n > KEYS_MAX)
		return err_set(e, -E2BIG, "%zu keys; the maximum is %d", n, KEYS_MAX);
	list = calloc(MAX(n, (size_t)1), sizeof(*list));
	if (!list)
		return err_oom(e);
	for (size_t i = 0; i < n; i++)
		if (read_entry(json_array_get(array, i), &list[i], e) < 0 ||
		    check_new(list, i, &list[i], e) < 0)
			return err_wrap(e, "key %zu", i);
	*ret = TAKE_PTR(list);
	*ret_n = n;
	return 0;
}

int keys_read_text(const char *text, size_t n, struct key_entry **ret, size_t *ret_n, struct err *e)
{
	static const char *const known[] = { "version", "keys", NULL };
	_cleanup_json_ json_t *j = NULL;
	const json_t *array;
	uint64_t version = 0;
	int r;

	if (n > KEYS_FILE_MAX)
		return err_set(e, -EFBIG, "larger than %d bytes", KEYS_FILE_MAX);
	r = json_read(text, n, &j, e);
	if (r == 0)
		r = json_only_keys(j, known, e);
	if (r == 0)
		r = json_get_u64(j, "version", INT64_MAX, &version, e);
	if (r < 0)
		return r;
	if (version != VERSION)
		return err_set(e, -EINVAL, "'version' is %llu, this hutch supports %d",
			       (unsigned long long)version, VERSION);
	array = json_object_get(j, "keys");
	if (!json_is_array(array))
		return err_set(e, -EINVAL, "'keys' is not an array");
	return read_list(array, ret, ret_n, e);
}

/* ---- writing ---- */

static int put_grant(json_t *o, const struct key_grant *g)
{
	const char *agents[KEY_AGENTS_MAX];
	int r = 0;

	for (size_t i = 0; i < g->n_agents; i++)
		agents[i] = g->agents[i];
	if (g->n_agents > 0)
		r = json_put(o, "agents", json_texts(agents, g->n_agents));
	if (r == 0 && g->level[0])
		r = json_put(o, "level", json_string(g->level));
	for (size_t i = 0; i < QUOTA_KINDS && r == 0; i++)
		if (g->quota.most[i] > 0)
			r = json_put(o, quota_names[i], json_integer((json_int_t)g->quota.most[i]));
	return r;
}

static json_t *entry_json(const struct key_entry *k)
{
	char hash[2 * KEY_HASH + 1], created[CLOCK_RFC3339_MAX], expires[CLOCK_RFC3339_MAX];
	json_t *o;

	(void)sodium_bin2hex(hash, sizeof(hash), k->hash, KEY_HASH);
	o = JSON_OBJECT({ "name", json_string(k->info.name) },
			{ "prefix", json_string(k->info.prefix) },
			{ "role", json_string(key_role_names[k->info.role]) },
			{ "hash", json_string(hash) },
			{ "created", json_string(clock_format(k->info.created, created)) });
	if (o &&
	    ((k->info.expires &&
	      json_put(o, "expires", json_string(clock_format(k->info.expires, expires))) < 0) ||
	     put_grant(o, &k->info.grant) < 0)) {
		json_decref(o);
		return NULL;
	}
	return o;
}

char *keys_write_text(const struct key_entry *list, size_t n)
{
	_cleanup_json_ json_t *o = NULL;
	json_t *array = json_array();
	int r = array ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = json_push(array, entry_json(&list[i]));
	o = JSON_OBJECT({ "version", json_integer(VERSION) }, { "keys", array });
	return r == 0 && o ? json_write_canonical(o) : NULL;
}
