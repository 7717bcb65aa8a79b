/* SPDX-License-Identifier: Apache-2.0 */
/* Explains why a target is allowed or denied, and what would allow it. */
#include <string.h>

#include "base/str.h"
#include "policy/policy.h"

/* Finds ports on which the host of `t` is allowed, among the ports that the rules name. */
static void find_ports(const struct ruleset *rules, const struct target *t, struct explanation *x)
{
	struct target other = *t;
	const struct ruleset_entry *v;
	size_t n;

	v = ruleset_entries(rules, &n);
	for (size_t i = 0; i < n && x->n_ports < EXPLAIN_MAX; i++) {
		bool known = v[i].rule.port == 0;

		for (size_t j = 0; j < x->n_ports; j++)
			known |= x->ports[j] == v[i].rule.port;
		other.port = v[i].rule.port;
		if (!known && ruleset_check(rules, &other).allowed)
			x->ports[x->n_ports++] = other.port;
	}
}

/* Would an agent with only this preset be allowed? */
static int preset_allows(struct policy_store *store, const char *name, const struct target *t,
			 bool *ret, struct err *e)
{
	_cleanup_policy_ struct policy *p = NULL;
	_cleanup_diags_ struct diags d = { 0 };
	char text[256];
	int r;

	(void)snprintf(text, sizeof(text), "agent: {name: x, type: x}\negress: {presets: [%s]}\n",
		       name);
	r = policy_compile_text(store, "(explain)", text, strlen(text), &d, &p, e);
	if (r == -ENOMEM)
		return r;
	*ret = r == 0 && ruleset_check(p->egress.rules, t).allowed;
	return 0;
}

static int find_presets(struct policy_store *store, const struct target *t, struct explanation *x,
			struct err *e)
{
	const char *const *names = NULL;
	int r = store_list(store, preset_folder(PRESET_EGRESS), &names, e);

	for (size_t i = 0; r == 0 && names[i] && x->n_presets < EXPLAIN_MAX; i++) {
		bool allows = false;

		r = preset_allows(store, names[i], t, &allows, e);
		if (r == 0 && allows)
			x->presets[x->n_presets++] = names[i];
	}
	return r;
}

int policy_explain_rules(const struct ruleset *rules, struct policy_store *store,
			 const struct target *t, struct explanation *ret, struct err *e)
{
	struct explanation x = { .verdict = ruleset_check(rules, t) };
	int r = 0;

	if (!x.verdict.deny && !x.verdict.allow) {
		find_ports(rules, t, &x);
		r = find_presets(store, t, &x, e);
	}
	if (r == 0)
		*ret = x;
	return r;
}

int policy_explain(const struct policy *p, struct policy_store *store, const struct target *t,
		   struct explanation *ret, struct err *e)
{
	int r = policy_explain_rules(p->egress.rules, store, t, ret, e);

	if (r == 0 && ret->verdict.deny)
		ret->deny = &p->egress.list.origin[ret->verdict.deny->id];
	if (r == 0 && ret->verdict.allow)
		ret->allow = &p->egress.list.origin[ret->verdict.allow->id];
	return r;
}
