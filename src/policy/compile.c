/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles an agent into a policy: reads the agent and its ancestors, the oldest first, then their
 * presets, fills in defaults, and lints the result.
 */
#include <string.h>

#include "base/str.h"
#include "policy/lint.h"
#include "policy/policy.h"
#include "policy/read.h"

enum {
	EXTENDS_MAX = 8
};

static const char floor_preset[] = "floor"; /* deny rules of every policy */

struct compilation {
	struct policy_store *store;
	struct policy *p;
	struct diags *d;
};

static struct policy_file *file_new(struct compilation *c, const struct source *src, bool is_preset)
{
	struct policy_file *f = arena_alloc(&c->p->arena, sizeof(*f));

	if (!f) {
		c->d->oom = true;
		return NULL;
	}
	f->src = src;
	f->is_preset = is_preset;
	return f;
}

const char *preset_folder(enum preset_kind kind)
{
	static const char *const folders[] = {
		[PRESET_EGRESS] = "presets/egress",
		[PRESET_CAPABILITIES] = "presets/capabilities",
		[PRESET_PROMPTS] = "presets/prompts",
	};

	static_assert(ARRAY_SIZE(folders) == PRESET_KIND_MAX, "a folder for every kind");
	return folders[kind];
}

/* Reports an unknown agent or preset at the position of its name, with a suggestion. */
static void not_found(struct compilation *c, struct pos pos, const char *key, const char *folder,
		      const char *what, const char *name, const struct err *why)
{
	const char *const *known = NULL, *close = NULL;
	const struct source *other = NULL;
	char hint[128];
	struct err e;

	if (why->num == -ENOMEM) {
		c->d->oom = true;
		return;
	}
	if (why->num == -ENOENT && store_list(c->store, folder, &known, &e) == 0)
		close = str_closest(name, known);
	if (close)
		(void)snprintf(hint, sizeof(hint), "did you mean '%s'?", close);
	for (int kind = 0; !close && !other && why->num == -ENOENT && kind < PRESET_KIND_MAX;
	     kind++)
		if (store_find(c->store, preset_folder((enum preset_kind)kind), name, NULL, &other,
			       &e) == 0)
			(void)snprintf(hint, sizeof(hint), "a preset of that name exists for %s",
				       preset_kind_names[kind]);
	diag_add(c->d, DIAG_ERROR, pos, key, close || other ? hint : NULL, "%s '%s' %s", what, name,
		 why->msg);
}

/* Position of SECTION.KEY in a file; without the key, of the section or of the file's beginning. */
static struct pos pos_of(const struct yaml_node *root, const char *section, const char *key)
{
	const struct yaml_node *map = root->kind == YAML_MAP ? yaml_get(root, section) : NULL;
	const struct yaml_node *n = map && map->kind == YAML_MAP ? yaml_get(map, key) : NULL;

	return n ? n->pos : map ? map->pos : root->pos;
}

static bool has_key(const struct yaml_node *root, const char *section, const char *key)
{
	const struct yaml_node *map = root->kind == YAML_MAP ? yaml_get(root, section) : NULL;

	return map && map->kind == YAML_MAP && yaml_get(map, key);
}

/* Is the file name of `label` NAME.yaml? */
static bool label_is(const char *label, const char *name)
{
	const char *slash = strrchr(label, '/');
	const char *base = slash ? slash + 1 : label;
	size_t n = strlen(name);

	return strncmp(base, name, n) == 0 && str_eq(base + n, ".yaml");
}

static const struct yaml_node *tree_of(struct compilation *c, const struct source *src)
{
	return yaml_read(&c->p->arena, src, c->d);
}

/* Reads a preset's tree into the policy, and checks its name and kind against its path. */
static void read_preset(struct compilation *c, struct policy_file *f, enum preset_kind kind,
			const struct yaml_node *root)
{
	size_t from = c->p->egress.list.n;

	policy_read(c->p, f, preset_keys[kind], root, c->d);
	if (f->name && !label_is(f->src->label, f->name))
		diag_add(c->d, DIAG_ERROR, pos_of(root, "preset", "name"), "preset.name", NULL,
			 "'%s' does not match the file name", f->name);
	if (f->preset_kind != (unsigned int)kind)
		diag_add(c->d, DIAG_ERROR, pos_of(root, "preset", "kind"), "preset.kind", NULL,
			 "'%s' preset in the folder of %s presets",
			 preset_kind_names[f->preset_kind], preset_kind_names[kind]);
	policy_lint_rules(c->p, from, c->p->egress.list.n, c->d);
}

static void add_fragment(struct compilation *c, const char *text)
{
	struct text_list *list = &c->p->prompt.fragments;

	/* add_presets() made room for one fragment per preset. */
	assert(list->n < list->cap);
	list->v[list->n++] = text;
}

static void add_preset(struct compilation *c, enum preset_kind kind, const struct preset_ref *ref,
		       const char *section)
{
	char key[64];
	const struct source *src = NULL;
	const struct yaml_node *root;
	struct policy_file *f;
	struct err e;

	if (store_find(c->store, preset_folder(kind), ref->name, NULL, &src, &e) < 0) {
		(void)snprintf(key, sizeof(key), "%s%spresets[%u]", section, section[0] ? "." : "",
			       ref->index);
		return not_found(c, ref->pos, key, preset_folder(kind), "preset", ref->name, &e);
	}
	root = tree_of(c, src);
	f = root ? file_new(c, src, true) : NULL;
	if (!f)
		return;
	f->named_at = ref->pos;
	read_preset(c, f, kind, root);
	if (kind == PRESET_PROMPTS && f->text)
		add_fragment(c, f->text);
}

/* Appends `more` to `list`. */
static void join_lists(struct compilation *c, struct text_list *list, const struct text_list *more)
{
	const char **v = arena_calloc(&c->p->arena, list->n + more->n + 1, sizeof(v[0]));

	if (!v) {
		c->d->oom = true;
		return;
	}
	for (size_t i = 0; i < list->n; i++)
		v[i] = list->v[i];
	for (size_t i = 0; i < more->n; i++)
		v[list->n + i] = more->v[i];
	list->v = v;
	list->n = list->cap = list->n + more->n;
}

/* A preset's scripts run before the file's own, which may build on them. */
static void add_capabilities(struct compilation *c, const char *section)
{
	struct policy *p = c->p;
	struct text_list *scripts = &p->capabilities.scripts, own = *scripts;

	*scripts = (struct text_list){ 0 };
	for (size_t i = 0; i < p->capabilities.presets.n; i++)
		add_preset(c, PRESET_CAPABILITIES, &p->capabilities.presets.v[i], section);
	join_lists(c, scripts, &own);
}

void policy_add_capabilities(struct policy_store *store, struct policy *p, struct diags *d)
{
	add_capabilities(&(struct compilation){ .store = store, .p = p, .d = d }, "");
}

static void add_presets(struct compilation *c)
{
	struct policy *p = c->p;
	struct preset_ref floor = { floor_preset, p->pos, 0 };

	p->prompt.fragments.cap = p->prompt.presets.n;
	p->prompt.fragments.v = arena_calloc(&p->arena, p->prompt.presets.n + 1, sizeof(char *));
	if (!p->prompt.fragments.v) {
		c->d->oom = true;
		return;
	}
	add_preset(c, PRESET_EGRESS, &floor, "egress");
	for (size_t i = 0; i < p->egress.presets.n; i++)
		add_preset(c, PRESET_EGRESS, &p->egress.presets.v[i], "egress");
	add_capabilities(c, "capabilities");
	for (size_t i = 0; i < p->prompt.presets.n; i++)
		add_preset(c, PRESET_PROMPTS, &p->prompt.presets.v[i], "prompt");
}

/* The agent and its ancestors, youngest first. */
struct chain {
	struct policy_file *file[EXTENDS_MAX];
	const struct yaml_node *root[EXTENDS_MAX];
	size_t n;
};

/* Finds the agent that the last one extends; *ret_src is NULL where the chain ends or breaks. */
static void find_parent(struct compilation *c, const struct chain *chain,
			const struct source **ret_src)
{
	const struct policy_file *child = chain->file[chain->n - 1];
	const struct yaml_node *root = chain->root[chain->n - 1], *n;
	const struct source *src = NULL;
	struct err e;

	*ret_src = NULL;
	n = root->kind == YAML_MAP ? yaml_get(root, "extends") : NULL;
	if (!n || n->kind != YAML_SCALAR || !store_name_valid(n->text, n->len))
		return; /* policy_read() reports the error */
	if (store_find(c->store, STORE_AGENTS, n->text,
		       child->src->on_disk ? child->src->label : NULL, &src, &e) < 0)
		return not_found(c, n->pos, "extends", STORE_AGENTS, "agent", n->text, &e);
	for (size_t i = 0; i < chain->n; i++)
		if (str_eq(chain->file[i]->src->label, src->label))
			return diag_add(c->d, DIAG_ERROR, n->pos, "extends", NULL,
					"'%s' extends itself through %s", n->text,
					child->src->label);
	if (chain->n == EXTENDS_MAX)
		return diag_add(c->d, DIAG_ERROR, n->pos, "extends", NULL,
				"more than %d agents extend one another", EXTENDS_MAX);
	*ret_src = src;
}

/* Reads one agent of the chain; its values replace those of its ancestors. */
static void read_agent(struct compilation *c, struct policy_file *f, const struct yaml_node *root)
{
	enum level inherited = c->p->level;
	size_t from = c->p->egress.list.n;

	c->p->name = c->p->summary = NULL; /* not inherited: they describe one agent */
	policy_read(c->p, f, agent_keys, root, c->d);
	policy_lint_rules(c->p, from, c->p->egress.list.n, c->d);
	if (has_key(root, "resources", "timeout") || has_key(root, "resources", "ttl"))
		c->p->limits_pos =
			pos_of(root, "resources",
			       has_key(root, "resources", "timeout") ? "timeout" : "ttl");
	if (has_key(root, "isolation", "nested"))
		c->p->nested_pos = pos_of(root, "isolation", "nested");
	if (c->p->level < inherited)
		diag_add(c->d, DIAG_WARNING, pos_of(root, "isolation", "level"), "isolation.level",
			 NULL, "'%s' is weaker than '%s', the level of the agent it extends",
			 level_names[c->p->level], level_names[inherited]);
	if (f->by_name && c->p->name && !label_is(f->src->label, c->p->name))
		diag_add(c->d, DIAG_ERROR, pos_of(root, "agent", "name"), "agent.name", NULL,
			 "'%s' does not match the file name", c->p->name);
}

/*
 * Is agent.type missing in the whole chain? False if an ancestor or a section `agent` is missing,
 * because that is already an error.
 */
static bool lacks_type(const struct chain *chain)
{
	for (size_t i = 0; i < chain->n; i++) {
		const struct yaml_node *root = chain->root[i];
		const struct yaml_node *agent =
			root->kind == YAML_MAP ? yaml_get(root, "agent") : NULL;

		if (!agent || agent->kind != YAML_MAP || yaml_get(agent, "type"))
			return false;
	}
	return !yaml_get(chain->root[chain->n - 1], "extends");
}

static int read_chain(struct compilation *c, const struct source *src, bool by_name)
{
	struct chain chain = { .n = 0 };

	while (src) {
		struct policy_file *f = file_new(c, src, false);
		const struct yaml_node *root = f ? tree_of(c, src) : NULL;

		if (!root)
			break;
		f->by_name = by_name || chain.n > 0;
		chain.file[chain.n] = f;
		chain.root[chain.n++] = root;
		find_parent(c, &chain, &src);
	}
	if (chain.n == 0)
		return -EINVAL;
	for (size_t i = chain.n; i-- > 0;)
		read_agent(c, chain.file[i], chain.root[i]);
	c->p->pos = chain.file[0]->head_pos.src ? chain.file[0]->head_pos : chain.root[0]->pos;
	if (lacks_type(&chain))
		diag_add(c->d, DIAG_ERROR, c->p->pos, "agent.type", NULL, "missing; expected %s",
			 key_type_expects(KEY_NAME));
	return 0;
}

static void make_rules(struct compilation *c)
{
	struct rule_list *list = &c->p->egress.list;
	int r = ruleset_new(list->v, list->n, &c->p->egress.rules);

	assert(r != -E2BIG); /* rule_add() in read-list.c checks RULESET_MAX */
	if (r < 0)
		c->d->oom = true;
}

/* Rules without a filter would do nothing. "off" is an answer, too: a parent's rules then rest. */
static void check_output(struct compilation *c)
{
	if (c->p->output.action == OUTPUT_UNSET && c->p->output.rules.n > 0)
		diag_add(
			c->d, DIAG_ERROR, c->p->output.rules_pos, "output.rules", NULL,
			"no file sets output.action; write 'action: redact', block, report or off");
}

/* A filter without rules searches for secrets. */
static void finish_output(struct policy *p)
{
	static const char *secrets[] = { "secrets" };

	if (p->output.action != OUTPUT_OFF && p->output.rules.n == 0)
		p->output.rules = (struct text_list){ .v = secrets, .n = ARRAY_SIZE(secrets) };
}

static struct policy *policy_new(void)
{
	return calloc(1, sizeof(struct policy));
}

struct policy *policy_free(struct policy *p)
{
	if (p) {
		(void)ruleset_free(p->egress.rules);
		arena_done(&p->arena);
		free(p);
	}
	return NULL;
}

static void read_prices(struct compilation *c)
{
	const struct source *src = NULL;
	const struct yaml_node *root;
	struct policy_file *f;
	struct err e = ERR_INIT;
	int r = store_find(c->store, "prices", "llm", NULL, &src, &e);

	/* Without prices, a budget in dollars refuses every call: that is not an error here. */
	if (r == -ENOENT)
		return;
	if (r < 0)
		return diag_add(c->d, DIAG_ERROR, c->p->pos, "llm", NULL, "prices '%s' %s", "llm",
				e.msg);
	f = file_new(c, src, true);
	root = f ? tree_of(c, src) : NULL;
	if (root)
		policy_read(c->p, f, price_file_keys, root, c->d);
}

static void compile_agent(struct compilation *c, const struct source *src, bool by_name)
{
	if (read_chain(c, src, by_name) < 0)
		return;
	add_presets(c);
	check_output(c);
	policy_read_fallbacks(c->p, agent_keys, c->d);
	policy_finish_llm(c->p, c->d);
	policy_finish_secrets(c->p);
	if (c->p->llm.n > 0)
		read_prices(c);
	finish_output(c->p);
	make_rules(c);
	if (c->p->egress.rules)
		policy_lint(c->p, c->d);
}

static int compile_source(struct policy_store *store, const struct source *src, bool by_name,
			  struct diags *d, struct policy **ret, struct err *e)
{
	_cleanup_policy_ struct policy *p = policy_new();
	struct compilation c = { .store = store, .p = p, .d = d };
	int r;

	if (!p)
		return err_oom(e);
	compile_agent(&c, src, by_name);
	r = diags_outcome(d, src->label, e);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(p);
	return 0;
}

static bool is_path(const char *ref)
{
	return strchr(ref, '/') || str_has_suffix(ref, ".yaml");
}

/* Returns -EIO for an unreadable file: a wrong path is a failure, not the answer "no". */
static int read_path(struct policy_store *store, const char *path, const struct source **ret,
		     struct err *e)
{
	int r = store_read(store, path, ret, e);

	if (r < 0 && r != -ENOMEM)
		r = e->num = -EIO;
	return r;
}

static int find_agent(struct policy_store *store, const char *ref, const struct source **ret,
		      struct err *e)
{
	const char *const *known, *close = NULL;
	struct err ignored;
	int r;
	if (is_path(ref))
		return read_path(store, ref, ret, e);
	r = store_find(store, STORE_AGENTS, ref, NULL, ret, e);
	if (r == 0 || r == -ENOMEM)
		return r;
	if (r == -ENOENT && store_list(store, STORE_AGENTS, &known, &ignored) == 0)
		close = str_closest(ref, known);
	if (close)
		return err_set(e, r, "agent '%s' is not known; did you mean '%s'?", ref, close);
	return err_wrap(e, "agent '%s'", ref);
}

int policy_compile(struct policy_store *store, const char *ref, struct diags *d,
		   struct policy **ret, struct err *e)
{
	const struct source *src = NULL;
	int r = find_agent(store, ref, &src, e);

	return r < 0 ? r : compile_source(store, src, !is_path(ref), d, ret, e);
}

int policy_compile_text(struct policy_store *store, const char *label, const char *text, size_t len,
			struct diags *d, struct policy **ret, struct err *e)
{
	struct source *src = arena_alloc(&store->arena, sizeof(*src));

	if (!src)
		return err_oom(e);
	src->label = arena_strdup(&store->arena, label);
	src->text = arena_strndup(&store->arena, text, len);
	src->len = len;
	if (!src->label || !src->text)
		return err_oom(e);
	return compile_source(store, src, false, d, ret, e);
}

/* Kind of preset by the file's preset.kind; egress if that is missing or wrong. */
static enum preset_kind kind_of(const struct yaml_node *root)
{
	const struct yaml_node *head = yaml_get(root, "preset");
	const struct yaml_node *kind =
		head && head->kind == YAML_MAP ? yaml_get(head, "kind") : NULL;

	for (int i = 0; kind && kind->kind == YAML_SCALAR && i < PRESET_KIND_MAX; i++)
		if (str_eq(kind->text, preset_kind_names[i]))
			return (enum preset_kind)i;
	return PRESET_EGRESS;
}

static void validate_preset(struct compilation *c, const struct source *src,
			    const struct yaml_node *root)
{
	struct policy_file *f = file_new(c, src, true);

	if (f)
		read_preset(c, f, kind_of(root), root);
}

int policy_validate(struct policy_store *store, const char *path, struct diags *d, struct err *e)
{
	_cleanup_policy_ struct policy *p = policy_new();
	struct compilation c = { .store = store, .p = p, .d = d };
	const struct source *src = NULL;
	const struct yaml_node *root;
	struct diags scratch = { 0 };
	bool is_preset;
	int r;

	if (!p)
		return err_oom(e);
	r = read_path(store, path, &src, e);
	if (r < 0)
		return r;
	/* This pass only distinguishes agents from presets; the next one reports the errors. */
	root = yaml_read(&p->arena, src, &scratch);
	d->oom |= scratch.oom;
	diags_done(&scratch);
	if (d->oom)
		return err_oom(e);
	is_preset = root && root->kind == YAML_MAP && yaml_get(root, "preset");
	if (!is_preset)
		compile_agent(&c, src, false);
	else if ((root = tree_of(&c, src)))
		validate_preset(&c, src, root);
	return diags_outcome(d, path, e);
}

/* ---- heads, for lists ---- */

static const char *keep_text(struct policy_store *store, const char *s)
{
	return s ? arena_strdup(&store->arena, s) : NULL;
}

int policy_preset_head(struct policy_store *store, enum preset_kind kind, const char *name,
		       struct diags *d, struct policy_head *ret, struct err *e)
{
	_cleanup_policy_ struct policy *p = policy_new();
	struct compilation c = { .store = store, .p = p, .d = d };
	const struct source *src = NULL;
	const struct yaml_node *root;
	struct policy_head head;
	struct policy_file *f;
	int r;

	if (!p)
		return err_oom(e);
	r = store_find(store, preset_folder(kind), name, NULL, &src, e);
	if (r < 0)
		return r;
	root = tree_of(&c, src);
	f = root ? file_new(&c, src, true) : NULL;
	if (f)
		read_preset(&c, f, kind, root);
	r = diags_result(d);
	if (r < 0 || !f)
		return err_set(e, r < 0 ? r : -ENOMEM, "%s cannot be read", src->label);
	head = (struct policy_head){
		.name = keep_text(store, f->name),
		.summary = keep_text(store, f->summary),
		.risk = keep_text(store, f->risk),
		.label = src->label,
	};
	if (!head.name || !head.summary || (f->risk && !head.risk))
		return err_oom(e);
	*ret = head;
	return 0;
}
