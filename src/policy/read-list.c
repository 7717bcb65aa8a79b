/* SPDX-License-Identifier: Apache-2.0 */
/* Readers for lists and for mappings with arbitrary keys. */
#include <string.h>

#include "base/str.h"
#include "policy/reading.h"

enum {
	LIST_MAX = 4096,
	PORTS_MAX = 64,
	PRESETS_MAX = 256,
	HOSTS_MAX = 64,
	ENV_NAME_MAX = 128,
	ENV_VALUE_MAX = 32 * 1024,
	PACKAGE_MAX = 64,
};

static bool list_has(const struct text_list *list, const char *s)
{
	for (size_t i = 0; i < list->n; i++)
		if (str_eq(list->v[i], s))
			return true;
	return false;
}

static void list_add(struct reading *rd, struct text_list *list, const char *s)
{
	const char **slot = list_slot(rd, list), *copy = slot ? reading_keep(rd, s) : NULL;

	if (!copy)
		return;
	*slot = copy;
	list->n++;
}

/* ---- lists ---- */

/* Calls `item` for every item of a list, with rd->path and rd->index set. */
static void each_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
		      void *field, reader_fn *item)
{
	uint32_t index = 0;

	if (!reading_is_kind(rd, n, YAML_LIST, key_type_expects(k->type)))
		return;
	yaml_foreach (i, n) {
		size_t was = reading_enter(rd, NULL, index);

		rd->index = index++;
		item(rd, k, i, field);
		reading_leave(rd, was);
	}
}

static bool list_full(struct reading *rd, const struct yaml_node *n, const struct text_list *list)
{
	if (list->n < LIST_MAX)
		return false;
	reading_wrong(rd, n->pos, NULL, "more than %d items", LIST_MAX);
	return true;
}

static void path_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
		      void *field)
{
	struct text_list *list = field;
	char path[READING_PATH_TEXT_MAX];

	if (reading_path(rd, n, path, sizeof(path)) && !list_has(list, path) &&
	    !list_full(rd, n, list))
		list_add(rd, list, path);
}

void read_path_list(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	((struct text_list *)field)->set = true;
	each_item(rd, k, n, field, path_item);
}

static bool package_valid(const char *s, size_t n)
{
	/* Debian policy 5.6.1: at least two of lower case letters, digits, '+', '-' and '.'. */
	if (n < 2 || n > PACKAGE_MAX || !(ascii_is_lower(s[0]) || ascii_is_digit(s[0])))
		return false; /* apt reads "sudo-" as "remove sudo". */
	return s[n - 1] != '-' && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789+-.") == n;
}

static void package_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
			 void *field)
{
	const char *s = reading_scalar(rd, n, "the name of a Debian package");
	struct text_list *list = field;

	if (!s)
		return;
	if (!package_valid(s, n->len))
		return reading_wrong_kind(rd, n, "the name of a Debian package");
	if (!list_has(list, s) && !list_full(rd, n, list))
		list_add(rd, list, s);
}

void read_package_list(struct reading *rd, const struct key *k, const struct yaml_node *n,
		       void *field)
{
	each_item(rd, k, n, field, package_item);
}

static void text_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
		      void *field)
{
	const char *s = reading_scalar(rd, n, "text");

	if (!s || list_full(rd, n, field))
		return;
	if (n->len > k->max)
		return reading_wrong(rd, n->pos, NULL, "text of %zu bytes, at most %llu", n->len,
				     (unsigned long long)k->max);
	reading_check_credential(rd, n);
	list_add(rd, field, s);
}

void read_text_list(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	each_item(rd, k, n, field, text_item);
}

static void port_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
		      void *field)
{
	const char *s = reading_scalar(rd, n, "a port from 1 to 65535");
	struct port_list *list = field;
	uint16_t port, *slot;
	struct err e;

	if (!s)
		return;
	if (port_parse(s, n->len, &port, &e) < 0)
		return reading_wrong_kind(rd, n, "a port from 1 to 65535");
	for (size_t i = 0; i < list->n; i++)
		if (list->v[i] == port)
			return reading_wrong(rd, n->pos, NULL, "port %u is written twice", port);
	if (list->n == PORTS_MAX)
		return reading_wrong(rd, n->pos, NULL, "more than %d ports", PORTS_MAX);
	slot = list_slot(rd, list);
	if (!slot)
		return;
	*slot = port;
	list->n++;
}

void read_port_list(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	if (n->kind == YAML_LIST && !n->child)
		return reading_wrong(rd, n->pos, NULL,
				     "expected a list of ports, found an empty one");
	each_item(rd, k, n, field, port_item);
}

static void preset_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
			void *field)
{
	const char *s = reading_scalar(rd, n, "the name of a preset");
	struct preset_list *list = field;
	struct preset_ref *slot;

	if (!s)
		return;
	if (!store_name_valid(s, n->len))
		return reading_wrong_kind(rd, n, "the name of a preset");
	for (size_t i = 0; i < list->n; i++) {
		if (!str_eq(list->v[i].name, s))
			continue;
		if (list->v[i].pos.src == rd->f->src) /* a parent may name the same preset */
			reading_wrong(rd, n->pos, NULL, "'%s' is written twice", s);
		return;
	}
	if (list->n == PRESETS_MAX)
		return reading_wrong(rd, n->pos, NULL, "more than %d presets", PRESETS_MAX);
	slot = list_slot(rd, list);
	if (!slot)
		return;
	*slot = (struct preset_ref){ .name = reading_keep(rd, s),
				     .pos = n->pos,
				     .index = rd->index };
	if (slot->name)
		list->n++;
}

void read_preset_list(struct reading *rd, const struct key *k, const struct yaml_node *n,
		      void *field)
{
	each_item(rd, k, n, field, preset_item);
}

/* ---- rules ---- */

static void rule_add(struct reading *rd, struct pos pos, bool deny, const struct rule *rule,
		     bool default_port)
{
	struct rule_list *list = &rd->p->egress.list;
	size_t cap = list->cap;
	struct ruleset_entry *v;
	struct origin *origin;
	if (list->full)
		return;
	list->full = list->n >= RULESET_MAX;
	if (list->full)
		return reading_wrong(rd, pos, NULL, "more than %d rules in one policy",
				     RULESET_MAX);
	/* Both arrays have the same capacity. */
	origin = reading_grow(rd, list->origin, list->n, &cap, sizeof(*origin));
	cap = list->cap;
	v = reading_grow(rd, list->v, list->n, &cap, sizeof(*v));
	if (!origin || !v)
		return;
	list->v = v;
	list->origin = origin;
	list->cap = cap;
	v[list->n] = (struct ruleset_entry){ .rule = *rule, .deny = deny, .id = (uint32_t)list->n };
	origin[list->n] = (struct origin){
		.pos = pos,
		.file = rd->f,
		.index = rd->index,
		.default_port = default_port,
	};
	list->n++;
}

static void rule_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
		      void *field)
{
	const char *s = reading_scalar(
		rd, n, "a rule such as github.com, .sentry.io or db.example.com:5432");
	bool deny = k->type == KEY_DENY_LIST;
	struct rule rule;
	struct err e;

	if (!s)
		return;
	if (rule_parse(s, n->len, &rule, &e) < 0)
		return reading_wrong(rd, n->pos, NULL, "'%.*s%s' is not a rule: %s",
				     READING_FOUND_MAX, s, n->len > READING_FOUND_MAX ? "..." : "",
				     e.msg);
	if (deny && rule.proto != RULE_PROTO_DEFAULT)
		return reading_wrong(rd, n->pos, NULL,
				     "'%s' names a protocol: a deny rule covers all protocols", s);
	if (deny && rule.private)
		return reading_wrong(rd, n->pos, NULL,
				     "'%s' ends in /private: a deny rule covers all addresses", s);
	if (rule.port != 0 || deny)
		return rule_add(rd, n->pos, deny, &rule, false);
	for (size_t i = 0; i < rd->f->ports.n; i++) {
		rule.port = rd->f->ports.v[i];
		rule_add(rd, n->pos, false, &rule, true);
	}
}

void read_rules(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	each_item(rd, k, n, field, rule_item);
}

/* ---- mappings with arbitrary keys ---- */

static bool env_name_valid(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && n <= ENV_NAME_MAX && !ascii_is_digit(s[0]) &&
	       strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

static bool check_env_name(struct reading *rd, const struct yaml_node *n)
{
	if (env_name_valid(n->key))
		return true;
	reading_wrong(rd, n->key_pos, NULL,
		      "a variable's name has 1 to 128 letters, digits and '_', no digit first");
	return false;
}

/* A child's value replaces its parent's; a preset never replaces an agent's value. */
static void env_set(struct reading *rd, struct pair_list *list, const struct yaml_node *n)
{
	struct pair *slot = NULL;

	for (size_t i = 0; i < list->n && !slot; i++)
		if (str_eq(list->v[i].key, n->key))
			slot = &list->v[i];
	if (slot) {
		if (!rd->f->is_preset)
			*slot = (struct pair){ slot->key, reading_keep(rd, n->text), n->pos };
		return;
	}
	slot = list_slot(rd, list);
	if (!slot)
		return;
	*slot = (struct pair){ reading_keep(rd, n->key), reading_keep(rd, n->text), n->pos };
	if (slot->key && slot->value)
		list->n++;
}

static void env_value(struct reading *rd, struct pair_list *list, const struct yaml_node *n)
{
	reading_check_credential(rd, n);
	env_set(rd, list, n);
}

void read_env(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	if (!reading_is_kind(rd, n, YAML_MAP, key_type_expects(k->type)))
		return;
	yaml_foreach (value, n) {
		size_t was = reading_enter(rd, value->key, 0);

		if (!check_env_name(rd, value))
			;
		else if (value->kind != YAML_SCALAR || (value->len == 0 && !value->quoted))
			reading_wrong_kind(rd, value, "text (\"\" for none)");
		else if (value->len > ENV_VALUE_MAX)
			reading_wrong(rd, value->pos, NULL, "text of %zu bytes, at most %d",
				      value->len, ENV_VALUE_MAX);
		else
			env_value(rd, field, value);
		reading_leave(rd, was);
	}
}

static struct secret *secret_get(struct reading *rd, struct secret_list *list,
				 const struct yaml_node *n)
{
	struct secret *slot;

	for (size_t i = 0; i < list->n; i++)
		if (str_eq(list->v[i].name, n->key))
			return &list->v[i];
	slot = list_slot(rd, list);
	if (!slot)
		return NULL;
	*slot = (struct secret){ .name = reading_keep(rd, n->key), .pos = n->key_pos };
	if (!slot->name)
		return NULL;
	list->n++;
	return slot;
}

/* Accepts exact names only: a secret must not be bound to an address or a whole zone. */
static bool parse_host(struct reading *rd, const struct yaml_node *n, struct name *ret)
{
	struct rule rule;
	struct err e;

	if (n->text[0] == '*' || (rule_parse(n->text, n->len, &rule, &e) == 0 &&
				  (rule.kind != RULE_NAME || rule.port != 0)))
		reading_wrong(rd, n->pos, NULL,
			      "'%.*s' is not one host: a secret is bound to names, such as "
			      "api.github.com",
			      READING_FOUND_MAX, n->text);
	else if (name_parse(n->text, n->len, ret, &e) < 0)
		reading_wrong(rd, n->pos, NULL, "'%.*s' is not the name of a host: %s",
			      READING_FOUND_MAX, n->text, e.msg);
	else
		return true;
	return false;
}

static void host_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
		      void *field)
{
	struct host_list *list = field;
	struct secret_host *slot;
	struct name name;

	if (!reading_scalar(rd, n, "the name of a host") || !parse_host(rd, n, &name))
		return;
	for (size_t i = 0; i < list->n; i++)
		if (str_eq(list->v[i].name.text, name.text))
			return;
	if (list->n == HOSTS_MAX)
		return reading_wrong(rd, n->pos, NULL, "more than %d hosts", HOSTS_MAX);
	slot = list_slot(rd, list);
	if (!slot)
		return;
	*slot = (struct secret_host){ name, n->pos, rd->index };
	list->n++;
}

void read_host_list(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	each_item(rd, k, n, field, host_item);
}

static const struct key hosts_key = { .name = "hosts", .type = KEY_HOST_LIST };

static void read_secret(struct reading *rd, const struct yaml_node *n, struct secret_list *list)
{
	const struct yaml_node *hosts = NULL;
	struct secret *secret;
	size_t was;

	if (!reading_is_kind(rd, n, YAML_MAP, "a mapping with the key 'hosts'"))
		return;
	yaml_foreach (v, n) {
		was = reading_enter(rd, v->key, 0);
		if (str_eq(v->key, "hosts"))
			hosts = v;
		else if (str_eq(v->key, "value"))
			reading_wrong(rd, v->key_pos, NULL,
				      "a policy never contains values: remove it, and consider it "
				      "leaked");
		else
			reading_wrong(rd, v->key_pos, NULL, "unknown key; there is only 'hosts'");
		reading_leave(rd, was);
	}
	if (hosts && hosts->kind == YAML_LIST && !hosts->child)
		return reading_wrong(rd, hosts->pos, NULL,
				     "a secret needs hosts: the names it may be sent to");
	if (!hosts)
		return reading_wrong(rd, n->pos, NULL,
				     "a secret needs 'hosts': the names it may be sent to");
	secret = secret_get(rd, list, n);
	if (!secret)
		return;
	was = reading_enter(rd, "hosts", 0);
	read_host_list(rd, &hosts_key, hosts, &secret->hosts);
	reading_leave(rd, was);
}

void read_secrets(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	if (!reading_is_kind(rd, n, YAML_MAP, key_type_expects(k->type)))
		return;
	yaml_foreach (value, n) {
		size_t was = reading_enter(rd, value->key, 0);

		if (check_env_name(rd, value))
			read_secret(rd, value, field);
		reading_leave(rd, was);
	}
}
