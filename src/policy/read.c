/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file's mapping key by key as the schema says, and fills in defaults. */
#include "policy/read.h"

#include <string.h>

#include "base/str.h"
#include "policy/reading.h"

enum {
	DEFAULT_PORT = 443
};

static reader_fn read_section;

static reader_fn *const readers[] = {
	[KEY_SECTION] = read_section,
	[KEY_NAME] = read_name,
	[KEY_LINE] = read_text,
	[KEY_TEXT] = read_text,
	[KEY_WORD] = read_word,
	[KEY_WORD_SET] = read_word_set,
	[KEY_SIZE] = read_number,
	[KEY_DURATION] = read_number,
	[KEY_COUNT] = read_number,
	[KEY_THOUSANDTHS] = read_number,
	[KEY_PATH] = read_path,
	[KEY_PATH_LIST] = read_path_list,
	[KEY_PORT_LIST] = read_port_list,
	[KEY_ALLOW_LIST] = read_rules,
	[KEY_DENY_LIST] = read_rules,
	[KEY_PRESET_LIST] = read_preset_list,
	[KEY_PACKAGE_LIST] = read_package_list,
	[KEY_TEXT_LIST] = read_text_list,
	[KEY_HOST_LIST] = read_host_list,
	[KEY_ENV] = read_env,
	[KEY_SECRETS] = read_secrets,
	[KEY_FILTER_LIST] = read_filter_list,
	[KEY_FILES] = read_files,
	[KEY_HTTP_LIST] = read_http_list,
	[KEY_HTTP_HOST] = read_http_host,
	[KEY_METHOD_LIST] = read_method_list,
	[KEY_PATTERN_LIST] = read_pattern_list,
	[KEY_LLM_LIST] = read_llm_list,
	[KEY_MODEL_LIST] = read_model_list,
	[KEY_PRICE_LIST] = read_price_list,
	[KEY_MEMBERS] = read_members,
};

static_assert(ARRAY_SIZE(readers) == KEY_TYPE_MAX, "a reader for every type");

static void read_value(struct reading *rd, const struct key *k, const struct yaml_node *n)
{
	char *base = k->in_file ? (char *)rd->f : (char *)rd->p;

	readers[k->type](rd, k, n, base + k->field);
}

/*
 * Gives a file without valid `ports` the port 443. This includes files whose `ports` are wrong, so
 * that their rules are still checked.
 */
static void default_ports(struct reading *rd, const struct key *keys)
{
	uint16_t *slot;

	if (!reading_key(keys, "ports") || rd->f->ports.n > 0)
		return;
	slot = list_slot(rd, &rd->f->ports);
	if (!slot)
		return;
	*slot = DEFAULT_PORT;
	rd->f->ports.n = 1;
}

static void read_keys(struct reading *rd, const struct key *keys, const struct yaml_node *map)
{
	/* Read `ports` first: it applies to all rules of its mapping, whatever their order. */
	const struct yaml_node *ports = yaml_get(map, "ports");
	const struct key *k = ports ? reading_key(keys, "ports") : NULL;
	size_t was;

	if (k) {
		was = reading_enter(rd, k->name, 0);
		read_value(rd, k, ports);
		reading_leave(rd, was);
	}
	default_ports(rd, keys);
	yaml_foreach (n, map) {
		if (n == ports && k)
			continue;
		was = reading_enter(rd, n->key, 0);
		if (reading_key(keys, n->key))
			read_value(rd, reading_key(keys, n->key), n);
		else
			reading_unknown_key(rd, keys, n);
		reading_leave(rd, was);
	}
	reading_check_required(rd, keys, map);
}

static void read_section(struct reading *rd, const struct key *k, const struct yaml_node *n,
			 void *field)
{
	if (reading_is_kind(rd, n, YAML_MAP, key_type_expects(k->type)))
		read_keys(rd, k->keys, n);
}

void policy_read(struct policy *p, struct policy_file *f, const struct key *keys,
		 const struct yaml_node *root, struct diags *d)
{
	struct reading rd = { .p = p, .f = f, .d = d, .readers = readers };
	const struct yaml_node *head;

	if (!reading_is_kind(&rd, root, YAML_MAP, "a mapping"))
		return;
	head = yaml_get(root, f->is_preset ? "preset" : "agent");
	f->head_pos = head ? head->pos : root->pos;
	read_keys(&rd, keys, root);
}

static bool is_unset(const struct key *k, const void *field)
{
	switch (k->type) {
	case KEY_WORD:
		return *(const unsigned int *)field == 0;
	case KEY_PATH:
		return *(const char *const *)field == NULL;
	case KEY_PATH_LIST:
		return !((const struct text_list *)field)->set;
	default:
		return *(const uint64_t *)field == 0;
	}
}

/* The fallback as a file's node: a scalar, or a list of its space-separated words. */
static struct yaml_node *fallback_node(struct policy *p, const struct key *k, struct pos pos)
{
	const char *s = k->fallback;
	bool list = k->type == KEY_PATH_LIST;
	struct yaml_node *top = arena_alloc(&p->arena, sizeof(*top)), **tail;

	if (!top)
		return NULL;
	*top = (struct yaml_node){ .kind = YAML_LIST, .pos = pos };
	tail = &top->child;
	while (*s) {
		struct yaml_node *n = arena_alloc(&p->arena, sizeof(*n));

		if (!n)
			return NULL;
		*n = (struct yaml_node){ .kind = YAML_SCALAR, .pos = pos, .len = strcspn(s, " ") };
		n->text = arena_strndup(&p->arena, s, n->len);
		if (!n->text)
			return NULL;
		*tail = n;
		tail = &n->next;
		s += n->len + strspn(s + n->len, " ");
	}
	return list ? top : top->child;
}

void policy_read_fallbacks(struct policy *p, const struct key *keys, struct diags *d)
{
	static const struct source schema = { .label = "(defaults)", .text = "" };
	struct policy_file f = { .src = &schema };
	struct reading rd = { .p = p, .f = &f, .d = d, .readers = readers };

	for (; keys->name; keys++) {
		void *field = (char *)p + keys->field;
		const struct yaml_node *n;

		if (keys->type == KEY_SECTION)
			policy_read_fallbacks(p, keys->keys, d);
		if (!keys->fallback || keys->in_file || !is_unset(keys, field))
			continue;
		n = fallback_node(p, keys, (struct pos){ &schema, 1, 1 });
		if (n)
			readers[keys->type](&rd, keys, n, field);
		else
			d->oom = true;
	}
}
