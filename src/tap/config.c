/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/config.h"

#include <string.h>

#include "base/json-util.h"
#include "base/str.h"
#include "tap/config-list.h"
#include "tap/config-llm.h"

enum {
	TEXT_MAX = 1024,
	VALUE_MAX = 64 * 1024,
	PEM_MAX = 16 * 1024,
	ROOTS_MAX = 2 * 1024 * 1024,
	HOSTS_MAX = 256,
};

static const char *const form_names[] = {
	[SECRET_BEARER] = "bearer", [SECRET_HEADER] = "header", [SECRET_BASIC] = "basic",
	[SECRET_QUERY] = "query",   [SECRET_AWS] = "aws",
};
static_assert(ARRAY_SIZE(form_names) == SECRET_FORMS, "a name for every form");

typedef int check_fn(const char *s, size_t n, struct err *e);

static int check_list(const struct l7_list *l, check_fn *check, struct err *e)
{
	for (size_t i = 0; i < l->n; i++)
		if (check(l->v[i], strlen(l->v[i]), e) < 0)
			return e->num;
	return 0;
}

static int check_host(const char *s, size_t n, struct err *e)
{
	struct name name;

	return name_parse(s, n, &name, e);
}

/* ---- secrets ---- */

static int get_form(const json_t *o, enum secret_form *ret, struct err *e)
{
	const char *text;

	if (json_get_string(o, "form", TEXT_MAX, &text, e) < 0)
		return e->num;
	for (size_t i = 0; i < ARRAY_SIZE(form_names); i++)
		if (str_eq(text, form_names[i]))
			return *ret = (enum secret_form)i, 0;
	return err_set(e, -EINVAL, "'form' is unknown");
}

static int read_secret(const json_t *o, struct tap_secret *s, struct err *e)
{
	static const char *const keys[] = { "name",   "hosts", "paths",	    "form",	   "header",
					    "format", "user",  "parameter", "placeholder", NULL };

	if (json_only_keys(o, keys, e) < 0 ||
	    json_get_string(o, "name", TEXT_MAX, &s->name, e) < 0 ||
	    json_get_string(o, "header", TEXT_MAX, &s->header, e) < 0 ||
	    json_get_string(o, "format", TEXT_MAX, &s->format, e) < 0 ||
	    json_get_string(o, "user", TEXT_MAX, &s->user, e) < 0 ||
	    json_get_string(o, "parameter", TEXT_MAX, &s->parameter, e) < 0 ||
	    json_get_string(o, "placeholder", TEXT_MAX, &s->placeholder, e) < 0 ||
	    get_form(o, &s->form, e) < 0 ||
	    tap_config_list(o, "hosts", HOSTS_MAX, &s->hosts, e) < 0 ||
	    tap_config_list(o, "paths", L7_PATTERNS_MAX, &s->paths, e) < 0 ||
	    check_list(&s->hosts, check_host, e) < 0)
		return e->num;
	return check_list(&s->paths, l7_pattern_check, e);
}

static int read_secrets(const json_t *a, struct tap_config *c, struct err *e)
{
	const size_t n = json_array_size(a);

	if (!json_is_array(a) || n > TAP_SECRETS_MAX)
		return err_set(e, -EINVAL, "'secrets' is not a list of at most %d",
			       TAP_SECRETS_MAX);
	c->secrets = calloc(MAX(n, (size_t)1), sizeof(*c->secrets));
	if (!c->secrets)
		return err_oom(e);
	for (c->n_secrets = 0; c->n_secrets < n; c->n_secrets++)
		if (read_secret(json_array_get(a, c->n_secrets), &c->secrets[c->n_secrets], e) <
		    0) {
			c->n_secrets++; /* its lists are freed too */
			return err_wrap(e, "secret %zu", c->n_secrets);
		}
	return 0;
}

static struct tap_secret *secret_named(struct tap_config *c, const char *name)
{
	for (size_t i = 0; i < c->n_secrets; i++)
		if (str_eq(c->secrets[i].name, name))
			return &c->secrets[i];
	return NULL;
}

/* The messages contain no value. */
static int read_values(json_t *o, struct tap_config *c, struct err *e)
{
	const char *name;
	json_t *value;

	if (!json_is_object(o))
		return err_set(e, -EINVAL, "'values' is not an object");
	json_object_foreach(o, name, value)
	{
		struct tap_secret *s = secret_named(c, name);

		if (!s)
			return err_set(e, -EINVAL, "'values' has a value for no secret");
		if (!json_is_string(value) || json_string_length(value) > VALUE_MAX)
			return err_set(e, -EINVAL,
				       "the value of '%s' is not a text of at most %d bytes",
				       s->name, VALUE_MAX);
		s->value = json_string_value(value);
	}
	return 0;
}

/* ---- rules ---- */

static int read_rule(const json_t *o, struct l7_rule *r, struct err *e)
{
	static const char *const keys[] = { "host", "methods", "paths", "max_body",
					    "rate", "deny",    "at",	NULL };
	const char *host;
	uint64_t rate = 0;

	if (json_only_keys(o, keys, e) < 0 || json_get_string(o, "host", TEXT_MAX, &host, e) < 0 ||
	    json_get_string(o, "at", TEXT_MAX, &r->at, e) < 0 ||
	    json_get_u64(o, "max_body", INT64_MAX, &r->max_body, e) < 0 ||
	    json_get_u64(o, "rate", L7_RATE_MAX, &rate, e) < 0 ||
	    json_get_bool(o, "deny", &r->deny, e) < 0 ||
	    tap_config_list(o, "methods", L7_METHODS_MAX, &r->methods, e) < 0 ||
	    tap_config_list(o, "paths", L7_PATTERNS_MAX, &r->paths, e) < 0 ||
	    rule_parse(host, strlen(host), &r->host, e) < 0)
		return e->num;
	r->rate = (uint32_t)rate;
	if (r->host.kind == RULE_ADDR || r->host.port != 0)
		return err_set(e, -EINVAL, "'host' is not a name");
	return check_list(&r->methods, l7_method_check, e) < 0
		       ? e->num
		       : check_list(&r->paths, l7_pattern_check, e);
}

static int read_rules(const json_t *a, struct tap_config *c, struct err *e)
{
	const size_t n = json_array_size(a);

	if (!json_is_array(a) || n > L7_RULES_MAX)
		return err_set(e, -EINVAL, "'http' is not a list of at most %d", L7_RULES_MAX);
	c->http = calloc(MAX(n, (size_t)1), sizeof(*c->http));
	if (!c->http)
		return err_oom(e);
	for (c->n_http = 0; c->n_http < n; c->n_http++)
		if (read_rule(json_array_get(a, c->n_http), &c->http[c->n_http], e) < 0) {
			c->n_http++;
			return err_wrap(e, "rule %zu", c->n_http);
		}
	return 0;
}

/* ---- all ---- */

static int read_all(json_t *o, struct tap_config *c, struct err *e)
{
	static const char *const keys[] = {
		"secrets", "http", "llm", "values", "roots", "ca", NULL
	};
	static const char *const ca_keys[] = { "cert", "key", NULL };
	const json_t *ca = json_object_get(o, "ca");

	if (json_only_keys(o, keys, e) < 0 ||
	    read_secrets(json_object_get(o, "secrets"), c, e) < 0 ||
	    read_rules(json_object_get(o, "http"), c, e) < 0 ||
	    tap_config_llm(json_object_get(o, "llm"), c, e) < 0 ||
	    read_values(json_object_get(o, "values"), c, e) < 0 ||
	    json_get_string(o, "roots", ROOTS_MAX, &c->roots, e) < 0 ||
	    json_only_keys(ca, ca_keys, e) < 0 ||
	    json_get_string(ca, "cert", TAP_CA_MAX, &c->ca_cert, e) < 0)
		return e->num;
	return json_get_string(ca, "key", PEM_MAX, &c->ca_key, e);
}

int tap_config_parse(const char *text, size_t n, struct tap_config *ret, struct err *e)
{
	struct tap_config c = { 0 };
	json_t *j;

	if (n > TAP_CONFIG_MAX)
		return err_set(e, -E2BIG, "the configuration is longer than %d bytes",
			       TAP_CONFIG_MAX);
	if (json_read(text, n, &j, e) < 0)
		/* Its message may quote the text, which holds values. */
		return err_set(e, -EINVAL, "the configuration is not JSON");
	c.json = j;
	if (read_all(j, &c, e) < 0) {
		tap_config_done(&c);
		return err_wrap(e, "the configuration");
	}
	*ret = c;
	return 0;
}

/* jansson has no writable access; the text is its own copy on the heap. */
static void wipe(const char *text)
{
	if (text)
		explicit_bzero((char *)text, strlen(text));
}

static void wipe_values(json_t *o)
{
	const char *name;
	json_t *value;

	json_object_foreach(o, name, value)
	{
		wipe(json_string_value(value));
	}
}

void tap_config_done(struct tap_config *c)
{
	json_t *j = c->json;

	wipe_values(json_object_get(j, "values"));
	wipe(json_string_value(json_object_get(json_object_get(j, "ca"), "key")));
	for (size_t i = 0; i < c->n_secrets; i++) {
		free((void *)c->secrets[i].hosts.v);
		free((void *)c->secrets[i].paths.v);
	}
	for (size_t i = 0; i < c->n_http; i++) {
		free((void *)c->http[i].methods.v);
		free((void *)c->http[i].paths.v);
	}
	tap_config_llm_done(c);
	free(c->secrets);
	free(c->http);
	json_decref(j);
	*c = (struct tap_config){ 0 };
}
