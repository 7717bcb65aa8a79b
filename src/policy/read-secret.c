/* SPDX-License-Identifier: Apache-2.0 */
/* Reads `secrets`: names of credentials, and where and how each is sent. */
#include <string.h>

#include "base/str.h"
#include "policy/read.h"
#include "policy/reading.h"

enum {
	HOSTS_MAX = 64,
};

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
	reading_each_item(rd, k, n, field, host_item);
}

/* The secret of that name, perhaps a parent's, or a new one. */
static struct secret *secret_get(struct reading *rd, struct secret_list *list,
				 const struct yaml_node *n)
{
	struct secret *slot;

	for (size_t i = 0; i < list->n; i++)
		if (str_eq(list->v[i].name, n->key))
			return &list->v[i];
	if (list->n == POLICY_SECRETS_MAX) {
		reading_wrong(rd, n->key_pos, NULL, "more than %d secrets", POLICY_SECRETS_MAX);
		return NULL;
	}
	slot = list_slot(rd, list);
	if (!slot)
		return NULL;
	*slot = (struct secret){ .name = reading_keep(rd, n->key), .pos = n->key_pos };
	if (!slot->name)
		return NULL;
	list->n++;
	return slot;
}

static void note_pos(const struct yaml_node *map, const char *key, struct pos *ret)
{
	const struct yaml_node *n = yaml_get(map, key);

	if (n)
		*ret = n->pos;
}

static void note_positions(const struct yaml_node *n, struct secret *s)
{
	note_pos(n, "form", &s->form_pos);
	note_pos(n, "header", &s->header.pos);
	note_pos(n, "format", &s->format.pos);
	note_pos(n, "user", &s->user.pos);
	note_pos(n, "parameter", &s->parameter.pos);
}

static void read_secret(struct reading *rd, const struct yaml_node *n, struct secret_list *list)
{
	const struct yaml_node *hosts;
	struct secret *secret;
	size_t was;

	if (!reading_is_kind(rd, n, YAML_MAP, "a mapping with the key 'hosts'"))
		return;
	hosts = yaml_get(n, "hosts");
	secret = secret_get(rd, list, n);
	if (!secret)
		return;
	yaml_foreach (v, n) {
		if (!str_eq(v->key, "value")) {
			reading_member(rd, secret_keys, v, secret);
			continue;
		}
		was = reading_enter(rd, v->key, 0);
		reading_wrong(rd, v->key_pos, NULL,
			      "a policy never contains values: remove it, and consider it leaked");
		reading_leave(rd, was);
	}
	note_positions(n, secret);
	if (hosts && hosts->kind == YAML_LIST && !hosts->child)
		reading_wrong(rd, hosts->pos, NULL,
			      "a secret needs hosts: the names it may be sent to");
	else if (!hosts && secret->hosts.n == 0)
		reading_wrong(rd, n->pos, NULL,
			      "a secret needs 'hosts': the names it may be sent to");
}

void read_secrets(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	if (!reading_is_kind(rd, n, YAML_MAP, key_type_expects(k->type)))
		return;
	yaml_foreach (value, n) {
		size_t was = reading_enter(rd, value->key, 0);

		if (!reading_check_name(rd, value))
			;
		else if (strlen(value->key) > POLICY_SECRET_NAME_MAX)
			reading_wrong(rd, value->key_pos, NULL,
				      "the name of a secret has at most %d bytes",
				      POLICY_SECRET_NAME_MAX);
		else
			read_secret(rd, value, field);
		reading_leave(rd, was);
	}
}

void policy_finish_secrets(struct policy *p)
{
	for (size_t i = 0; i < p->secrets.n; i++) {
		struct secret *s = &p->secrets.v[i];

		if (s->form == AUTH_UNSET)
			s->form = s->header.text ? AUTH_HEADER : AUTH_BEARER;
		if (s->form == AUTH_HEADER && !s->format.text)
			s->format.text = "{}";
	}
}
