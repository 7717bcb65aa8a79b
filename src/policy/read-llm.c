/* SPDX-License-Identifier: Apache-2.0 */
/* Reads `llm`: providers of models, which models, and budgets; and the file of prices. */
#include <string.h>

#include "base/str.h"
#include "llm/llm.h"
#include "policy/read.h"
#include "policy/reading.h"

enum {
	PRICES_MAX = 256,
};

static_assert((int)POLICY_MODEL_MAX == (int)LLM_MODEL_MAX, "hutch-tap takes every pattern");

/* How each provider takes its key, and the paths that need it. */
static const struct provider {
	const char *host, *header;
	const char *paths[8];
} providers[] = {
	[1 + LLM_ANTHROPIC] = { "api.anthropic.com",
				"x-api-key",
				{ "/v1/messages", "/v1/messages/count_tokens", "/v1/models/**" } },
	[1 + LLM_OPENAI] = { "api.openai.com",
			     NULL,
			     { "/v1/chat/completions", "/v1/completions", "/v1/embeddings",
			       "/v1/responses", "/v1/models/**" } },
	[1 + LLM_GEMINI] = { "generativelanguage.googleapis.com",
			     "x-goog-api-key",
			     { "/v1beta/models/**", "/v1/models/**", "/v1alpha/models/**" } },
	[1 + LLM_COMPATIBLE] = { 0 },
};

static_assert(ARRAY_SIZE(providers) == LLM_PROVIDERS + 1, "each provider has a row");

static void model_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
		       void *field)
{
	const char *s = reading_scalar(rd, n, "a model such as claude-*"), *why;
	struct text_list *list = field;

	if (!s)
		return;
	if (llm_pattern_check(s, n->len, &why) < 0)
		return reading_wrong(rd, n->pos, NULL, "'%.*s' is not the name of a model: %s",
				     READING_FOUND_MAX, s, why);
	if (reading_has_text(list, s))
		return reading_wrong(rd, n->pos, NULL, "'%s' is written twice", s);
	if (list->n == POLICY_MODELS_MAX)
		return reading_wrong(rd, n->pos, NULL, "more than %d models", POLICY_MODELS_MAX);
	reading_add_text(rd, list, s);
}

void read_model_list(struct reading *rd, const struct key *k, const struct yaml_node *n,
		     void *field)
{
	if (n->kind == YAML_LIST && !n->child)
		return reading_wrong(rd, n->pos, NULL,
				     "an empty list allows no model: remove the rule, or the key");
	reading_each_item(rd, k, n, field, model_item);
}

void read_members(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	if (!reading_is_kind(rd, n, YAML_MAP, key_type_expects(k->type)))
		return;
	yaml_foreach (v, n)
		reading_member(rd, k->keys, v, field);
	reading_check_required(rd, k->keys, n);
}

static void add_host(struct reading *rd, struct llm_rule *r, const char *text)
{
	struct secret_host *slot = list_slot(rd, &r->hosts);
	struct err ignored = ERR_INIT;
	struct name name;

	if (!slot || name_parse(text, strlen(text), &name, &ignored) < 0)
		return;
	*slot = (struct secret_host){ name, r->pos, 0 };
	r->hosts.n++;
}

static bool is_variable(const char *s)
{
	return !ascii_is_digit(s[0]) &&
	       s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")] ==
		       '\0';
}

static void llm_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
		     void *field)
{
	const struct yaml_node *secret;
	struct llm_list *list = field;
	struct llm_rule *slot;

	if (!reading_is_kind(rd, n, YAML_MAP, "a mapping such as {provider: anthropic}"))
		return;
	if (list->n == POLICY_LLM_MAX)
		return reading_wrong(rd, n->pos, NULL, "more than %d rules", POLICY_LLM_MAX);
	slot = list_slot(rd, list);
	if (!slot)
		return;
	secret = yaml_get(n, "secret");
	*slot = (struct llm_rule){ .pos = n->pos,
				   .secret_pos = secret ? secret->pos : n->pos,
				   .price = { .set = yaml_get(n, "price") },
				   .file = rd->f,
				   .index = rd->index };
	yaml_foreach (v, n)
		reading_member(rd, k->keys, v, slot);
	reading_check_required(rd, k->keys, n);
	if (slot->provider == 0)
		return; /* an error was reported */
	if (slot->secret && !is_variable(slot->secret))
		reading_wrong(rd, slot->secret_pos, NULL,
			      "'%.*s' is not the name of a secret, such as ANTHROPIC_API_KEY",
			      READING_FOUND_MAX, slot->secret);
	if (slot->hosts.n == 0 && providers[slot->provider].host)
		add_host(rd, slot, providers[slot->provider].host);
	else if (slot->hosts.n == 0)
		reading_wrong(rd, n->pos, NULL, "provider %s needs 'hosts': the server's name",
			      llm_words[slot->provider]);
	list->n++;
}

void read_llm_list(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	reading_each_item(rd, k, n, field, llm_item);
}

/* ---- the secrets of rules ---- */

static bool is_declared(const struct policy *p, const char *name)
{
	for (size_t i = 0; i < p->secrets.n; i++)
		if (str_eq(p->secrets.v[i].name, name))
			return true;
	return false;
}

static void bind(struct reading *rd, const struct llm_rule *r)
{
	const struct provider *p = &providers[r->provider];
	struct secret *slot, s = { .name = r->secret,
				   .pos = r->secret_pos,
				   .hosts = r->hosts,
				   .form = p->header ? AUTH_HEADER : AUTH_BEARER,
				   .header = { .text = p->header } };

	if (rd->p->secrets.n == POLICY_SECRETS_MAX)
		return diag_add(rd->d, DIAG_ERROR, r->secret_pos, "llm", NULL,
				"more than %d secrets", POLICY_SECRETS_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(p->paths) && p->paths[i]; i++)
		reading_add_text(rd, &s.paths, p->paths[i]);
	slot = list_slot(rd, &rd->p->secrets);
	if (!slot)
		return;
	*slot = s;
	rd->p->secrets.n++;
}

void policy_finish_llm(struct policy *p, struct diags *d)
{
	struct reading rd = { .p = p, .d = d };

	for (size_t i = 0; i < p->llm.n; i++)
		if (p->llm.v[i].secret && !is_declared(p, p->llm.v[i].secret))
			bind(&rd, &p->llm.v[i]);
}

/* ---- prices ---- */

static void price_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
		       void *field)
{
	struct price_list *list = field;
	struct price *slot;

	if (!reading_is_kind(rd, n, YAML_MAP,
			     "a mapping such as {model: claude-*, input: 3000000}"))
		return;
	if (list->n == PRICES_MAX)
		return reading_wrong(rd, n->pos, NULL, "more than %d prices", PRICES_MAX);
	slot = list_slot(rd, list);
	if (!slot)
		return;
	*slot = (struct price){ 0 };
	yaml_foreach (v, n)
		reading_member(rd, k->keys, v, slot);
	reading_check_required(rd, k->keys, n);
	list->n += slot->model != NULL;
}

void read_price_list(struct reading *rd, const struct key *k, const struct yaml_node *n,
		     void *field)
{
	reading_each_item(rd, k, n, field, price_item);
}
