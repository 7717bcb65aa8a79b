/* SPDX-License-Identifier: Apache-2.0 */
/* Checks `llm`: two rules for one host, hosts that the egress rules do not allow, secrets that are
 * not bound to the rule's hosts. */
#include <string.h>

#include "base/str.h"
#include "policy/lint.h"

static const char *key_of(const struct llm_rule *r, char out[static 64])
{
	(void)snprintf(out, 64, "llm[%u]", r->index);
	return out;
}

static const struct llm_rule *rule_of(const struct policy *p, size_t n, const struct name *host)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < p->llm.v[i].hosts.n; k++)
			if (str_eq(p->llm.v[i].hosts.v[k].name.text, host->text))
				return &p->llm.v[i];
	return NULL;
}

static void lint_host(const struct policy *p, size_t i, const struct secret_host *h,
		      struct diags *d)
{
	const struct rule host = { .kind = RULE_NAME, .name = h->name };
	const struct llm_rule *r = &p->llm.v[i], *other = rule_of(p, i, &h->name);
	const struct rule *around = policy_way_around(p, &host);
	char key[64], text[RULE_TEXT_MAX];

	(void)key_of(r, key);
	if (other)
		diag_add(d, DIAG_ERROR, r->pos, key, "put the models into one rule",
			 "%s has a rule already, at %s:%u", h->name.text, other->pos.src->label,
			 other->pos.line);
	if (!ruleset_knows(p->egress.rules, &h->name))
		diag_add(d, DIAG_WARNING, r->pos, key, "add the host to egress.domains",
			 "never applies: the egress rules do not allow %s", h->name.text);
	if (around)
		diag_add(d, DIAG_ERROR, r->pos, key, NULL,
			 "does not hold: '%s' allows the host without inspection",
			 rule_format(around, text));
}

static bool is_bound(const struct secret *s, const struct name *host)
{
	for (size_t i = 0; i < s->hosts.n; i++)
		if (str_eq(s->hosts.v[i].name.text, host->text))
			return true;
	return false;
}

static void lint_secret(const struct policy *p, const struct llm_rule *r, struct diags *d)
{
	char key[64];

	for (size_t i = 0; i < p->secrets.n; i++)
		for (size_t k = 0; k < r->hosts.n && str_eq(p->secrets.v[i].name, r->secret); k++)
			if (!is_bound(&p->secrets.v[i], &r->hosts.v[k].name))
				diag_add(d, DIAG_ERROR, r->secret_pos, key_of(r, key), NULL,
					 "secret %s is declared under 'secrets', but not for %s: "
					 "add the host there, or remove the declaration",
					 r->secret, r->hosts.v[k].name.text);
}

void policy_lint_llm(const struct policy *p, struct diags *d)
{
	for (size_t i = 0; i < p->llm.n; i++) {
		const struct llm_rule *r = &p->llm.v[i];

		for (size_t k = 0; k < r->hosts.n; k++)
			lint_host(p, i, &r->hosts.v[k], d);
		if (r->secret)
			lint_secret(p, r, d);
	}
}
