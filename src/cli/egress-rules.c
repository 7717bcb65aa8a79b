/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/egress-rules.h"

#include <string.h>

#include "base/str.h"
#include "egress/check.h"

enum {
	LIVE_MAX = 4096, /* maximum of added rules that a keeper accepts */
	SEEN_MAX = 1000, /* names that resolved to a bad address */
};

void egress_rules_done(struct egress_rules *r)
{
	sandbox_close(&r->b);
	spec_done(&r->spec);
	free(r->v);
	free(r->times);
	free(r->seen);
	narrow_done(&r->narrow);
	narrow_done(&r->next);
	(void)ruleset_free(r->set);
}

bool egress_same_host(const struct target *a, const struct target *b)
{
	if (a->is_addr != b->is_addr)
		return false;
	return a->is_addr ? memcmp(&a->addr, &b->addr, sizeof(a->addr)) == 0
			  : str_eq(a->name.text, b->name.text);
}

/* Records write an IPv6 address in brackets, as rules do. */
int egress_host(const char *text, struct target *ret)
{
	struct err ignored = ERR_INIT;
	struct rule rule;

	if (rule_parse(text, strlen(text), &rule, &ignored) < 0 || rule.kind == RULE_SUBTREE ||
	    rule.port != 0)
		return -EINVAL;
	*ret = (struct target){ .is_addr = rule.kind == RULE_ADDR };
	ret->name = rule.name;
	ret->addr = rule.addr;
	return 0;
}

static int take_list(struct egress_rules *r, const struct spec_list *list, bool deny, struct err *e)
{
	for (size_t i = 0; i < list->n; i++) {
		struct ruleset_entry entry = { .deny = deny, .id = (uint32_t)r->n };

		if (rule_parse(list->v[i], strlen(list->v[i]), &entry.rule, e) < 0)
			return err_wrap(e, "the spec of '%s'", r->b.id);
		r->v[r->n++] = entry;
	}
	return 0;
}

/* ---- changes at run time ---- */

/* A rule replaces an earlier added one for the same host and port. */
static void take_rule(struct egress_rules *r, const struct egress_event *ev)
{
	const char *text = egress_text(ev->o, "rule");
	struct ruleset_entry entry = { .deny = str_eq(egress_text(ev->o, "change"), "deny") };
	struct err ignored = ERR_INIT;
	size_t i = r->n_policy;

	if (rule_parse(text, strlen(text), &entry.rule, &ignored) < 0)
		return;
	while (i < r->n && !rule_same_place(&r->v[i].rule, &entry.rule))
		i++;
	if (i == r->n_policy + LIVE_MAX || r->times[i] > ev->time)
		return;
	entry.id = (uint32_t)i;
	r->v[i] = entry;
	r->times[i] = ev->time;
	r->n = MAX(r->n, i + 1);
}

/* A long narrowing spans several records; it replaces the previous one. */
static int take_narrow(struct egress_rules *r, const struct egress_event *ev)
{
	uint64_t first = egress_number(ev->o, "first"), n = egress_number(ev->o, "rules");
	struct err e = ERR_INIT;
	char key[24];
	uint64_t i = first;

	if (ev->time < r->narrowed)
		return 0;
	if (first == 0)
		narrow_done(&r->next);
	for (; i < n; i++) {
		const char *text;

		(void)snprintf(key, sizeof(key), "rule%llu", (unsigned long long)i);
		text = egress_text(ev->o, key);
		if (!text[0])
			break;
		if (narrow_add(&r->next, text, strlen(text), &e) < 0)
			return e.num;
	}
	if (i < n)
		return 0;
	narrow_done(&r->narrow);
	r->narrow = r->next;
	r->next = (struct narrow){ 0 };
	r->narrowed = ev->time;
	return 0;
}

static struct egress_seen_address *find_seen(const struct egress_rules *r, const struct target *t)
{
	for (size_t i = 0; i < r->n_seen; i++)
		if (r->seen[i].t.port == t->port && egress_same_host(&r->seen[i].t, t))
			return &r->seen[i];
	return NULL;
}

/* Remembers the result of a name that ever resolved to a forbidden address. */
static int take_outcome(struct egress_rules *r, const struct egress_event *ev)
{
	bool bad = str_eq(egress_text(ev->o, "verdict"), "deny") &&
		   why_parse(egress_text(ev->o, "reason")) == WHY_ADDRESS;
	bool good =
		str_eq(egress_text(ev->o, "verdict"), "end") && egress_text(ev->o, "address")[0];
	uint64_t port = egress_number(ev->o, "port");
	struct egress_seen_address *s;
	struct target t;

	if ((!bad && !good) || port > UINT16_MAX || egress_host(egress_text(ev->o, "host"), &t) < 0)
		return 0;
	t.port = (uint16_t)port;
	s = find_seen(r, &t);
	if (!s && bad && r->n_seen < SEEN_MAX) {
		s = reallocarray(r->seen, r->n_seen + 1, sizeof(*s));
		if (!s)
			return -ENOMEM;
		r->seen = s;
		s = &r->seen[r->n_seen++];
		*s = (struct egress_seen_address){ .t = t };
	}
	if (!s || s->time > ev->time)
		return 0;
	s->time = ev->time;
	(void)snprintf(s->detail, sizeof(s->detail), "%s", bad ? egress_text(ev->o, "detail") : "");
	return 0;
}

static int on_event(const struct egress_event *ev, void *arg)
{
	const char *change = egress_text(ev->o, "change");

	if (ev->kind == AUDIT_EGRESS)
		return take_outcome(arg, ev);
	if (ev->kind != AUDIT_POLICY || !change[0])
		return 0;
	if (str_eq(change, "narrow"))
		return take_narrow(arg, ev);
	take_rule(arg, ev);
	return 0;
}

static int read_changes(struct egress_rules *r, struct err *e)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_egress_reader_ struct egress_reader reader = { .sandbox = r->b.id,
								.event = on_event,
								.arg = r };
	int rc = audit_open(&l, e);

	if (rc < 0 || l.off)
		return rc;
	rc = egress_read(&reader, &l, e);
	/* Only a log of an older version lacks the end of a narrowing. */
	if (rc == 0 && narrow_text(&r->next, 0, (char[NARROW_TEXT_MAX]){ 0 }))
		rc = err_set(e, -ENODATA,
			     "the log holds only a part of what an API client narrowed '%s' to",
			     r->b.id);
	return rc;
}

static int make_set(struct egress_rules *r)
{
	_cleanup_free_ struct ruleset_entry *left = NULL;
	size_t n = 0;
	int rc = narrow_apply(&r->narrow, r->v, r->n, &left, &n);

	return rc < 0 ? rc : ruleset_new(left, n, &r->set);
}

int egress_rules_open(const char *id, struct egress_rules *r, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	const struct spec_list *narrow = &r->spec.egress.narrow;
	size_t n;

	if (state_root_open(&root, e) < 0 || sandbox_find(&root, id, &r->b, e) < 0 ||
	    spec_read(r->b.dir, &r->spec, e) < 0)
		return e->num;
	n = r->spec.egress.allow.n + r->spec.egress.deny.n + LIVE_MAX;
	r->v = calloc(n, sizeof(r->v[0]));
	r->times = calloc(n, sizeof(r->times[0]));
	if (!r->v || !r->times)
		return err_oom(e);
	if (take_list(r, &r->spec.egress.allow, false, e) < 0 ||
	    take_list(r, &r->spec.egress.deny, true, e) < 0)
		return e->num;
	r->n_policy = r->n;
	for (size_t i = 0; i < narrow->n; i++)
		if (narrow_add(&r->narrow, narrow->v[i], strlen(narrow->v[i]), e) < 0)
			return err_wrap(e, "the spec of '%s'", r->b.id);
	if (read_changes(r, e) < 0)
		return e->num;
	return make_set(r) < 0 ? err_oom(e) : 0;
}

/* ---- why ---- */

/* The rules allow it; checks whether its address may be dialled. */
static void check_address(const struct egress_rules *r, const struct target *t,
			  struct egress_why *w)
{
	const struct egress_seen_address *s = t->is_addr ? NULL : find_seen(r, t);
	const char *bad = t->is_addr	      ? check_literal(&t->addr)
			  : s && s->detail[0] ? s->detail
					      : NULL;

	/* Results from before the rule was added do not apply to it. */
	if (!bad || (s && s->time < r->times[w->x.verdict.allow->id]))
		return;
	w->why = WHY_ADDRESS;
	w->detail = bad;
	w->seen = s ? s->time : 0;
}

int egress_explain(const struct egress_rules *r, struct policy_store *store, const struct target *t,
		   struct egress_why *ret, struct err *e)
{
	const struct why_rules rules = { r->v, r->n_policy, r->n - r->n_policy, &r->narrow };
	struct egress_why w = { .detail = "" };
	int rc = policy_explain_rules(r->set, store, t, &w.x, e);

	if (rc < 0)
		return rc;
	if (r->spec.egress.allow.n == 0)
		w.why = WHY_NO_NETWORK;
	else if (!w.x.verdict.allowed)
		w.why = why_denied(&rules, t);
	else
		check_address(r, t, &w);
	*ret = w;
	return 0;
}
