/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch egress explain, allow, deny, suggest: the rules of a sandbox. Those of its policy stand in
 * its spec; those that were added while it ran are in its chain of the audit log, which the keeper
 * wrote before it took them.
 */
#include <string.h>

#include "cli-sandbox.h"
#include "clock.h"
#include "egress-log.h"
#include "str.h"
#include "transfer.h"
#include "view.h"

enum {
	PORT_DEFAULT = 443,
	LIVE_MAX = 4096, /* rules that can have been added: as many as a keeper takes */
};

/* ---- the rules of a sandbox ---- */

struct rules {
	struct sandbox b;
	struct spec spec;
	struct ruleset_entry
		*v;	 /* of the policy, then those that were added; .id: the place here */
	uint64_t *times; /* when one of those was, by its place; 0: of the policy */
	size_t n, n_policy;
	struct ruleset *set;
};

#define RULES_INIT                \
	{                         \
		.b = SANDBOX_INIT \
	}
#define _cleanup_rules_ _cleanup_(rules_done)

static void rules_done(struct rules *r)
{
	sandbox_close(&r->b);
	spec_done(&r->spec);
	free(r->v);
	free(r->times);
	(void)ruleset_free(r->set);
}

static int take_list(struct rules *r, const struct spec_list *list, bool deny, struct err *e)
{
	for (size_t i = 0; i < list->n; i++) {
		struct ruleset_entry entry = { .deny = deny, .id = (uint32_t)r->n };

		if (rule_parse(list->v[i], strlen(list->v[i]), &entry.rule, e) < 0)
			return err_wrap(e, "the spec of '%s'", r->b.id);
		r->v[r->n++] = entry;
	}
	return 0;
}

/* A rule takes the place of what was added about the same before. */
static int on_change(const struct egress_event *ev, void *arg)
{
	const char *text = egress_text(ev->o, "rule");
	struct ruleset_entry entry = { .deny = str_eq(egress_text(ev->o, "change"), "deny") };
	char one[RULE_TEXT_MAX], other[RULE_TEXT_MAX];
	struct err ignored = ERR_INIT;
	struct rules *r = arg;
	size_t i = r->n_policy;

	if (ev->kind != AUDIT_POLICY || !egress_text(ev->o, "change")[0] ||
	    rule_parse(text, strlen(text), &entry.rule, &ignored) < 0)
		return 0;
	while (i < r->n &&
	       !str_eq(rule_format(&r->v[i].rule, one), rule_format(&entry.rule, other)))
		i++;
	if (i == r->n_policy + LIVE_MAX)
		return 0;
	entry.id = (uint32_t)i;
	r->v[i] = entry;
	r->times[i] = ev->time;
	r->n = MAX(r->n, i + 1);
	return 0;
}

static int read_changes(struct rules *r, struct err *e)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_egress_reader_ struct egress_reader reader = { .sandbox = r->b.id,
								.event = on_change,
								.arg = r };

	if (audit_open(&l, e) < 0)
		return e->num;
	return l.off ? 0 : egress_read(&reader, &l, e);
}

static int rules_read(struct rules *r, struct err *e)
{
	size_t n;

	if (spec_read(r->b.dir, &r->spec, e) < 0)
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
	if (read_changes(r, e) < 0)
		return e->num;
	return ruleset_new(r->v, r->n, &r->set) < 0 ? err_oom(e) : 0;
}

static int rules_open(const char *id, struct rules *r, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;

	if (state_root_open(&root, e) < 0 || sandbox_find(&root, id, &r->b, e) < 0)
		return e->num;
	return rules_read(r, e);
}

/* ---- explain ---- */

static void print_rule(const struct rules *r, const struct ruleset_entry *entry, const char *title)
{
	char text[RULE_TEXT_MAX], time[CLOCK_RFC3339_MAX];

	assert(r->times);
	(void)printf("  %-8s %s%s\n", title, rule_format(&entry->rule, text),
		     entry->rule.port == 0 ? ", on every port" : "");
	if (r->times[entry->id] == 0)
		(void)printf("  from     the policy of agent %s\n", r->spec.agent);
	else
		(void)printf("  from     'hutch egress %s', at %s\n", title,
			     clock_format(r->times[entry->id], time));
}

static void print_why_not(const struct rules *r, const struct explanation *x)
{
	if (r->spec.egress.allow.n == 0) {
		(void)fputs("  because  the policy allows nothing: this sandbox has no way out at "
			    "all, and gets none while it runs\n",
			    stdout);
		return;
	}
	(void)fputs("  because  no rule names it\n", stdout);
	view_alternatives(x);
	(void)printf("  to allow hutch egress allow %s NAME:PORT\n", r->b.id);
}

static void print_explanation(const struct invocation *inv, const struct rules *r, const char *what,
			      const struct explanation *x)
{
	const struct verdict *v = &x->verdict;

	(void)printf("%s%s%s  %s\n", cli_style(inv, v->allowed ? "\033[1;32m" : "\033[1;31m"),
		     v->allowed ? "allowed" : "denied ", cli_style(inv, "\033[0m"), what);
	if (v->deny)
		print_rule(r, v->deny, "deny");
	if (v->deny && v->allow)
		(void)fputs("  which wins over\n", stdout);
	if (v->allow)
		print_rule(r, v->allow, "allow");
	if (!v->deny && !v->allow)
		print_why_not(r, x);
}

static json_t *rule_json(const struct rules *r, const struct ruleset_entry *entry)
{
	char text[RULE_TEXT_MAX], time[CLOCK_RFC3339_MAX];

	if (!entry)
		return json_null();
	assert(r->times);
	return JSON_OBJECT({ "rule", json_string(rule_format(&entry->rule, text)) },
			   { "added", r->times[entry->id]
					      ? json_string(clock_format(r->times[entry->id], time))
					      : json_null() });
}

static json_t *explanation_json(const struct rules *r, const char *what,
				const struct explanation *x)
{
	json_t *ports = json_array();

	for (size_t i = 0; i < x->n_ports; i++)
		(void)json_push(ports, json_integer(x->ports[i]));
	return JSON_OBJECT({ "target", json_string(what) },
			   { "allowed", json_boolean(x->verdict.allowed) },
			   { "way_out", json_boolean(r->spec.egress.allow.n > 0) },
			   { "deny", rule_json(r, x->verdict.deny) },
			   { "allow", rule_json(r, x->verdict.allow) }, { "allowed_ports", ports },
			   { "presets", json_texts(x->presets, x->n_presets) });
}

int cmd_egress_explain(struct invocation *inv)
{
	_cleanup_default_store_ struct default_store s = { 0 };
	_cleanup_rules_ struct rules r = RULES_INIT;
	char host[ADDR_TEXT_MAX], what[RULE_TEXT_MAX + 8];
	struct err e = ERR_INIT;
	struct explanation x;
	struct target t;
	int code;

	if (target_parse(inv->args[1], strlen(inv->args[1]), &t, &e) < 0)
		return cli_usage(inv, "'%s': %s", inv->args[1], e.msg);
	if (rules_open(inv->args[0], &r, &e) < 0 || cli_store_open(&s, inv, &e) < 0 ||
	    policy_explain_rules(r.set, &s.store, &t, &x, &e) < 0)
		return cli_fail(inv, &e);
	(void)snprintf(what, sizeof(what), "%s:%u",
		       t.is_addr ? addr_format(&t.addr, host) : t.name.text, t.port);
	code = x.verdict.allowed ? EXIT_OK : EXIT_NO;
	if (cli_option(inv, "json"))
		return cli_print_json(explanation_json(&r, what, &x), code);
	print_explanation(inv, &r, what, &x);
	return code;
}

/* ---- allow, deny ---- */

/* What the compiler says of the rule in a file: a public suffix, an address of the own network. */
static int lint(const struct invocation *inv, const char *rule, struct err *e)
{
	_cleanup_default_store_ struct default_store s = { 0 };
	_cleanup_policy_ struct policy *p = NULL;
	_cleanup_diags_ struct diags d = { 0 };
	char text[RULE_TEXT_MAX + 64];
	int r = cli_store_open(&s, inv, e);

	(void)snprintf(text, sizeof(text),
		       "agent: {name: x, type: x}\negress: {domains: [\"%s\"]}\n", rule);
	if (r == 0)
		r = policy_compile_text(&s.store, "(rule)", text, strlen(text), &d, &p, e);
	for (size_t i = 0; i < d.n; i++) {
		(void)fprintf(stderr, "%s: %s: ", inv->path,
			      d.list[i].level == DIAG_ERROR ? "error" : "warning");
		cli_puts(stderr, d.list[i].text);
		(void)fputc('\n', stderr);
	}
	return r;
}

static bool has_route(const struct rules *r, const struct addr *a)
{
	for (size_t i = 0; i < r->n_policy; i++)
		if (!r->v[i].deny && r->v[i].rule.kind == RULE_ADDR &&
		    r->v[i].rule.addr.prefix <= a->prefix && addr_within(a, &r->v[i].rule.addr))
			return true;
	return false;
}

/* The rule holds; what else is there to know of it? */
static int tell_effect(const struct invocation *inv, const struct rule *rule, const char *text,
		       struct err *e)
{
	struct target t = { rule->kind == RULE_ADDR, rule->port, rule->name, rule->addr };
	_cleanup_rules_ struct rules r = RULES_INIT;
	const struct ruleset_entry *deny;
	char other[RULE_TEXT_MAX];

	if (rules_open(inv->args[0], &r, e) < 0)
		return e->num;
	if (rule->kind == RULE_ADDR && !has_route(&r, &rule->addr))
		(void)fprintf(stderr,
			      "%s: note: routes to addresses are made when a sandbox starts, so "
			      "programs in this one get to %s by its proxy only\n",
			      inv->path, text);
	deny = ruleset_check(r.set, &t).deny;
	if (!deny || (rule->kind == RULE_SUBTREE && deny->rule.kind != RULE_SUBTREE))
		return 0;
	(void)fprintf(stderr, "%s: '%s' stays denied: the rule '%s' denies it, and deny wins\n",
		      inv->path, text, rule_format(&deny->rule, other));
	return 1;
}

static int send_rule(const char *id, const char *rule, bool deny, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_transfer_ struct transfer t = TRANSFER_INIT(-EBADF);
	_cleanup_close_ int fd = -EBADF;
	int r;

	if (state_root_open(&root, e) < 0 || sandbox_find(&root, id, &b, e) < 0 ||
	    sandbox_connect(&b, &fd, e) < 0)
		return e->num;
	t.fd = fd;
	r = transfer_rule(&t, rule, deny, e);
	return r == -EREMOTEIO ? err_set(e, -EINVAL, "%s", t.text) : r;
}

int cmd_egress_allow(struct invocation *inv)
{
	char text[RULE_TEXT_MAX];
	struct err e = ERR_INIT;
	struct rule rule;
	int r;

	if (rule_parse(inv->args[1], strlen(inv->args[1]), &rule, &e) < 0)
		return cli_usage(inv, "'%s': %s", inv->args[1], e.msg);
	if (rule.port == 0) {
		rule.port = PORT_DEFAULT;
		(void)fprintf(stderr, "%s: no port is named: %d\n", inv->path, PORT_DEFAULT);
	}
	(void)rule_format(&rule, text);
	r = lint(inv, text, &e);
	if (r == 0)
		r = send_rule(inv->args[0], text, false, &e);
	if (r == 0)
		r = tell_effect(inv, &rule, text, &e);
	if (r < 0)
		return cli_fail(inv, &e);
	return r == 0 ? EXIT_OK : EXIT_NO;
}

int cmd_egress_deny(struct invocation *inv)
{
	char text[RULE_TEXT_MAX];
	struct err e = ERR_INIT;
	struct rule rule;

	if (rule_parse(inv->args[1], strlen(inv->args[1]), &rule, &e) < 0)
		return cli_usage(inv, "'%s': %s", inv->args[1], e.msg);
	if (send_rule(inv->args[0], rule_format(&rule, text), true, &e) < 0)
		return cli_fail(inv, &e);
	return EXIT_OK;
}

/* ---- suggest ---- */

struct wanted {
	char id[AUDIT_ID_MAX + 1];
	uint64_t time, count;
	struct target t; /* port 0: it got no further than a question for the name */
};

struct denials {
	struct wanted *v;
	size_t n;
};

enum {
	WANTED_MAX = 1000, /* names; more are not read by anybody */
};

static bool same_host(const struct target *a, const struct target *b)
{
	if (a->is_addr != b->is_addr)
		return false;
	return a->is_addr ? memcmp(&a->addr, &b->addr, sizeof(a->addr)) == 0
			  : str_eq(a->name.text, b->name.text);
}

static int want(struct denials *d, const struct egress_event *ev, const char *host, uint64_t port,
		uint64_t count)
{
	struct wanted w = { .time = ev->time, .count = count, .t.port = (uint16_t)port };
	struct err ignored = ERR_INIT;
	struct wanted *v;

	(void)snprintf(w.id, sizeof(w.id), "%s", ev->id);
	w.t.is_addr = addr_parse(host, strlen(host), &w.t.addr, &ignored) == 0;
	if (!w.t.is_addr && name_parse(host, strlen(host), &w.t.name, &ignored) < 0)
		return 0;
	for (size_t i = 0; i < d->n; i++)
		if (str_eq(d->v[i].id, w.id) && same_host(&d->v[i].t, &w.t) &&
		    (d->v[i].t.port == port || port == 0 || d->v[i].t.port == 0)) {
			if (w.t.port > 0)
				d->v[i].t.port = w.t.port;
			d->v[i].count += count;
			d->v[i].time = w.time;
			return 0;
		}
	if (d->n == WANTED_MAX)
		return 0;
	v = reallocarray(d->v, d->n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	d->v = v;
	v[d->n++] = w;
	return 0;
}

static int want_sum(struct denials *d, const struct egress_event *ev)
{
	json_t *key;
	size_t i;
	int r = 0;

	json_array_foreach(json_object_get(ev->o, "keys"), i, key)
	{
		const char *text = egress_text(key, "text"), *colon = strrchr(text, ':');
		_cleanup_free_ char *host = colon ? strndup(text, (size_t)(colon - text)) : NULL;
		uint64_t port = 0;

		if (r == 0 && host &&
		    str_to_u64(colon + 1, strlen(colon + 1), UINT16_MAX, &port) == 0)
			r = want(d, ev, host, port, egress_number(key, "count"));
	}
	return r;
}

/* What other reasons there are for a denial no rule would mend; sums do not tell theirs. */
static int on_denial(const struct egress_event *ev, void *arg)
{
	uint64_t port = egress_number(ev->o, "port");

	if (ev->kind == AUDIT_EGRESS_SUM)
		return want_sum(arg, ev);
	if (ev->kind != AUDIT_EGRESS || port > UINT16_MAX ||
	    !str_eq(egress_text(ev->o, "verdict"), "deny") ||
	    !str_eq(egress_text(ev->o, "reason"), "not allowed by the policy"))
		return 0;
	return want(arg, ev, egress_text(ev->o, "host"), port, 1);
}

/* Leaves what is of the sandbox that was denied something last. */
static void keep_last(struct denials *d)
{
	char id[AUDIT_ID_MAX + 1] = "";
	uint64_t last = 0;
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].time >= last) {
			last = d->v[i].time;
			memcpy(id, d->v[i].id, sizeof(id));
		}
	for (size_t i = 0; i < d->n; i++)
		if (str_eq(d->v[i].id, id))
			d->v[n++] = d->v[i];
	d->n = n;
}

static void print_presets(const struct explanation *x)
{
	for (size_t i = 0; i < x->n_presets; i++)
		(void)printf("%s%s", i == 0 ? "; or preset " : ", ", x->presets[i]);
}

static int suggest_one(struct default_store *s, const struct ruleset *base, const struct wanted *w,
		       struct err *e)
{
	struct target t = w->t;
	char host[ADDR_TEXT_MAX];
	struct explanation x;

	if (t.port == 0)
		t.port = PORT_DEFAULT;
	if (policy_explain_rules(base, &s->store, &t, &x, e) < 0)
		return e->num;
	(void)printf("    %s- \"%s:%u\"  # denied %llu time%s", x.verdict.deny ? "# " : "",
		     t.is_addr ? addr_format(&t.addr, host) : t.name.text, t.port,
		     (unsigned long long)w->count, w->count == 1 ? "" : "s");
	if (x.verdict.deny)
		(void)fputs("; a deny rule of every policy, which no rule overcomes", stdout);
	else if (w->t.port == 0)
		(void)fputs("; it never got to a port, 443 is a guess", stdout);
	print_presets(&x);
	(void)putchar('\n');
	return 0;
}

/* The floor, which is part of every policy, and nothing else. */
static int suggest_all(struct default_store *s, const struct denials *d, struct err *e)
{
	static const char text[] = "agent: {name: x, type: x}\n";
	_cleanup_policy_ struct policy *p = NULL;
	_cleanup_diags_ struct diags diags = { 0 };
	int r = policy_compile_text(&s->store, "(floor)", text, strlen(text), &diags, &p, e);

	if (r < 0)
		return r;
	(void)printf("# what sandbox %s was denied\negress:\n  domains:\n", d->v[0].id);
	for (size_t i = 0; r == 0 && i < d->n; i++)
		r = suggest_one(s, p->egress.rules, &d->v[i], e);
	return r;
}

int cmd_egress_suggest(struct invocation *inv)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_default_store_ struct default_store s = { 0 };
	struct denials d = { 0 };
	_cleanup_egress_reader_ struct egress_reader reader = {
		.sandbox = inv->n_args > 0 ? inv->args[0] : "", .event = on_denial, .arg = &d
	};
	struct err e = ERR_INIT;
	int r = audit_open(&l, &e);

	if (r == 0)
		r = egress_read(&reader, &l, &e);
	keep_last(&d);
	if (r == 0 && d.n == 0)
		(void)fputs("# nothing was denied\n", stdout);
	else if (r == 0)
		r = cli_store_open(&s, inv, &e);
	if (r == 0 && d.n > 0)
		r = suggest_all(&s, &d, &e);
	free(d.v);
	return r < 0 ? cli_fail(inv, &e) : EXIT_OK;
}
