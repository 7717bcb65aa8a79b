/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/lint.h"

#include <libpsl.h>
#include <string.h>

#include "base/str.h"
#include "policy/credential.h"

/*
 * Zones missing in the public suffix list in which anyone can get a name, or whose hosts serve
 * many customers under different paths. A wildcard over one of them, or over a parent of one,
 * reaches strangers.
 */
static const char *const shared[] = {
	"s3.amazonaws.com",
	"execute-api.us-east-1.amazonaws.com",
	"blob.core.windows.net",
	"cloudapp.azure.com",
	"azurewebsites.net",
	"googleusercontent.com",
	"storage.googleapis.com",
	"firebaseio.com",
	"r2.cloudflarestorage.com",
	"backblazeb2.com",
	"wasabisys.com",
	"digitaloceanspaces.com",
	"aliyuncs.com",
	"myqcloud.com",
	"fastly.net",
	"global.ssl.fastly.net",
	"webhook.site",
	"requestbin.com",
	"pipedream.net",
	"ngrok.io",
};

enum {
	WIDEST_NETWORK = 8
};

static bool is_shared(const psl_ctx_t *psl, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(shared); i++) {
		size_t len = strlen(shared[i]);

		if (str_has_suffix(shared[i], name) && (len == n || shared[i][len - n - 1] == '.'))
			return true;
	}
	return psl_is_public_suffix2(psl, name, PSL_TYPE_PRIVATE | PSL_TYPE_NO_STAR_RULE);
}

static void lint_subtree(const psl_ctx_t *psl, const struct ruleset_entry *entry, struct pos pos,
			 const char *key, struct diags *d)
{
	const char *name = entry->rule.name.text;

	if (psl_is_public_suffix2(psl, name, PSL_TYPE_ICANN))
		diag_add(d, DIAG_ERROR, pos, key, "name the hosts one by one",
			 "'.%s' is a public suffix: anyone can register a name below it", name);
	else if (is_shared(psl, name))
		diag_add(d, DIAG_WARNING, pos, key, "name the exact hosts",
			 "'.%s' is shared by many customers: anyone can get a name below it and "
			 "receive the agent's data",
			 name);
}

static void lint_addr(const struct ruleset_entry *entry, struct pos pos, const char *key,
		      struct diags *d)
{
	const struct addr *a = &entry->rule.addr;
	enum addr_class class = addr_classify(a);
	char text[ADDR_TEXT_MAX];

	addr_format(a, text);
	if (a->prefix < WIDEST_NETWORK)
		diag_add(d, DIAG_ERROR, pos, key, NULL,
			 "'%s' is too wide: a network has a length of at least %d", text,
			 WIDEST_NETWORK);
	else if (class == ADDR_METADATA && a->prefix == (a->family == 4 ? 32 : 128))
		diag_add(d, DIAG_ERROR, pos, key, NULL,
			 "'%s' is a cloud metadata service, which hands out the host's own "
			 "credentials: it is never reachable",
			 text);
	else if (class == ADDR_METADATA)
		diag_add(d, DIAG_WARNING, pos, key, NULL,
			 "'%s' contains a cloud metadata service, which stays denied; this opens "
			 "the rest of that network to the agent",
			 text);
	else if (class == ADDR_PUBLIC)
		diag_add(d, DIAG_WARNING, pos, key, NULL,
			 "'%s' is an address: its owner may change, and no certificate is "
			 "checked against it",
			 text);
	else
		diag_add(d, DIAG_WARNING, pos, key, NULL,
			 "'%s' is a %s address: this opens a part of your own network or host to "
			 "the agent",
			 text, addr_class_name(class));
}

/* Warns about rules that turn off the inspection of the stream. */
static void lint_proto(const struct ruleset_entry *entry, struct pos pos, const char *key,
		       struct diags *d)
{
	char text[RULE_TEXT_MAX];

	if (entry->rule.proto == RULE_PROTO_DEFAULT)
		return;
	rule_format(&entry->rule, text);
	if (entry->rule.proto == RULE_PROTO_TCP)
		diag_add(d, DIAG_WARNING, pos, key, NULL,
			 "'%s': the stream is not inspected; on a shared server this allows every "
			 "name of the server",
			 text);
	else if (entry->rule.proto == RULE_PROTO_TLS_ECH)
		diag_add(d, DIAG_WARNING, pos, key, NULL,
			 "'%s': an encrypted ClientHello can ask for any other name of that server",
			 text);
}

static void lint_private(const struct ruleset_entry *entry, struct pos pos, const char *key,
			 struct diags *d)
{
	char text[RULE_TEXT_MAX];

	if (entry->rule.private)
		diag_add(d, DIAG_WARNING, pos, key, NULL,
			 "'%s': the DNS server of the name chooses which private address of your "
			 "own network the agent reaches",
			 rule_format(&entry->rule, text));
}

void policy_lint_rules(const struct policy *p, size_t from, size_t to, struct diags *d)
{
	const struct rule_list *list = &p->egress.list;
	const psl_ctx_t *psl = psl_builtin();

	assert(psl); /* distributions build libpsl with the list */
	for (size_t i = from; i < to; i++) {
		const struct ruleset_entry *entry = &list->v[i];
		struct pos pos = list->origin[i].pos;
		char key[64];

		/* A rule without a port has one entry per port; check only the first. */
		if (entry->deny || (i > from && list->origin[i - 1].pos.line == pos.line &&
				    list->origin[i - 1].pos.column == pos.column))
			continue;
		(void)snprintf(key, sizeof(key), "%sdomains[%u]",
			       list->origin[i].file->is_preset ? "" : "egress.",
			       list->origin[i].index);
		if (entry->rule.kind == RULE_SUBTREE)
			lint_subtree(psl, entry, pos, key, d);
		else if (entry->rule.kind == RULE_ADDR)
			lint_addr(entry, pos, key, d);
		lint_proto(entry, pos, key, d);
		lint_private(entry, pos, key, d);
	}
}

/* Returns the deny rule that covers all of `rule`, or NULL. ruleset_check() finds the widest. */
static const struct ruleset_entry *overruled_by(const struct policy *p, const struct rule *rule)
{
	struct target t = { rule->kind == RULE_ADDR, rule->port, rule->name, rule->addr };
	const struct ruleset_entry *deny = ruleset_check(p->egress.rules, &t).deny;

	if (!deny || (rule->kind == RULE_SUBTREE && deny->rule.kind != RULE_SUBTREE) ||
	    (rule->kind == RULE_ADDR && deny->rule.addr.prefix > rule->addr.prefix))
		return NULL;
	return deny;
}

static void warn_overruled(const struct policy *p, size_t i, const struct ruleset_entry *by,
			   struct diags *d)
{
	const struct origin *rule = &p->egress.list.origin[i],
			    *deny = &p->egress.list.origin[by->id];
	char key[64], host[RULE_TEXT_MAX], other[RULE_TEXT_MAX];

	(void)snprintf(key, sizeof(key), "egress.domains[%u]", rule->index);
	diag_add(d, DIAG_WARNING, rule->pos, key, NULL,
		 "'%s' can never be reached: '%s' is denied at %s:%u",
		 rule_format_host(&p->egress.list.v[i].rule, host),
		 rule_format_host(&by->rule, other), deny->pos.src->label, deny->pos.line);
}

/* Warns about an agent's own allow rules that deny rules cover on all their ports. */
static void lint_overruled(const struct policy *p, struct diags *d)
{
	const struct rule_list *list = &p->egress.list;

	for (size_t i = 0, end; i < list->n; i = end) {
		const struct origin *origin = &list->origin[i];
		const struct rule *rule = &list->v[i].rule;
		const struct ruleset_entry *by = overruled_by(p, rule);

		for (end = i + 1; end < list->n && list->origin[end].file == origin->file &&
				  list->origin[end].pos.line == origin->pos.line &&
				  list->origin[end].pos.column == origin->pos.column;
		     end++)
			by = by ? overruled_by(p, &list->v[end].rule) : NULL;
		/* lint_addr() has already rejected metadata services. */
		if (by && !list->v[i].deny && !origin->file->is_preset &&
		    (rule->kind != RULE_ADDR || addr_classify(&rule->addr) != ADDR_METADATA))
			warn_overruled(p, i, by, d);
	}
}

static bool is_secret(const struct policy *p, const char *name)
{
	for (size_t i = 0; i < p->secrets.n; i++)
		if (str_eq(p->secrets.v[i].name, name))
			return true;
	return false;
}

/* Warns about variables with the name of a credential and a value of unknown form. */
static void lint_env(const struct policy *p, struct diags *d)
{
	for (size_t i = 0; i < p->env.n; i++) {
		const struct pair *v = &p->env.v[i];
		char key[160];

		/* Without a value: memory ran out, and diags.oom is set. */
		if (!credential_name(v->key) || !v->value || !v->value[0] ||
		    credential_find(v->value) || is_secret(p, v->key))
			continue;
		(void)snprintf(key, sizeof(key), "env.%s", v->key);
		diag_add(d, DIAG_WARNING, v->pos, key,
			 "if it is one, bind it to its hosts under 'secrets'",
			 "has the name of a credential; no credential goes into a sandbox");
	}
}

/* Layers on programs in the sandbox, which isolation.nested leaves out. */
#define INSIDE                                                                 \
	(UINT64_C(1) << LAYER_SECCOMP | UINT64_C(1) << LAYER_NO_CAPABILITIES | \
	 UINT64_C(1) << LAYER_NO_NEW_PRIVILEGES | UINT64_C(1) << LAYER_LANDLOCK)

static void lint_nested(const struct policy *p, struct diags *d)
{
	const struct pos at = p->nested_pos.src ? p->nested_pos : p->pos;
	char names[128] = "";

	if (p->nested != NESTED_YES)
		return;
	if (p->level < LEVEL_OWN_KERNEL)
		diag_add(d, DIAG_ERROR, at, "isolation.nested", NULL,
			 "needs 'level: %s' in the agent file: at level %s root would get "
			 "capabilities in the host's kernel",
			 level_names[LEVEL_OWN_KERNEL], level_names[p->level]);
	for (unsigned int i = 0; i < LAYER_MAX; i++)
		if (p->require & INSIDE & UINT64_C(1) << i)
			(void)snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
				       names[0] ? ", " : "", layer_names[i]);
	if (names[0])
		diag_add(d, DIAG_ERROR, at, "isolation.nested", NULL,
			 "isolation.require lists %s, which programs in a nested VM do not have; "
			 "remove them, or do not extend an agent that requires them",
			 names);
}

void policy_lint(const struct policy *p, struct diags *d)
{
	lint_nested(p, d);
	lint_overruled(p, d);
	policy_lint_secrets(p, d);
	policy_lint_http(p, d);
	policy_lint_llm(p, d);
	lint_env(p, d);
	if (p->resources.timeout > p->resources.ttl)
		diag_add(d, DIAG_WARNING, p->limits_pos.src ? p->limits_pos : p->pos,
			 "resources.timeout", NULL,
			 "a command may run longer than the sandbox lives (ttl)");
}
