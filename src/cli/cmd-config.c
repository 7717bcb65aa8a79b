/* SPDX-License-Identifier: Apache-2.0 */
/* hutch config validate, compile, explain, docs */
#include <string.h>

#include "base/str.h"
#include "cli/cli.h"
#include "cli/view.h"
#include "policy/docs.h"
#include "policy/explain-http.h"
#include "policy/value.h"

enum {
	HTTP_RULE_SHOWN = 512, /* bytes of a rule, and of a request, in a message */
	REQUEST_SHOWN = L7_METHOD_MAX + RULE_TEXT_MAX + L7_PATH_MAX + 16,
};

static json_t *diag_json(const struct diag *g)
{
	json_t *o = JSON_OBJECT(
		{ "file", cli_json_text(g->pos.src->label) }, { "line", json_integer(g->pos.line) },
		{ "column", json_integer(g->pos.column) },
		{ "level", json_string(g->level == DIAG_ERROR ? "error" : "warning") },
		{ "key", json_string(g->key) }, { "message", json_string(g->text) });

	if (o && g->hint && json_put(o, "hint", json_string(g->hint)) < 0) {
		json_decref(o);
		return NULL;
	}
	return o;
}

static int push_diags(json_t *list, const struct diags *d)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < d->n; i++)
		r = json_push(list, diag_json(&d->list[i]));
	return r;
}

/* Warnings go to stderr: stdout is the policy, or the result. */
static int compile(const struct invocation *inv, struct default_store *s, struct policy **ret)
{
	_cleanup_diags_ struct diags d = { 0 };
	struct err e = ERR_INIT;
	int r = cli_store_open(s, inv, &e);

	if (r == 0)
		r = policy_compile(&s->store, inv->args[0], &d, ret, &e);
	cli_diags(stderr, &d);
	return r < 0 ? cli_fail(inv, &e) : EXIT_OK;
}

/* Reports an unreadable file, without a position in it. */
static int validate_unread(const struct invocation *inv, const char *path, const struct err *e,
			   json_t *list)
{
	int code = cli_fail(inv, e);

	if (list && json_push(list, JSON_OBJECT({ "file", cli_json_text(path) },
						{ "level", json_string("error") },
						{ "message", cli_json_text(e->msg) })) < 0)
		return EXIT_HUTCH;
	return code;
}

static int validate_one(struct default_store *s, const struct invocation *inv, const char *path,
			json_t *list, size_t *dropped)
{
	_cleanup_diags_ struct diags d = { 0 };
	struct err e = ERR_INIT;
	int r = policy_validate(&s->store, path, &d, &e);

	*dropped += d.dropped;

	if (list && push_diags(list, &d) < 0)
		return EXIT_HUTCH;
	if (!list)
		cli_diags(stdout, &d);
	if (r < 0 && d.errors == 0)
		return validate_unread(inv, path, &e, list);
	if (!list && r == 0) {
		cli_puts(stdout, path);
		(void)printf(": valid%s\n", d.n > 0 ? ", with warnings" : "");
	}
	return r < 0 ? EXIT_NO : EXIT_OK;
}

static int run_config_validate(struct invocation *inv)
{
	_cleanup_default_store_ struct default_store s = { 0 };
	bool json = cli_option(inv, "json");
	_cleanup_json_ json_t *list = json ? json_array() : NULL;
	struct err e = ERR_INIT;
	size_t dropped = 0;
	int worst = EXIT_OK;

	if (cli_store_open(&s, inv, &e) < 0)
		return cli_fail(inv, &e);
	for (int i = 0; i < inv->n_args; i++)
		worst = MAX(worst, validate_one(&s, inv, inv->args[i], list, &dropped));
	if (!json)
		return worst;
	return cli_print_json(JSON_OBJECT({ "valid", json_boolean(worst == EXIT_OK) },
					  { "diagnostics", TAKE_PTR(list) },
					  { "dropped", json_integer((json_int_t)dropped) }),
			      worst);
}

static int run_config_compile(struct invocation *inv)
{
	_cleanup_default_store_ struct default_store s = { 0 };
	_cleanup_policy_ struct policy *p = NULL;
	_cleanup_free_ char *text = NULL;
	char digest[POLICY_DIGEST_HEX + 1];
	struct err e = ERR_INIT;
	int code = compile(inv, &s, &p);

	if (code != EXIT_OK)
		return code;
	if (policy_canonical(p, &text, digest) < 0)
		return cli_fail(inv, (err_oom(&e), &e));
	if (cli_option(inv, "json")) {
		json_t *policy = NULL;

		if (json_read(text, strlen(text), &policy, &e) < 0)
			return cli_fail(inv, &e);
		return cli_print_json(json_pack("{s:s, s:o}", "sha256", digest, "policy", policy),
				      EXIT_OK);
	}
	if (cli_option(inv, "digest")) {
		(void)puts(digest);
		return EXIT_OK;
	}
	(void)fputs(text, stdout);
	(void)fflush(stdout);
	(void)fprintf(stderr, "sha256 %s\n", digest);
	return EXIT_OK;
}

/* ---- explain ---- */

static void print_rule(const struct policy *p, const struct ruleset_entry *entry,
		       const struct origin *o, const char *title)
{
	char host[RULE_TEXT_MAX];

	(void)printf("  %-8s %s", title, rule_format_host(&entry->rule, host));
	if (entry->rule.port == 0)
		(void)fputs(", on every port", stdout);
	else if (o->default_port)
		(void)printf(", port %u because the rule names none", entry->rule.port);
	else
		(void)printf(", port %u", entry->rule.port);
	if (entry->rule.proto != RULE_PROTO_DEFAULT)
		(void)printf(", %s only", rule_proto_name(entry->rule.proto));
	if (entry->rule.private)
		(void)fputs(", private addresses too", stdout);
	(void)fputs("\n  at       ", stdout);
	cli_puts(stdout, o->pos.src->label);
	(void)printf(":%u\n", o->pos.line);
	if (!o->file->is_preset)
		return;
	(void)printf("  preset   %s", o->file->name);
	if (o->file->named_at.src && !str_eq(o->file->name, "floor")) {
		(void)fputs(", named at ", stdout);
		cli_puts(stdout, o->file->named_at.src->label);
		(void)printf(":%u", o->file->named_at.line);
	} else {
		(void)fputs(", part of every policy", stdout);
	}
	(void)fputc('\n', stdout);
	if (!o->file->risk || entry->deny)
		return;
	(void)fputs("  risk     ", stdout);
	cli_puts(stdout, o->file->risk);
	(void)fputc('\n', stdout);
}

static void print_why_not(const struct explanation *x)
{
	(void)fputs("  because  no rule of this agent names it\n", stdout);
	view_alternatives(x);
	if (x->n_presets == 0 && x->n_ports == 0)
		(void)fputs("  to allow add it to egress.domains of the agent's file\n", stdout);
}

static void print_title(const struct invocation *inv, bool allowed, const char *what)
{
	(void)printf("%s%s%s  ", cli_style(inv, allowed ? "\033[1;32m" : "\033[1;31m"),
		     allowed ? "allowed" : "denied ", cli_style(inv, "\033[0m"));
	cli_puts(stdout, what);
	(void)fputc('\n', stdout);
}

static void print_explanation(const struct invocation *inv, const struct policy *p,
			      const char *what, const struct explanation *x)
{
	print_title(inv, x->verdict.allowed, what);
	if (x->deny)
		print_rule(p, x->verdict.deny, x->deny, "deny");
	if (x->deny && x->allow)
		(void)fputs("  which wins over\n", stdout);
	if (x->allow)
		print_rule(p, x->verdict.allow, x->allow, "allow");
	if (!x->deny && !x->allow)
		print_why_not(x);
}

static json_t *rule_json(const struct ruleset_entry *entry, const struct origin *o)
{
	char host[RULE_TEXT_MAX];

	if (!entry)
		return json_null();
	return json_pack(
		"{s:s, s:i, s:s*, s:o*, s:s, s:i, s:s*, s:s*}", "rule",
		rule_format_host(&entry->rule, host), "port", (int)entry->rule.port, "protocol",
		entry->rule.proto == RULE_PROTO_DEFAULT ? NULL : rule_proto_name(entry->rule.proto),
		"private", entry->rule.private ? json_true() : NULL, "file", o->pos.src->label,
		"line", (int)o->pos.line, "preset", o->file->is_preset ? o->file->name : NULL,
		"risk", o->file->risk);
}

static json_t *explanation_json(const struct target *t, const char *what,
				const struct explanation *x)
{
	json_t *presets = json_array(), *ports = json_array();

	for (size_t i = 0; i < x->n_presets; i++)
		(void)json_push(presets, json_string(x->presets[i]));
	for (size_t i = 0; i < x->n_ports; i++)
		(void)json_push(ports, json_integer(x->ports[i]));
	return json_pack("{s:s, s:b, s:o, s:o, s:o, s:o}", "target", what, "allowed",
			 (int)x->verdict.allowed, "deny", rule_json(x->verdict.deny, x->deny),
			 "allow", rule_json(x->verdict.allow, x->allow), "allowed_ports", ports,
			 "presets", presets);
}

/* ---- explain a request ---- */

static void print_at(struct pos pos)
{
	(void)fputs("  at       ", stdout);
	cli_puts(stdout, pos.src->label);
	(void)printf(":%u\n", pos.line);
}

static void print_http_rule(const struct http_rule *r, const char *title)
{
	char text[HTTP_RULE_SHOWN], size[VALUE_HINT_MAX];

	(void)printf("  %-8s %s", title, http_rule_format(r, text, sizeof(text)));
	if (r->max_body > 0)
		(void)printf(", bodies up to %s", value_format_size(r->max_body, size));
	if (r->rate > 0)
		(void)printf(", %llu requests per minute", (unsigned long long)r->rate);
	(void)fputc('\n', stdout);
	print_at(r->pos);
}

static void print_near(const struct http_rule *r)
{
	char text[HTTP_RULE_SHOWN];

	(void)fputs("  no rule  ", stdout);
	cli_puts(stdout, r->pos.src->label);
	(void)printf(":%u allows %s\n", r->pos.line, http_rule_format(r, text, sizeof(text)));
}

/* How the secret is sent: "header X-Api-Key". */
static const char *form_text(const struct secret *s, char *out, size_t size)
{
	static const char *const texts[] = {
		[AUTH_BEARER] = "Authorization: Bearer",
		[AUTH_HEADER] = "header %s",
		[AUTH_BASIC] = "Authorization: Basic, user %s",
		[AUTH_QUERY] = "query parameter %s",
		[AUTH_AWS] = "AWS signature",
	};
	const char *const named[] = { [AUTH_HEADER] = s->header.text,
				      [AUTH_BASIC] = s->user.text,
				      [AUTH_QUERY] = s->parameter.text,
				      [AUTH_AWS] = NULL };
	const char *text = texts[s->form], *at = strstr(text, "%s");

	if (at)
		(void)snprintf(out, size, "%.*s%s", (int)(at - text), text, named[s->form]);
	else
		(void)snprintf(out, size, "%s", text);
	return out;
}

static void print_secrets(const struct request_explanation *x)
{
	char text[256];

	for (size_t i = 0; i < x->n_secrets; i++) {
		(void)printf("  secret   %s, as %s%s\n", x->secrets[i]->name,
			     form_text(x->secrets[i], text, sizeof(text)),
			     x->n_secrets > 1 ? ", if the request has its placeholder" : "");
		print_at(x->secrets[i]->pos);
	}
}

static void print_llm(const struct request_explanation *x)
{
	char text[HTTP_RULE_SHOWN];

	if (!x->llm)
		return;
	(void)printf("  model    %s%s\n", x->no_call ? "no call of a model that Hutch knows: " : "",
		     llm_rule_format(x->llm, text, sizeof(text)));
	print_at(x->llm->pos);
}

static void print_request(const struct invocation *inv, const struct policy *p, const char *what,
			  const struct request_explanation *x)
{
	if (x->no_call) {
		print_title(inv, false, what);
	} else if (!x->connect.verdict.allowed || (!x->rule && !x->near)) {
		print_explanation(inv, p, what, &x->connect);
	} else {
		print_title(inv, x->allowed, what);
		if (x->rule)
			print_http_rule(x->rule, x->allowed ? "allow" : "deny");
		else
			print_near(x->near);
	}
	print_llm(x);
	print_secrets(x);
}

static json_t *http_rule_json(const struct http_rule *r)
{
	char host[RULE_TEXT_MAX];

	if (!r)
		return json_null();
	return json_pack("{s:s, s:o, s:o, s:I, s:I, s:b, s:s, s:i}", "host",
			 rule_format_host(&r->host, host), "methods",
			 json_texts(r->methods.v, r->methods.n), "paths",
			 json_texts(r->paths.v, r->paths.n), "max_body", (json_int_t)r->max_body,
			 "rate", (json_int_t)r->rate, "deny", (int)r->deny, "file",
			 r->pos.src->label, "line", (int)r->pos.line);
}

static json_t *llm_rule_json(const struct llm_rule *r)
{
	if (!r)
		return json_null();
	return json_pack("{s:s, s:o, s:I, s:I, s:I, s:s, s:i}", "provider", llm_words[r->provider],
			 "models", json_texts(r->models.v, r->models.n), "requests",
			 (json_int_t)r->budget.requests, "tokens", (json_int_t)r->budget.tokens,
			 "usd_thousandths", (json_int_t)r->budget.usd, "file", r->pos.src->label,
			 "line", (int)r->pos.line);
}

static json_t *request_json(const struct request *r, const char *what, const char *target,
			    const struct request_explanation *x)
{
	json_t *secrets = json_array();

	for (size_t i = 0; i < x->n_secrets; i++) {
		const struct secret *s = x->secrets[i];

		(void)json_push(secrets, json_pack("{s:s, s:s, s:s, s:i}", "name", s->name, "form",
						   auth_form_names[s->form], "file",
						   s->pos.src->label, "line", (int)s->pos.line));
	}
	return json_pack("{s:s, s:b, s:o, s:o, s:o, s:o, s:o}", "request", what, "allowed",
			 (int)x->allowed, "connect",
			 explanation_json(&r->target, target, &x->connect), "rule",
			 http_rule_json(x->rule), "nearest", http_rule_json(x->near), "secrets",
			 secrets, "llm", llm_rule_json(x->llm));
}

static int explain_request(struct invocation *inv)
{
	_cleanup_default_store_ struct default_store s = { 0 };
	_cleanup_policy_ struct policy *p = NULL;
	struct request_explanation x;
	struct err e = ERR_INIT;
	struct request r;
	char what[REQUEST_SHOWN], target[RULE_TEXT_MAX + 8];
	int code;

	if (request_parse(inv->args[1], &r, &e) < 0)
		return cli_usage(inv, "'%s': %s", inv->args[1], e.msg);
	code = compile(inv, &s, &p);
	if (code != EXIT_OK)
		return code;
	if (policy_explain_request(p, &s.store, &r, &x, &e) < 0)
		return cli_fail(inv, &e);
	(void)snprintf(target, sizeof(target), "%s:%u", r.target.name.text, r.target.port);
	(void)snprintf(what, sizeof(what), "%s %s%s", r.method,
		       r.target.port == 443 ? r.target.name.text : target, r.path);
	code = x.allowed ? EXIT_OK : EXIT_NO;
	if (cli_option(inv, "json"))
		return cli_print_json(request_json(&r, what, target, &x), code);
	print_request(inv, p, what, &x);
	return code;
}

static int run_config_explain(struct invocation *inv)
{
	_cleanup_default_store_ struct default_store s = { 0 };
	_cleanup_policy_ struct policy *p = NULL;
	struct explanation x;
	struct err e = ERR_INIT;
	struct target t;
	char host[ADDR_TEXT_MAX], what[RULE_TEXT_MAX + 8];
	int code;

	if (strchr(inv->args[1], ' '))
		return explain_request(inv);
	if (target_parse(inv->args[1], strlen(inv->args[1]), &t, &e) < 0)
		return cli_usage(inv, "'%s': %s", inv->args[1], e.msg);
	code = compile(inv, &s, &p);
	if (code != EXIT_OK)
		return code;
	if (policy_explain(p, &s.store, &t, &x, &e) < 0)
		return cli_fail(inv, &e);
	(void)snprintf(what, sizeof(what), "%s:%u",
		       t.is_addr ? addr_format(&t.addr, host) : t.name.text, t.port);
	code = x.verdict.allowed ? EXIT_OK : EXIT_NO;
	if (cli_option(inv, "json"))
		return cli_print_json(explanation_json(&t, what, &x), code);
	print_explanation(inv, p, what, &x);
	return code;
}

static int run_config_docs(struct invocation *inv)
{
	_cleanup_default_store_ struct default_store s = { 0 };
	_cleanup_buf_ struct buf b = BUF_INIT(4 * 1024 * 1024);
	struct err e = ERR_INIT;
	json_t *j = NULL;
	int r = cli_store_open(&s, inv, &e);

	if (r == 0 && cli_option(inv, "json"))
		r = policy_docs_json(&s.store, &j, &e);
	else if (r == 0)
		r = policy_docs(&s.store, &b, &e);
	if (r < 0)
		return cli_fail(inv, &e);
	if (j)
		return cli_print_json(j, EXIT_OK);
	(void)fputs(buf_text(&b), stdout);
	return EXIT_OK;
}

/* clang-format off */
static const struct command cmd_config_validate = {
	.name = "validate", .args = "FILE...", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "check agent and preset files, and show every error at once",
	.help = "Each message has the file, line and column, the key, the expected value and a suggestion.\n"
		"Exits 0 if all files are valid, perhaps with warnings; 1 if one is invalid.",
	.options = OPTIONS(OPT_JSON, OPT_INCLUDE), .run = run_config_validate,
};

static const struct command cmd_config_compile = {
	.name = "compile", .args = "AGENT", .min_args = 1, .max_args = 1,
	.summary = "print the canonical policy of an agent",
	.help = "Prints the policy on stdout: sorted JSON, the same bytes on every host. Prints its SHA-256, which names it\n"
		"in records, on stderr; 'hutch config compile AGENT | sha256sum' gives the same.",
	.options = OPTIONS(
		OPT_JSON, OPT_INCLUDE,
		{ "digest", 'd', NULL, "print only the SHA-256 of the policy" }),
	.run = run_config_compile,
};

static const struct command cmd_config_explain = {
	.name = "explain", .args = "AGENT NAME:PORT|REQUEST", .min_args = 2, .max_args = 2,
	.summary = "say whether an agent may connect or send a request, and why",
	.help = "Shows the rule that decides, its file and line, and the preset it came from. If denied, shows which preset\n"
		"would allow it. Exits 0 if allowed, 1 if denied.\n\n"
		"REQUEST is one argument, \"METHOD HOST/PATH\" or \"METHOD https://HOST/PATH\". For it, also shows the rule of\n"
		"egress.http, or the nearest one if none allows it, and the secret that would be sent.",
	.options = OPTIONS(OPT_JSON, OPT_INCLUDE), .run = run_config_explain,
};

static const struct command cmd_config_docs = {
	.name = "docs", .args = "",
	.summary = "print the reference of every key and preset",
	.help = "Prints Markdown, generated from the tables of the compiler.",
	.options = OPTIONS(OPT_JSON, OPT_INCLUDE), .run = run_config_docs,
};

const struct command cmd_config = {
	.name = "config", .args = "",
	.summary = "check, compile and explain agent files", .help = "AGENT is a name (see 'hutch agents') or a file: anything with a '/' in it or ending in .yaml.",
	.sub = COMMANDS(&cmd_config_validate, &cmd_config_compile, &cmd_config_explain, &cmd_config_docs),
};
/* clang-format on */
