/* SPDX-License-Identifier: Apache-2.0 */
/* Checks secrets: keys that do not fit their form, hosts that the egress rules do not allow, two
 * secrets for one place. */
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "policy/lint.h"

enum {
	KEY_TEXT_MAX = 192,
};

/* Headers that change how the request is read, or that hutch-tap writes itself. */
static const char *const forbidden_headers[] = {
	"Accept-Encoding",  "Connection", "Content-Encoding", "Content-Length", "Content-Type",
	"Expect",	    "Host",	  "HTTP2-Settings",   "Keep-Alive",	"Origin",
	"Proxy-Connection", "TE",	  "Trailer",	      "Upgrade",	"Transfer-Encoding",
};

static bool is_visible_ascii(const char *s)
{
	for (; *s; s++)
		if (*s < ' ' || *s > '~')
			return false;
	return true;
}

static bool is_token(const char *s)
{
	return s[0] && strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				 "0123456789!#$%&'*+-.^_`|~") == strlen(s);
}

static bool is_forbidden(const char *header)
{
	for (size_t i = 0; i < ARRAY_SIZE(forbidden_headers); i++)
		if (strcasecmp(header, forbidden_headers[i]) == 0)
			return true;
	return strncasecmp(header, "Sec-WebSocket-", STRLEN("Sec-WebSocket-")) == 0;
}

/* The checkers of texts return why one is wrong, or NULL. */
static const char *wrong_header(const char *s)
{
	if (!is_token(s))
		return "is not the name of a header, such as X-Api-Key";
	return is_forbidden(s) ? "is a header that no credential is sent in" : NULL;
}

static const char *wrong_format(const char *s)
{
	const char *at = strstr(s, "{}");

	if (!is_visible_ascii(s))
		return "has a byte that may not be in a header";
	if (!at)
		return "has no {} for the credential";
	return strstr(at + 2, "{}") ? "has two {}, where one is for the credential" : NULL;
}

static const char *wrong_user(const char *s)
{
	if (!is_visible_ascii(s))
		return "has a byte that may not be in the name of a user";
	return strchr(s, ':') ? "has a ':', which ends the name of a user" : NULL;
}

static const char *wrong_parameter(const char *s)
{
	return strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~") ==
			       strlen(s)
		       ? NULL
		       : "is not the name of a parameter: letters, digits, '-', '.', '_' and '~'";
}

/* The keys that belong to one form. */
static const struct form_key {
	const char *key;
	size_t at; /* struct located in struct secret */
	enum auth_form form;
	bool required;
	const char *(*wrong)(const char *s);
	const char *example;
} form_keys[] = {
	{ "header", offsetof(struct secret, header), AUTH_HEADER, true, wrong_header,
	  "the name of the header, such as X-Api-Key" },
	{ "format", offsetof(struct secret, format), AUTH_HEADER, false, wrong_format, NULL },
	{ "user", offsetof(struct secret, user), AUTH_BASIC, true, wrong_user,
	  "the name of the user, such as x-access-token" },
	{ "parameter", offsetof(struct secret, parameter), AUTH_QUERY, true, wrong_parameter,
	  "the name of the parameter, such as key" },
};

static void lint_form_key(const struct secret *s, const struct form_key *k, struct diags *d)
{
	const struct located *text =
		(const struct located *)(const void *)((const char *)s + k->at);
	const char *form = auth_form_names[s->form], *wrong;
	char key[KEY_TEXT_MAX];

	(void)snprintf(key, sizeof(key), "secrets.%s.%s", s->name, k->key);
	if (s->form == k->form && k->required && !text->text && !text->pos.src)
		return diag_add(d, DIAG_ERROR, s->form_pos.src ? s->form_pos : s->pos, key, NULL,
				"missing; form %s needs %s", form, k->example);
	/* A default has no position, a wrong text has nothing else. */
	if (!text->text || !text->pos.src)
		return;
	if (s->form != k->form)
		return diag_add(d, DIAG_ERROR, text->pos, key, NULL,
				"belongs to form %s; the form of this secret is %s",
				auth_form_names[k->form], form);
	wrong = k->wrong(text->text);
	if (wrong)
		diag_add(d, DIAG_ERROR, text->pos, key, NULL, "'%.40s' %s", text->text, wrong);
}

/* May a stream of an allow rule with this protocol and port be TLS? */
static bool may_be_tls(const struct rule *r)
{
	const enum rule_proto proto = rule_proto(r);

	return proto == RULE_PROTO_TLS || proto == RULE_PROTO_TLS_ECH || proto == RULE_PROTO_ANY;
}

/* Finds a port on which the host is allowed and its stream may be TLS; *ret_other: another one. */
static bool find_port(const struct policy *p, const struct name *host, uint16_t *ret_other)
{
	const struct ruleset_entry *v;
	size_t n;

	*ret_other = 0;
	v = ruleset_entries(p->egress.rules, &n);
	for (size_t i = 0; i < n; i++) {
		struct target t = { .port = v[i].rule.port, .name = *host };
		struct verdict verdict;

		if (v[i].deny)
			continue;
		verdict = ruleset_check(p->egress.rules, &t);
		if (verdict.allowed && may_be_tls(&verdict.allow->rule))
			return true;
		if (verdict.allowed)
			*ret_other = t.port;
	}
	return false;
}

static void lint_host(const struct policy *p, const struct secret *s,
		      const struct secret_host *host, struct diags *d)
{
	char key[KEY_TEXT_MAX];
	uint16_t other;

	if (find_port(p, &host->name, &other))
		return;
	(void)snprintf(key, sizeof(key), "secrets.%s.hosts[%u]", s->name, host->index);
	if (other > 0)
		diag_add(d, DIAG_WARNING, host->pos, key, NULL,
			 "bound to %s, which the egress rules allow on port %u without TLS: a "
			 "secret is sent over TLS only",
			 host->name.text, other);
	else
		diag_add(d, DIAG_WARNING, host->pos, key, NULL,
			 "bound to %s, which the egress rules do not allow", host->name.text);
}

/* Variables that hold the placeholder in the sandbox: NAME, or those of AWS. */
static bool sets(const struct secret *s, const char *variable)
{
	if (s->form != AUTH_AWS)
		return str_eq(s->name, variable);
	return str_eq(variable, "AWS_ACCESS_KEY_ID") || str_eq(variable, "AWS_SECRET_ACCESS_KEY");
}

static void lint_variables(const struct policy *p, size_t i, struct diags *d)
{
	const struct secret *s = &p->secrets.v[i];
	char key[KEY_TEXT_MAX];

	(void)snprintf(key, sizeof(key), "secrets.%s", s->name);
	for (size_t k = 0; k < p->env.n; k++) {
		const char *name = p->env.v[k].key;

		if (str_eq(name, s->name))
			diag_add(d, DIAG_ERROR, s->pos, key, NULL,
				 "also set under env: a name is a secret or a variable, not both");
		else if (sets(s, name))
			diag_add(d, DIAG_ERROR, s->pos, key, NULL,
				 "form aws sets %s, which is also set under env", name);
	}
	for (size_t k = 0; k < i; k++) {
		const struct secret *other = &p->secrets.v[k];

		if ((s->form == AUTH_AWS && other->form == AUTH_AWS) || sets(s, other->name) ||
		    sets(other, s->name))
			diag_add(d, DIAG_ERROR, s->pos, key, NULL,
				 "sets the same variable as secret %s: AWS programs have one key",
				 other->name);
	}
}

/* May one request match both lists of patterns? False if they surely have no path in common. */
static bool overlap(const struct text_list *a, const struct text_list *b)
{
	for (size_t i = 0; i < a->n; i++)
		for (size_t k = 0; k < b->n; k++)
			if (str_eq(a->v[i], b->v[k]) || l7_pattern_match(a->v[i], b->v[k]) ||
			    l7_pattern_match(b->v[k], a->v[i]))
				return true;
	return a->n == 0 || b->n == 0;
}

static void lint_shared_host(const struct secret *s, const struct secret *other, struct diags *d)
{
	char key[KEY_TEXT_MAX];

	if (!overlap(&s->paths, &other->paths))
		return;
	for (size_t i = 0; i < s->hosts.n; i++)
		for (size_t k = 0; k < other->hosts.n; k++) {
			const struct secret_host *host = &s->hosts.v[i];

			if (!str_eq(host->name.text, other->hosts.v[k].name.text))
				continue;
			(void)snprintf(key, sizeof(key), "secrets.%s.hosts[%u]", s->name,
				       host->index);
			return diag_add(d, DIAG_WARNING, host->pos, key,
					"give each its own paths, or let programs send the "
					"placeholder of the one they mean",
					"%s is also bound to %s, at %s:%u: a request without a "
					"placeholder gets neither",
					host->name.text, other->name, other->pos.src->label,
					other->pos.line);
		}
}

void policy_lint_secrets(const struct policy *p, struct diags *d)
{
	for (size_t i = 0; i < p->secrets.n; i++) {
		const struct secret *s = &p->secrets.v[i];

		for (size_t k = 0; k < ARRAY_SIZE(form_keys); k++)
			lint_form_key(s, &form_keys[k], d);
		lint_variables(p, i, d);
		for (size_t k = 0; k < s->hosts.n; k++)
			lint_host(p, s, &s->hosts.v[k], d);
		for (size_t k = 0; k < i; k++)
			lint_shared_host(s, &p->secrets.v[k], d);
	}
}
