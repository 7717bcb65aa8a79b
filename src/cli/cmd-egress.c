/* SPDX-License-Identifier: Apache-2.0 */
/* hutch egress explain, allow, deny: the rules of a sandbox */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/egress-rules.h"
#include "cli/view.h"
#include "client/transfer.h"

enum {
	PORT_DEFAULT = 443,
};

/* ---- explain ---- */

static void print_from(const struct egress_rules *r, const struct ruleset_entry *entry)
{
	char time[CLOCK_RFC3339_MAX];
	uint64_t when = entry->id < r->n ? r->times[entry->id] : r->narrowed;

	assert(r->times);
	if (entry->id >= r->n && when == 0)
		(void)puts("  from     an API client, when it made the sandbox");
	else if (entry->id >= r->n)
		(void)printf("  from     an API client, at %s\n", clock_format(when, time));
	else if (when == 0)
		(void)printf("  from     the policy of agent %s\n", r->spec.agent);
	else
		(void)printf("  from     'hutch egress %s', at %s\n",
			     entry->deny ? "deny" : "allow", clock_format(when, time));
}

static void print_rule(const struct egress_rules *r, const struct ruleset_entry *entry)
{
	char text[RULE_TEXT_MAX];

	(void)printf("  %-8s %s%s\n", entry->deny ? "deny" : "allow",
		     rule_format(&entry->rule, text),
		     entry->rule.port == 0 ? ", on every port" : "");
	print_from(r, entry);
}

/* Prints the reason in the words of the log, and what a person can do. */
static void print_because(const struct egress_rules *r, const struct egress_why *w,
			  const struct target *t)
{
	char time[CLOCK_RFC3339_MAX];
	bool unnamed = !w->x.verdict.deny && !w->x.verdict.allow;

	(void)printf("  because  %s%s", why_text(w->why), w->detail[0] ? ": " : "");
	cli_puts(stdout, w->detail);
	(void)puts(w->why == WHY_POLICY && unnamed ? ": no rule names it" : "");
	if (w->seen > 0)
		(void)printf("  seen     %s, when it was last looked up\n",
			     clock_format(w->seen, time));
	if (unnamed && w->why != WHY_NARROWED)
		view_alternatives(&w->x);
	if (w->why == WHY_NO_NETWORK)
		(void)puts("  to allow change the policy, and start another sandbox: this one gets "
			   "no network while it runs");
	else if (egress_wants_private(w, t))
		(void)printf(
			"  to allow hutch egress allow %s %s:%u/private, if it is meant to reach "
			"your own network\n",
			r->b.id, t->name.text, t->port);
	else if (w->why == WHY_POLICY && unnamed)
		(void)printf("  to allow hutch egress allow %s NAME:PORT\n", r->b.id);
}

static void print_explanation(const struct invocation *inv, const struct egress_rules *r,
			      const struct target *t, const char *what, const struct egress_why *w)
{
	const struct verdict *v = &w->x.verdict;
	bool allowed = w->why == WHY_ALLOWED;

	(void)printf("%s%s%s  %s\n", cli_style(inv, allowed ? "\033[1;32m" : "\033[1;31m"),
		     allowed ? "allowed" : "denied ", cli_style(inv, "\033[0m"), what);
	if (v->deny)
		print_rule(r, v->deny);
	if (v->deny && v->allow)
		(void)fputs("  which wins over\n", stdout);
	if (v->allow)
		print_rule(r, v->allow);
	if (!allowed)
		print_because(r, w, t);
}

static json_t *rule_json(const struct egress_rules *r, const struct ruleset_entry *entry)
{
	char text[RULE_TEXT_MAX], time[CLOCK_RFC3339_MAX];
	uint64_t when;

	if (!entry)
		return json_null();
	assert(r->times);
	when = entry->id < r->n ? r->times[entry->id] : r->narrowed;
	return JSON_OBJECT({ "rule", json_string(rule_format(&entry->rule, text)) },
			   { "added", when ? json_string(clock_format(when, time)) : json_null() });
}

static json_t *explanation_json(const struct egress_rules *r, const char *what,
				const struct egress_why *w)
{
	const struct explanation *x = &w->x;
	json_t *ports = json_array();

	for (size_t i = 0; i < x->n_ports; i++)
		(void)json_push(ports, json_integer(x->ports[i]));
	return JSON_OBJECT(
		{ "target", json_string(what) }, { "allowed", json_boolean(w->why == WHY_ALLOWED) },
		{ "reason", json_string(why_text(w->why)) }, { "detail", json_string(w->detail) },
		{ "way_out", json_boolean(w->why != WHY_NO_NETWORK) },
		{ "deny", rule_json(r, x->verdict.deny) },
		{ "allow", rule_json(r, x->verdict.allow) }, { "allowed_ports", ports },
		{ "presets", json_texts(x->presets, x->n_presets) });
}

static int run_egress_explain(struct invocation *inv)
{
	_cleanup_default_store_ struct default_store s = { 0 };
	_cleanup_egress_rules_ struct egress_rules r = EGRESS_RULES_INIT;
	char host[ADDR_TEXT_MAX], what[RULE_TEXT_MAX + 8];
	struct err e = ERR_INIT;
	struct egress_why w;
	struct target t;
	int code;

	if (target_parse(inv->args[1], strlen(inv->args[1]), &t, &e) < 0)
		return cli_usage(inv, "'%s': %s", inv->args[1], e.msg);
	if (egress_rules_open(inv->args[0], &r, &e) < 0 || cli_store_open(&s, inv, &e) < 0 ||
	    egress_explain(&r, &s.store, &t, &w, &e) < 0)
		return cli_fail(inv, &e);
	(void)snprintf(what, sizeof(what), "%s:%u",
		       t.is_addr ? addr_format(&t.addr, host) : t.name.text, t.port);
	code = w.why == WHY_ALLOWED ? EXIT_OK : EXIT_NO;
	if (cli_option(inv, "json"))
		return cli_print_json(explanation_json(&r, what, &w), code);
	print_explanation(inv, &r, &t, what, &w);
	return code;
}

/* ---- allow, deny ---- */

/* Prints the compiler's warnings about the rule: a public suffix, an address of the own network. */
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

static bool has_route(const struct egress_rules *r, const struct addr *a)
{
	for (size_t i = 0; i < r->n_policy; i++)
		if (!r->v[i].deny && r->v[i].rule.kind == RULE_ADDR &&
		    r->v[i].rule.addr.prefix <= a->prefix && addr_within(a, &r->v[i].rule.addr))
			return true;
	return false;
}

/* The rule is in force; reports other rules that limit its effect. */
static int tell_effect(const struct invocation *inv, const struct rule *rule, const char *text,
		       struct err *e)
{
	struct target t = { rule->kind == RULE_ADDR, rule->port, rule->name, rule->addr };
	_cleanup_egress_rules_ struct egress_rules r = EGRESS_RULES_INIT;
	struct verdict v;
	char other[RULE_TEXT_MAX];

	if (egress_rules_open(inv->args[0], &r, e) < 0)
		return e->num;
	if (rule->kind == RULE_ADDR && !has_route(&r, &rule->addr))
		(void)fprintf(stderr,
			      "%s: note: routes to addresses are made when a sandbox starts, so "
			      "programs in this one reach %s only through its proxy\n",
			      inv->path, text);
	v = ruleset_check(r.set, &t);
	if (v.allowed ||
	    (rule->kind == RULE_SUBTREE && v.deny && v.deny->rule.kind != RULE_SUBTREE))
		return 0;
	if (v.deny)
		(void)fprintf(stderr,
			      "%s: '%s' stays denied: the rule '%s' denies it, and deny wins\n",
			      inv->path, text, rule_format(&v.deny->rule, other));
	else
		(void)fprintf(stderr, "%s: '%s' stays denied: %s\n", inv->path, text,
			      why_text(WHY_NARROWED));
	return 1;
}

static int send_rule(const char *id, const struct rule *rule, bool deny, struct err *e)
{
	char text[RULE_TEXT_MAX];
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_transfer_ struct transfer t = TRANSFER_INIT(-EBADF);
	_cleanup_close_ int fd = -EBADF;
	int r;

	(void)rule_format(rule, text);
	if (state_root_open(&root, e) < 0 || sandbox_find(&root, id, &b, e) < 0 ||
	    sandbox_connect(&b, &fd, e) < 0)
		return e->num;
	t.fd = fd;
	r = transfer_rule(&t, text, deny, e);
	if (r == -EREMOTEIO)
		return err_set(e, -EINVAL, "%s", t.text);
	return r < 0 || deny ? r : sandbox_widen(&root, &b, rule, e);
}

static int run_egress_allow(struct invocation *inv)
{
	char text[RULE_TEXT_MAX];
	struct err e = ERR_INIT;
	struct rule rule;
	int r;

	if (rule_parse(inv->args[1], strlen(inv->args[1]), &rule, &e) < 0)
		return cli_usage(inv, "'%s': %s", inv->args[1], e.msg);
	if (rule.port == 0) {
		rule.port = PORT_DEFAULT;
		(void)fprintf(stderr, "%s: no port given, using %d\n", inv->path, PORT_DEFAULT);
	}
	(void)rule_format(&rule, text);
	r = lint(inv, text, &e);
	if (r == 0)
		r = send_rule(inv->args[0], &rule, false, &e);
	if (r == 0)
		r = tell_effect(inv, &rule, text, &e);
	if (r < 0)
		return cli_fail(inv, &e);
	return r == 0 ? EXIT_OK : EXIT_NO;
}

static int run_egress_deny(struct invocation *inv)
{
	struct err e = ERR_INIT;
	struct rule rule;

	if (rule_parse(inv->args[1], strlen(inv->args[1]), &rule, &e) < 0)
		return cli_usage(inv, "'%s': %s", inv->args[1], e.msg);
	if (send_rule(inv->args[0], &rule, true, &e) < 0)
		return cli_fail(inv, &e);
	return EXIT_OK;
}

/* clang-format off */
static const struct command cmd_egress_explain = {
	.name = "explain", .args = "ID NAME:PORT", .min_args = 2, .max_args = 2,
	.summary = "say whether a sandbox may connect, and why",
	.help = "Considers the policy, rules added later, restrictions by an API client, and the addresses that the name\n"
		"resolved to. Exits 0 if allowed, 1 if denied.",
	.options = OPTIONS(OPT_JSON, OPT_INCLUDE), .run = run_egress_explain,
};

static const struct command cmd_egress_allow = {
	.name = "allow", .args = "ID RULE", .min_args = 2, .max_args = 2,
	.summary = "allow a running sandbox to connect to more targets",
	.help = "RULE is written as in egress.domains of an agent file; without a port it means 443. It revokes the same\n"
		"rule of 'hutch egress deny'. The command exits 1 with a message if the policy denies the target: a denial\n"
		"cannot be overridden. A sandbox whose policy allows nothing has no network that a rule could open.",
	.run = run_egress_allow,
};

static const struct command cmd_egress_deny = {
	.name = "deny", .args = "ID RULE", .min_args = 2, .max_args = 2,
	.summary = "deny a running sandbox a target, and close its connections to it",
	.help = "Without a port the rule means all ports. It revokes the same rule of 'hutch egress allow'.",
	.run = run_egress_deny,
};

const struct command cmd_egress = {
	.name = "egress", .args = "",
	.summary = "show and change what sandboxes may connect to",
	.sub = COMMANDS(&cmd_egress_log, &cmd_egress_explain, &cmd_egress_allow, &cmd_egress_deny, &cmd_egress_suggest),
};
/* clang-format on */
