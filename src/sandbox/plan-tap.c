/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/plan-tap.h"

#include <string.h>
#include <sys/random.h>

#include "base/str.h"
#include "sandbox/sandbox.h"
#include "secret/secret.h"
#include "tap-link/tap-link.h"

static_assert((int)POLICY_SECRETS_MAX == (int)TAP_SECRETS_MAX, "hutch-tap takes every secret");
static_assert((int)POLICY_LLM_MAX == (int)TAP_LLM_MAX, "hutch-tap takes every rule");
static_assert((int)POLICY_SECRET_NAME_MAX == (int)SECRET_NAME_MAX, "the store takes every name");

enum {
	PLACEHOLDER_MAX = 128,
	VARIABLES_MAX = 2, /* per secret */
	MICRO = 1000,	   /* millionths of a dollar in a thousandth */
	/* Leaves room for the placeholders. */
	TEXT_MAX = SPEC_TAP_MAX - 2 * PLACEHOLDER_MAX * POLICY_SECRETS_MAX,
};

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT "0123456789"

/* ---- variables for the CA ---- */

#define BUNDLE "/etc/hutch/bundle.pem"

/* hutch-guest writes both files. */
static const char *const ca_env[] = {
	"NODE_EXTRA_CA_CERTS=/etc/hutch/ca.pem",
	"SSL_CERT_FILE=" BUNDLE,
	"REQUESTS_CA_BUNDLE=" BUNDLE,
	"CURL_CA_BUNDLE=" BUNDLE,
	"GIT_SSL_CAINFO=" BUNDLE,
	"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=" BUNDLE,
	"CODEX_CA_CERTIFICATE=" BUNDLE,
	"PIP_CERT=" BUNDLE,
	"AWS_CA_BUNDLE=" BUNDLE,
	"DENO_CERT=" BUNDLE,
	"NIX_SSL_CERT_FILE=" BUNDLE,
};

static bool has_tap(const struct spec *s)
{
	return s->tap && s->tap[0];
}

size_t plan_tap_env_max(const struct spec *s)
{
	return has_tap(s) ? ARRAY_SIZE(ca_env) + VARIABLES_MAX * s->tap_secrets.n : 0;
}

void plan_tap_env_first(const struct spec *s, void (*set)(struct spec_list *, const char *),
			struct spec_list *env)
{
	for (size_t i = 0; has_tap(s) && i < ARRAY_SIZE(ca_env); i++)
		set(env, ca_env[i]);
}

/* ---- placeholders ---- */

/* Programs check the form of some keys. */
static const struct shape {
	const char *name; /* secret; NULL: every other one */
	const char *prefix, *letters;
	size_t random;
} shapes[] = {
	{ "ANTHROPIC_API_KEY", "sk-ant-api03-", UPPER LOWER DIGIT, 95 },
	{ "CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-", UPPER LOWER DIGIT, 95 },
	{ "OPENAI_API_KEY", "sk-", UPPER LOWER DIGIT, 48 },
	{ "CODEX_API_KEY", "sk-", UPPER LOWER DIGIT, 48 },
	{ "GITHUB_TOKEN", "ghp_", UPPER LOWER DIGIT, 36 },
	{ "GH_TOKEN", "ghp_", UPPER LOWER DIGIT, 36 },
	{ "GITLAB_TOKEN", "glpat-", UPPER LOWER DIGIT, 20 },
	{ "GEMINI_API_KEY", "AIza", UPPER LOWER DIGIT, 35 },
	{ "GOOGLE_API_KEY", "AIza", UPPER LOWER DIGIT, 35 },
	{ "NPM_TOKEN", "npm_", UPPER LOWER DIGIT, 36 },
	{ NULL, "hutch-placeholder-", LOWER DIGIT, 24 },
};

static const struct shape aws_id = { NULL, "AKIA", UPPER "234567", 16 };
static const struct shape aws_key = { NULL, "", UPPER LOWER DIGIT, 40 };

static int draw(const struct shape *shape, char out[static PLACEHOLDER_MAX])
{
	size_t n = strlen(shape->prefix), letters = strlen(shape->letters);
	uint16_t random[PLACEHOLDER_MAX] = { 0 };
	const size_t bytes = shape->random * sizeof(random[0]);

	static_assert(sizeof(random) <= 256, "getrandom() returns all bytes");
	assert(n + shape->random < PLACEHOLDER_MAX);
	if (RETRY_EINTR(getrandom(random, bytes, 0)) != (ssize_t)bytes)
		return -EIO;
	memcpy(out, shape->prefix, n);
	for (size_t i = 0; i < shape->random; i++)
		out[n++] = shape->letters[random[i] % letters];
	out[n] = '\0';
	return 0;
}

/* A secret of a plan: the names of its variables. Programs look for an AWS key in two. */
struct bound {
	const char *name, *placeholder;
	const char *variable[VARIABLES_MAX];
	const struct shape *shape[VARIABLES_MAX];
	size_t n;
};

static struct bound bound_of(const json_t *secret)
{
	const char *form = json_string_value(json_object_get(secret, "form"));
	struct bound b = {
		.name = json_string_value(json_object_get(secret, "name")),
		.placeholder = json_string_value(json_object_get(secret, "placeholder")),
		.n = 1,
	};
	const struct shape *shape = shapes;

	assert(b.name); /* the plan's own, or spec_parse() has checked it */
	if (form && str_eq(form, auth_form_names[AUTH_AWS]))
		return (struct bound){ b.name,
				       b.placeholder,
				       { "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY" },
				       { &aws_id, &aws_key },
				       2 };
	while (shape->name && !str_eq(shape->name, b.name))
		shape++;
	b.variable[0] = b.name;
	b.shape[0] = shape;
	return b;
}

/* Is `text` NAME=value of that name? */
static bool names(const char *text, const char *name)
{
	size_t n = strlen(name);

	return strncmp(text, name, n) == 0 && text[n] == '=';
}

static const char *value_of(const struct spec_list *env, const char *name)
{
	for (size_t i = 0; i < env->n; i++)
		if (names(env->v[i], name))
			return env->v[i] + strlen(name) + 1;
	return NULL;
}

static json_t *read_tap(const struct spec *s)
{
	struct err ignored = ERR_INIT;
	json_t *j = NULL;

	return has_tap(s) && json_read(s->tap, strlen(s->tap), &j, &ignored) == 0 ? j : NULL;
}

/* How rewrite() chooses each placeholder. */
struct filling {
	bool blank;
	const struct spec *was;
	json_t *was_tap;
};

/* The secret of that name and kind in the earlier spec. */
static const json_t *find_was(const struct filling *f, const struct bound *b)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(f->was_tap, "secrets"), i, one)
	{
		struct bound was = bound_of(one);

		if (str_eq(was.name, b->name) && was.n == b->n && was.placeholder)
			return one;
	}
	return NULL;
}

static int value_for(const struct filling *f, const struct bound *b, size_t i,
		     char out[static PLACEHOLDER_MAX])
{
	const json_t *one = f->blank || !f->was ? NULL : find_was(f, b);
	const char *was = "";

	if (one)
		was = i == 0 ? bound_of(one).placeholder : value_of(&f->was->env, b->variable[i]);
	if (!f->blank && (!one || !was || strlen(was) >= PLACEHOLDER_MAX))
		return draw(b->shape[i], out);
	memcpy(out, was, strlen(was) + 1);
	return 0;
}

static int set_variable(struct spec_list *env, const char *name, const char *value, struct arena *a)
{
	size_t size = strlen(name) + strlen(value) + 2;
	char *text = arena_alloc(a, size);

	if (!text)
		return -ENOMEM;
	(void)snprintf(text, size, "%s=%s", name, value);
	for (size_t i = 0; i < env->n; i++)
		if (names(env->v[i], name))
			env->v[i] = text;
	return 0;
}

/* Rewrites the placeholders in `tap` and `env`. */
static int rewrite(const struct filling *f, struct arena *a, struct spec *s)
{
	_cleanup_json_ json_t *j = read_tap(s);
	_cleanup_free_ char *text = NULL;
	struct spec_list env = s->env;
	json_t *one;
	size_t i;

	if (!j)
		return has_tap(s) ? -ENOMEM : 0;
	env.v = arena_calloc(a, env.n + 1, sizeof(env.v[0]));
	if (!env.v)
		return -ENOMEM;
	memcpy(env.v, s->env.v, env.n * sizeof(env.v[0]));
	json_array_foreach(json_object_get(j, "secrets"), i, one)
	{
		const struct bound b = bound_of(one);
		char value[PLACEHOLDER_MAX];

		for (size_t k = 0; k < b.n; k++) {
			int r = value_for(f, &b, k, value);

			if (r == 0)
				r = set_variable(&env, b.variable[k], value, a);
			if (r == 0 && k == 0)
				r = json_put(one, "placeholder", json_string(value));
			if (r < 0)
				return r;
		}
	}
	text = json_write_canonical(j);
	s->tap = text ? arena_strdup(a, text) : NULL;
	s->env = env;
	return s->tap ? 0 : -ENOMEM;
}

int plan_tap_blank(struct arena *a, struct spec *s)
{
	return rewrite(&(struct filling){ .blank = true }, a, s);
}

int plan_tap_fill(const struct spec *was, struct arena *a, struct spec *s)
{
	_cleanup_json_ json_t *was_tap = was ? read_tap(was) : NULL;

	return rewrite(&(struct filling){ .was = was, .was_tap = was_tap }, a, s);
}

/* ---- the variables of secrets ---- */

int sandbox_check_env(const struct spec *s, const char *const *env, size_t n, struct err *e)
{
	_cleanup_json_ json_t *j = read_tap(s);
	json_t *one;
	size_t i;

	json_array_foreach(json_object_get(j, "secrets"), i, one)
	{
		const struct bound b = bound_of(one);

		for (size_t k = 0; k < b.n; k++)
			for (size_t m = 0; m < n; m++)
				if (names(env[m], b.variable[k]))
					return err_set(e, -EINVAL,
						       "cannot set %s: agent '%s' has the secret "
						       "'%s', whose value stays outside the "
						       "sandbox; do not pass it, or use another "
						       "agent",
						       b.variable[k], s->agent, b.name);
	}
	return 0;
}

int plan_tap_env_last(const struct spec *s, struct arena *a,
		      void (*set)(struct spec_list *, const char *), struct spec_list *env,
		      struct err *e)
{
	_cleanup_json_ json_t *j = read_tap(s);
	json_t *one;
	size_t i;

	if (!j)
		return has_tap(s) ? err_oom(e) : 0;
	json_array_foreach(json_object_get(j, "secrets"), i, one)
	{
		const struct bound b = bound_of(one);

		for (size_t k = 0; k < b.n; k++) {
			size_t size = strlen(b.variable[k]) + 2;
			char *text = arena_alloc(a, size);

			if (!text)
				return err_oom(e);
			(void)snprintf(text, size, "%s=", b.variable[k]);
			set(env, text);
		}
	}
	return 0;
}

/* ---- the plan ---- */

static json_t *hosts_json(const struct secret *s)
{
	json_t *a = json_array();
	int r = a ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < s->hosts.n; i++)
		r = json_push(a, json_string(s->hosts.v[i].name.text));
	if (r == 0)
		return a;
	json_decref(a);
	return NULL;
}

static json_t *text_json(const struct located *l)
{
	return json_string(l->text ? l->text : "");
}

static json_t *secret_json(const struct secret *s)
{
	return JSON_OBJECT({ "name", json_string(s->name) }, { "hosts", hosts_json(s) },
			   { "paths", json_texts(s->paths.v, s->paths.n) },
			   { "form", json_string(auth_form_names[s->form]) },
			   { "header", text_json(&s->header) }, { "format", text_json(&s->format) },
			   { "user", text_json(&s->user) },
			   { "parameter", text_json(&s->parameter) },
			   { "placeholder", json_string("") });
}

/* The sandbox sees this text in responses: no directories of the host. */
static const char *place_of(struct pos pos, char *out, size_t size)
{
	const char *file = pos.src->label, *slash = strrchr(file, '/');

	(void)snprintf(out, size, "%s:%u", slash ? slash + 1 : file, pos.line);
	str_make_utf8(out);
	return out;
}

static json_t *rule_json(const struct http_rule *r)
{
	char host[RULE_TEXT_MAX], at[512];

	(void)place_of(r->pos, at, sizeof(at));
	return JSON_OBJECT({ "host", json_string(rule_format_host(&r->host, host)) },
			   { "methods", json_texts(r->methods.v, r->methods.n) },
			   { "paths", json_texts(r->paths.v, r->paths.n) },
			   { "max_body", json_number(r->max_body) },
			   { "rate", json_number(r->rate) }, { "deny", json_boolean(r->deny) },
			   { "at", json_string(at) });
}

/* 1 if the secret has a value, 0 if it is optional and has none. */
static int check_secret(const struct secret_store *store, const struct secret *s, struct err *e)
{
	int r = secret_has(store, s->name, e);

	if (r == 0 && !s->optional)
		/* Not -EINVAL: it is the operator's to do, and not for API clients to see. */
		return err_set(e, -ENOKEY,
			       "secret '%s' has no value: set it with 'hutch secret set %s'",
			       s->name, s->name);
	for (size_t i = 0; r > 0 && i < s->hosts.n; i++)
		secret_note_host(store, s->name, s->hosts.v[i].name.text);
	return r;
}

static int add_text(struct spec_list *list, const char *text, struct arena *a)
{
	for (size_t i = 0; i < list->n; i++)
		if (str_eq(list->v[i], text))
			return 0;
	list->v[list->n] = arena_strdup(a, text);
	return list->v[list->n++] ? 0 : -ENOMEM;
}

static size_t count_hosts(const struct policy *p)
{
	size_t n = p->egress.http.n;

	for (size_t i = 0; i < p->secrets.n; i++)
		n += p->secrets.v[i].hosts.n;
	for (size_t i = 0; i < p->llm.n; i++)
		n += p->llm.v[i].hosts.n;
	return n;
}

/* Adds the secrets with a value to the plan and to `array`. */
static int take_secrets(const struct policy *p, json_t *array, struct arena *a, struct spec *s,
			struct err *e)
{
	_cleanup_secret_store_ struct secret_store store = SECRET_STORE_INIT;
	int r = p->secrets.n > 0 ? secret_store_open(false, &store, e) : 0;

	for (size_t i = 0; r >= 0 && i < p->secrets.n; i++) {
		const struct secret *one = &p->secrets.v[i];

		r = check_secret(&store, one, e);
		if (r <= 0)
			continue;
		if (json_push(array, secret_json(one)) < 0 ||
		    add_text(&s->tap_secrets, one->name, a) < 0)
			return err_oom(e);
		for (size_t k = 0; k < one->hosts.n; k++)
			if (add_text(&s->tap_hosts, one->hosts.v[k].name.text, a) < 0)
				return err_oom(e);
	}
	return r < 0 ? r : 0;
}

static int take_rules(const struct policy *p, json_t *array, struct arena *a, struct spec *s)
{
	char host[RULE_TEXT_MAX];

	for (size_t i = 0; i < p->egress.http.n; i++) {
		const struct http_rule *one = &p->egress.http.v[i];

		if (json_push(array, rule_json(one)) < 0 ||
		    add_text(&s->tap_hosts, rule_format_host(&one->host, host), a) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* ---- models ---- */

static json_t *price_json(const char *model, uint64_t input, uint64_t cached, uint64_t cache_write,
			  uint64_t output)
{
	return JSON_OBJECT({ "model", json_string(model) }, { "input", json_number(input) },
			   { "cached", json_number(cached) },
			   { "cache_write", json_number(cache_write) },
			   { "output", json_number(output) });
}

/* Without prices for the parts of the input, they cost as much as the rest. */
static json_t *own_price_json(const struct llm_rule *r)
{
	const uint64_t input = r->price.input * MICRO;

	return price_json("*", input, r->price.cached > 0 ? r->price.cached * MICRO : input, input,
			  r->price.output * MICRO);
}

static json_t *llm_rule_json(const struct llm_rule *r)
{
	const struct secret hosts = { .hosts = r->hosts };
	char at[512];
	_cleanup_json_ json_t *j = JSON_OBJECT(
		{ "provider", json_string(llm_words[r->provider]) },
		{ "hosts", hosts_json(&hosts) }, { "models", json_texts(r->models.v, r->models.n) },
		{ "requests", json_number(r->budget.requests) },
		{ "tokens", json_number(r->budget.tokens) },
		{ "usd", json_number(r->budget.usd * MICRO) },
		{ "at", json_string(place_of(r->pos, at, sizeof(at))) });

	if (j && r->price.set && json_put(j, "price", own_price_json(r)) < 0)
		return NULL;
	return TAKE_PTR(j);
}

static json_t *prices_json(const struct policy *p)
{
	json_t *a = json_array();

	for (size_t i = 0; a && i < p->prices.n; i++) {
		const struct price *one = &p->prices.v[i];

		if (json_push(a, price_json(one->model, one->input,
					    one->cached > 0 ? one->cached : one->input,
					    one->cache_write > 0 ? one->cache_write : one->input,
					    one->output)) < 0) {
			json_decref(a);
			return NULL;
		}
	}
	return a;
}

static int take_llm(const struct policy *p, json_t *j, struct arena *a, struct spec *s)
{
	json_t *rules = json_array();
	int r;

	if (p->llm.n == 0) {
		json_decref(rules);
		return 0;
	}
	r = json_put(j, "llm", JSON_OBJECT({ "rules", rules }, { "prices", prices_json(p) }));
	for (size_t i = 0; r == 0 && i < p->llm.n; i++) {
		const struct llm_rule *one = &p->llm.v[i];

		r = json_push(rules, llm_rule_json(one));
		for (size_t k = 0; r == 0 && k < one->hosts.n; k++)
			r = add_text(&s->tap_hosts, one->hosts.v[k].name.text, a);
	}
	return r;
}

int plan_tap(const struct policy *p, struct arena *a, struct spec *s, struct err *e)
{
	json_t *secrets = json_array(), *http = json_array();
	_cleanup_json_ json_t *j = JSON_OBJECT({ "secrets", secrets }, { "http", http });
	_cleanup_free_ char *text = NULL;
	int r;

	s->tap_hosts = (struct spec_list){ arena_calloc(a, count_hosts(p) + 1, sizeof(char *)), 0 };
	s->tap_secrets = (struct spec_list){ arena_calloc(a, p->secrets.n + 1, sizeof(char *)), 0 };
	if (!j || !s->tap_hosts.v || !s->tap_secrets.v)
		return err_oom(e);
	r = take_secrets(p, secrets, a, s, e);
	if (r < 0)
		return r;
	if (take_rules(p, http, a, s) < 0 || take_llm(p, j, a, s) < 0)
		return err_oom(e);
	if (s->tap_hosts.n == 0)
		return 0;
	text = json_write_canonical(j);
	if (text && strlen(text) > TEXT_MAX)
		return err_set(e, -E2BIG,
			       "the secrets and egress.http rules of agent '%s' are too large: "
			       "%zu bytes, at most %d; use fewer or shorter paths",
			       p->name, strlen(text), TEXT_MAX);
	s->tap = text ? arena_strdup(a, text) : NULL;
	return s->tap ? 0 : err_oom(e);
}
