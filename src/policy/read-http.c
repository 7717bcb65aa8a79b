/* SPDX-License-Identifier: Apache-2.0 */
/* Reads `egress.http`: rules on requests. */
#include <string.h>

#include "base/str.h"
#include "policy/reading.h"

void read_http_host(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	const char *s = reading_scalar(rd, n, key_type_expects(k->type));
	struct rule rule;
	struct err e;

	if (!s)
		return;
	if (rule_parse(s, n->len, &rule, &e) < 0)
		return reading_wrong(rd, n->pos, NULL, "'%.*s' is not a host: %s",
				     READING_FOUND_MAX, s, e.msg);
	if (rule.kind == RULE_ADDR)
		return reading_wrong(rd, n->pos, NULL,
				     "'%.*s' is an address: rules on requests are for names",
				     READING_FOUND_MAX, s);
	if (rule.port != 0)
		return reading_wrong(rd, n->pos, NULL,
				     "'%.*s' has a port: the rule holds on every port that "
				     "egress.domains allows",
				     READING_FOUND_MAX, s);
	*(struct rule *)field = rule;
}

static void method_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
			void *field)
{
	const char *s = reading_scalar(rd, n, "a method such as GET");
	struct text_list *list = field;
	struct err e;

	if (!s)
		return;
	if (l7_method_check(s, n->len, &e) < 0)
		return reading_wrong(rd, n->pos, NULL, "'%.*s': %s", READING_FOUND_MAX, s, e.msg);
	if (reading_has_text(list, s))
		return reading_wrong(rd, n->pos, NULL, "'%s' is written twice", s);
	if (list->n == L7_METHODS_MAX)
		return reading_wrong(rd, n->pos, NULL, "more than %d methods", L7_METHODS_MAX);
	reading_add_text(rd, list, s);
}

static void pattern_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
			 void *field)
{
	const char *s = reading_scalar(rd, n, "a path such as /repos/acme/**");
	struct text_list *list = field;
	struct err e;

	if (!s)
		return;
	if (l7_pattern_check(s, n->len, &e) < 0)
		return reading_wrong(rd, n->pos, NULL, "'%.*s': %s", READING_FOUND_MAX, s, e.msg);
	if (reading_has_text(list, s)) /* a parent's secret may have it */
		return;
	if (list->n == L7_PATTERNS_MAX)
		return reading_wrong(rd, n->pos, NULL, "more than %d paths", L7_PATTERNS_MAX);
	reading_add_text(rd, list, s);
}

/* An empty list could mean everything or nothing. */
static void read_some(struct reading *rd, const struct key *k, const struct yaml_node *n,
		      void *field, reader_fn *item)
{
	if (n->kind == YAML_LIST && !n->child)
		return reading_wrong(rd, n->pos, NULL, "expected %s, found an empty one",
				     key_type_expects(k->type));
	reading_each_item(rd, k, n, field, item);
}

void read_method_list(struct reading *rd, const struct key *k, const struct yaml_node *n,
		      void *field)
{
	read_some(rd, k, n, field, method_item);
}

void read_pattern_list(struct reading *rd, const struct key *k, const struct yaml_node *n,
		       void *field)
{
	read_some(rd, k, n, field, pattern_item);
}

static void http_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
		      void *field)
{
	struct http_list *list = field;
	struct http_rule *slot;

	if (!reading_is_kind(rd, n, YAML_MAP,
			     "a mapping such as {host: api.github.com, methods: [GET]}"))
		return;
	if (list->n == L7_RULES_MAX)
		return reading_wrong(rd, n->pos, NULL, "more than %d rules on requests",
				     L7_RULES_MAX);
	slot = list_slot(rd, list);
	if (!slot)
		return;
	*slot = (struct http_rule){ .pos = n->pos, .file = rd->f, .index = rd->index };
	yaml_foreach (v, n)
		reading_member(rd, k->keys, v, slot);
	reading_check_required(rd, k->keys, n);
	list->n += slot->host.name.len > 0; /* otherwise an error was reported */
}

void read_http_list(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	reading_each_item(rd, k, n, field, http_item);
}
