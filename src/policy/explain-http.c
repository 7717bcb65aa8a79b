/* SPDX-License-Identifier: Apache-2.0 */
/* Explains whether a request is allowed, and which secret it gets. */
#include <string.h>

#include "base/str.h"
#include "llm/llm.h"
#include "policy/explain-http.h"

static const char *skip_scheme(const char *s, bool *ret_tls)
{
	*ret_tls = !str_has_prefix(s, "http://");
	if (str_has_prefix(s, "https://"))
		return s + STRLEN("https://");
	return *ret_tls ? s : s + STRLEN("http://");
}

static int parse_host(const char *s, size_t n, struct request *r, struct err *e)
{
	const char *colon = memchr(s, ':', n);
	const size_t host = colon ? (size_t)(colon - s) : n;

	r->target.port = r->tls ? 443 : 80;
	if (colon && port_parse(colon + 1, n - host - 1, &r->target.port, e) < 0)
		return e->num;
	return name_parse(s, host, &r->target.name, e);
}

int request_parse(const char *text, struct request *ret, struct err *e)
{
	const char *space = strchr(text, ' '), *s, *why = "";
	struct request r = { .method = "" };
	size_t n;

	if (!space)
		return err_set(e, -EINVAL, "expected METHOD HOST/PATH");
	n = (size_t)(space - text);
	if (l7_method_check(text, n, e) < 0)
		return e->num;
	memcpy(r.method, text, n);
	s = skip_scheme(space + 1, &r.tls);
	n = strcspn(s, "/?#");
	if (parse_host(s, n, &r, e) < 0)
		return e->num;
	s += n;
	n = strcspn(s, "?#");
	if (l7_path(n > 0 ? s : "/", n > 0 ? n : 1, r.path, &why) < 0)
		return err_set(e, -EINVAL, "Hutch refuses a request of this path: %s", why);
	*ret = r;
	return 0;
}

static struct l7_rule l7_rule_of(const struct http_rule *r)
{
	return (struct l7_rule){
		.host = r->host,
		.methods = { r->methods.v, r->methods.n },
		.paths = { r->paths.v, r->paths.n },
		.max_body = r->max_body,
		.rate = (uint32_t)r->rate,
		.deny = r->deny,
		.at = "",
	};
}

const char *http_rule_format(const struct http_rule *r, char *out, size_t size)
{
	const struct l7_rule rule = l7_rule_of(r);

	return l7_rule_format(&rule, out, size);
}

static bool is_bound(const struct secret *s, const struct request *r)
{
	const struct l7_list paths = { s->paths.v, s->paths.n };

	for (size_t i = 0; i < s->hosts.n; i++)
		if (str_eq(s->hosts.v[i].name.text, r->target.name.text))
			return l7_patterns_match(&paths, r->path);
	return false;
}

static int check_rules(const struct policy *p, const struct request *r,
		       struct request_explanation *x)
{
	const struct l7_request q = { &r->target.name, r->method, r->path };
	const struct http_list *list = &p->egress.http;
	_cleanup_free_ struct l7_rule *rules = calloc(list->n + 1, sizeof(*rules));
	struct l7_verdict v;

	if (!rules)
		return -ENOMEM;
	for (size_t i = 0; i < list->n; i++)
		rules[i] = l7_rule_of(&list->v[i]);
	v = l7_check(rules, list->n, &q);
	x->allowed = x->connect.verdict.allowed && v.allowed;
	x->rule = v.rule >= 0 ? &list->v[v.rule] : NULL;
	x->near = v.near >= 0 ? &list->v[v.near] : NULL;
	return 0;
}

static bool only_reads(const char *method)
{
	return str_eq(method, "GET") || str_eq(method, "HEAD") || str_eq(method, "OPTIONS");
}

static void check_llm(const struct policy *p, const struct request *r,
		      struct request_explanation *x)
{
	struct llm_endpoint endpoint;

	for (size_t i = 0; i < p->llm.n && !x->llm; i++)
		for (size_t k = 0; k < p->llm.v[i].hosts.n; k++)
			if (str_eq(p->llm.v[i].hosts.v[k].name.text, r->target.name.text))
				x->llm = &p->llm.v[i];
	if (!x->llm)
		return;
	llm_classify((enum llm_provider)(x->llm->provider - 1), r->method, r->path, &endpoint);
	x->no_call = x->allowed && endpoint.kind == LLM_OTHER && !only_reads(r->method);
	if (x->no_call)
		x->allowed = false;
}

const char *llm_rule_format(const struct llm_rule *r, char *out, size_t size)
{
	const char *between = ", at most ";
	_cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);

	(void)buf_puts(&b, llm_words[r->provider]);
	for (size_t i = 0; i < r->models.n; i++)
		(void)buf_printf(&b, ", %s", r->models.v[i]);
	if (r->models.n == 0)
		(void)buf_puts(&b, ", every model");
	if (r->budget.requests > 0) {
		(void)buf_printf(&b, "%s%llu requests", between,
				 (unsigned long long)r->budget.requests);
		between = ", ";
	}
	if (r->budget.tokens > 0) {
		(void)buf_printf(&b, "%s%llu tokens", between,
				 (unsigned long long)r->budget.tokens);
		between = ", ";
	}
	if (r->budget.usd > 0)
		(void)buf_printf(&b, "%s$%.2f", between, (double)r->budget.usd / 1000);
	(void)snprintf(out, size, "%s", buf_text(&b));
	return out;
}

int policy_explain_request(const struct policy *p, struct policy_store *store,
			   const struct request *r, struct request_explanation *ret, struct err *e)
{
	struct request_explanation x = { .allowed = false };
	int rc = policy_explain(p, store, &r->target, &x.connect, e);

	if (rc < 0)
		return rc;
	if (check_rules(p, r, &x) < 0)
		return err_oom(e);
	check_llm(p, r, &x);
	for (size_t i = 0; x.allowed && r->tls && i < p->secrets.n; i++)
		if (is_bound(&p->secrets.v[i], r))
			x.secrets[x.n_secrets++] = &p->secrets.v[i];
	*ret = x;
	return 0;
}
