/* SPDX-License-Identifier: Apache-2.0 */
/* Checks egress.http: rules that contradict themselves, that never apply, or that another one
 * makes pointless. */
#include <string.h>

#include "base/str.h"
#include "policy/lint.h"

/* Is every name of `inner` a name of `outer`? */
static bool host_within(const struct rule *inner, const struct rule *outer)
{
	const char *tail;

	if (inner->name.len < outer->name.len ||
	    (inner->kind == RULE_SUBTREE && outer->kind != RULE_SUBTREE))
		return false;
	tail = inner->name.text + inner->name.len - outer->name.len;
	if (!str_eq(tail, outer->name.text))
		return false;
	return tail == inner->name.text || (outer->kind == RULE_SUBTREE && tail[-1] == '.');
}

static bool has_all(const struct text_list *outer, const struct text_list *inner)
{
	if (outer->n == 0)
		return true;
	for (size_t i = 0; i < inner->n; i++) {
		size_t k = 0;

		while (k < outer->n && !str_eq(outer->v[k], inner->v[i]))
			k++;
		if (k == outer->n)
			return false;
	}
	return inner->n > 0;
}

static bool is_everything(const struct text_list *paths)
{
	for (size_t i = 0; i < paths->n; i++)
		if (str_eq(paths->v[i], "/**"))
			return true;
	return paths->n == 0;
}

/* Does `outer` match every request that `inner` matches? Compares patterns as texts. */
static bool covers(const struct http_rule *outer, const struct http_rule *inner)
{
	return host_within(&inner->host, &outer->host) &&
	       has_all(&outer->methods, &inner->methods) &&
	       (is_everything(&outer->paths) || has_all(&outer->paths, &inner->paths));
}

static const char *key_of(const struct http_rule *r, char out[static 64])
{
	(void)snprintf(out, 64, "%shttp[%u]", r->file->is_preset ? "" : "egress.", r->index);
	return out;
}

/* Does an egress rule allow some name of this host? */
static bool is_allowed(const struct policy *p, const struct rule *host)
{
	const struct ruleset_entry *v;
	size_t n;

	if (host->kind == RULE_NAME)
		return ruleset_knows(p->egress.rules, &host->name);
	v = ruleset_entries(p->egress.rules, &n);
	for (size_t i = 0; i < n; i++)
		if (!v[i].deny && v[i].rule.kind != RULE_ADDR &&
		    (host_within(&v[i].rule, host) || host_within(host, &v[i].rule)))
			return true;
	return false;
}

/* Ports that carry requests: no other protocol is meant there. */
static bool is_web(uint16_t port)
{
	return port == 80 || port == 443 || port == 8080;
}

const struct rule *policy_way_around(const struct policy *p, const struct rule *host)
{
	const struct ruleset_entry *v;
	size_t n;

	v = ruleset_entries(p->egress.rules, &n);
	for (size_t i = 0; i < n; i++) {
		const struct rule *r = &v[i].rule;
		struct target t = { .port = r->port, .name = host->name };
		struct verdict verdict;

		if (v[i].deny || r->kind == RULE_ADDR || r->proto != RULE_PROTO_TCP ||
		    !is_web(r->port))
			continue;
		if (host->kind == RULE_SUBTREE && host_within(r, host))
			t.name = r->name;
		verdict = ruleset_check(p->egress.rules, &t);
		if (verdict.allowed && rule_proto(&verdict.allow->rule) == RULE_PROTO_TCP)
			return &verdict.allow->rule;
	}
	return NULL;
}

/* Finds the rule that makes rule `i` pointless: an earlier one of its kind, or any that denies. */
static const struct http_rule *pointless_by(const struct http_list *list, size_t i)
{
	const struct http_rule *r = &list->v[i];

	for (size_t k = 0; k < list->n; k++) {
		const struct http_rule *other = &list->v[k];

		if (k != i && (other->deny ? !r->deny || k < i : !r->deny && k < i) &&
		    covers(other, r))
			return other;
	}
	return NULL;
}

static void lint_rule(const struct policy *p, size_t i, struct diags *d)
{
	const struct http_rule *r = &p->egress.http.v[i], *other;
	const struct rule *around = policy_way_around(p, &r->host);
	char key[64], host[RULE_TEXT_MAX];

	(void)key_of(r, key);
	if (r->deny && (r->max_body > 0 || r->rate > 0))
		diag_add(d, DIAG_ERROR, r->pos, key, NULL,
			 "a deny rule has no %s: it allows nothing",
			 r->max_body > 0 ? "max_body" : "rate");
	if (!is_allowed(p, &r->host) && !r->file->is_preset)
		diag_add(d, DIAG_WARNING, r->pos, key, "add the host to egress.domains",
			 "never applies: the egress rules do not allow %s",
			 rule_format_host(&r->host, host));
	if (around)
		diag_add(d, DIAG_ERROR, r->pos, key, NULL,
			 "does not hold: '%s' allows the host without inspection",
			 rule_format(around, host));
	other = pointless_by(&p->egress.http, i);
	if (other && !r->file->is_preset)
		diag_add(d, DIAG_WARNING, r->pos, key, NULL, "never decides: %s:%u %s all of it",
			 other->pos.src->label, other->pos.line,
			 other->deny ? "denies" : "already allows");
}

void policy_lint_http(const struct policy *p, struct diags *d)
{
	for (size_t i = 0; i < p->egress.http.n; i++)
		lint_rule(p, i, d);
}
