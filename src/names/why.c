/* SPDX-License-Identifier: Apache-2.0 */
#include "names/why.h"

#include "base/str.h"

static const char *const texts[] = {
	[WHY_ALLOWED] = "",
	[WHY_NO_NETWORK] = "the sandbox has no network: its policy allows nothing",
	[WHY_POLICY] = "not allowed by the policy",
	[WHY_ADDED] = "denied by a rule added while the sandbox ran",
	[WHY_NARROWED] = "narrowed by an API client",
	[WHY_ADDRESS] = "no address that may be dialled",
};

static_assert(ARRAY_SIZE(texts) == WHY_MAX, "words for every reason");

const char *why_text(enum why w)
{
	return texts[w];
}

enum why why_parse(const char *text)
{
	for (enum why w = WHY_ALLOWED + 1; w < WHY_MAX; w++)
		if (str_eq(text, texts[w]))
			return w;
	return WHY_ALLOWED;
}

static bool allows(const struct ruleset_entry *v, size_t n, const struct target *t)
{
	_cleanup_ruleset_ struct ruleset *s = NULL;

	if (ruleset_new(v, n, &s) < 0)
		return false;
	return t->port == 0 ? !t->is_addr && ruleset_knows(s, &t->name)
			    : ruleset_check(s, t).allowed;
}

enum why why_denied(const struct why_rules *r, const struct target *t)
{
	const struct narrow *w = r->narrow;

	if ((w->only || w->n_deny > 0) && allows(r->v, r->n_policy + r->n_added, t))
		return WHY_NARROWED;
	return r->n_added > 0 && allows(r->v, r->n_policy, t) ? WHY_ADDED : WHY_POLICY;
}
