/* SPDX-License-Identifier: Apache-2.0 */
/* Readers for lists and for mappings of variables. */
#include <string.h>

#include "base/str.h"
#include "filter/filter-rules.h"
#include "filter/rules.h"
#include "policy/reading.h"

enum {
	LIST_MAX = 4096,
	PORTS_MAX = 64,
	PRESETS_MAX = 256,
	ENV_NAME_MAX = 128,
	ENV_VALUE_MAX = 32 * 1024,
	PACKAGE_MAX = 64,
};

bool reading_has_text(const struct text_list *list, const char *s)
{
	for (size_t i = 0; i < list->n; i++)
		if (str_eq(list->v[i], s))
			return true;
	return false;
}

void reading_add_text(struct reading *rd, struct text_list *list, const char *s)
{
	const char **slot = list_slot(rd, list), *copy = slot ? reading_keep(rd, s) : NULL;

	if (!copy)
		return;
	*slot = copy;
	list->n++;
}

/* ---- lists ---- */

void reading_each_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
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

	if (reading_path(rd, n, path, sizeof(path)) && !reading_has_text(list, path) &&
	    !list_full(rd, n, list))
		reading_add_text(rd, list, path);
}

void read_path_list(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	((struct text_list *)field)->set = true;
	reading_each_item(rd, k, n, field, path_item);
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
	if (!reading_has_text(list, s) && !list_full(rd, n, list))
		reading_add_text(rd, list, s);
}

void read_package_list(struct reading *rd, const struct key *k, const struct yaml_node *n,
		       void *field)
{
	reading_each_item(rd, k, n, field, package_item);
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
	reading_add_text(rd, field, s);
}

void read_text_list(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	reading_each_item(rd, k, n, field, text_item);
}

/* ---- rules of the output filter ---- */

/* Read once; NULL without memory. */
static const struct filter_rules *shipped_rules(void)
{
	static struct filter_rules *rules;
	struct err e = ERR_INIT;

	if (!rules && filter_rules_read(filter_rules_text, filter_rules_text_n, &rules, &e) < 0)
		assert(e.num == -ENOMEM); /* test-filter reads them, too */
	return rules;
}

static const char *closest_rule(const struct filter_rules *rules, const char *s)
{
	static const char *names[FILTER_RULES_MAX + FILTER_GROUPS + 1];
	size_t n = 0;

	for (unsigned int i = 0; i < FILTER_GROUPS; i++)
		names[n++] = filter_group_name((enum filter_group)i);
	for (size_t i = 0; i < rules->n; i++)
		names[n++] = rules->rule[i].name;
	names[n] = NULL;
	return str_closest(s, names);
}

static void filter_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
			void *field)
{
	const char *s = reading_scalar(rd, n, "a rule or group of the output filter");
	const struct filter_rules *rules = s ? shipped_rules() : NULL;
	bool on[FILTER_RULES_MAX];
	struct text_list *list = field;
	char hint[128];

	if (s && !rules)
		rd->d->oom = true;
	if (!rules)
		return;
	if (!filter_rules_select(rules, s, on))
		return reading_wrong(rd, n->pos,
				     reading_hint(closest_rule(rules, s), hint, sizeof(hint)),
				     "'%s' is no rule and no group of the output filter", s);
	if (!reading_has_text(list, s) && !list_full(rd, n, list))
		reading_add_text(rd, list, s);
}

void read_filter_list(struct reading *rd, const struct key *k, const struct yaml_node *n,
		      void *field)
{
	rd->p->output.rules_pos = n->pos;
	reading_each_item(rd, k, n, field, filter_item);
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
	reading_each_item(rd, k, n, field, port_item);
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
	reading_each_item(rd, k, n, field, preset_item);
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
	reading_each_item(rd, k, n, field, rule_item);
}

/* ---- mappings with arbitrary keys ---- */

static bool env_name_valid(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && n <= ENV_NAME_MAX && !ascii_is_digit(s[0]) &&
	       strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

bool reading_check_name(struct reading *rd, const struct yaml_node *n)
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

		if (!reading_check_name(rd, value))
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
