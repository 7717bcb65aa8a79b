/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/config-llm.h"

#include <string.h>

#include "base/json-util.h"
#include "base/str.h"
#include "tap/config-list.h"

enum {
	HOSTS_MAX = 64,
	MODELS_MAX = 64,
	PRICES_MAX = 256,
	AT_MAX = 1024,
};

static int read_provider(const json_t *o, enum llm_provider *ret, struct err *e)
{
	const char *text;

	if (json_get_string(o, "provider", AT_MAX, &text, e) < 0)
		return e->num;
	for (size_t i = 0; i < LLM_PROVIDERS; i++)
		if (str_eq(text, llm_provider_names[i]))
			return *ret = (enum llm_provider)i, 0;
	return err_set(e, -EINVAL, "'provider' is unknown");
}

static int read_price(const json_t *o, struct llm_price *p, struct err *e)
{
	static const char *const keys[] = { "model",	   "input",  "cached",
					    "cache_write", "output", NULL };

	if (json_only_keys(o, keys, e) < 0 ||
	    json_get_string(o, "model", LLM_MODEL_MAX, &p->model, e) < 0 ||
	    json_get_u64(o, "input", INT64_MAX, &p->input, e) < 0 ||
	    json_get_u64(o, "cached", INT64_MAX, &p->cached, e) < 0 ||
	    json_get_u64(o, "cache_write", INT64_MAX, &p->cache_write, e) < 0)
		return e->num;
	return json_get_u64(o, "output", INT64_MAX, &p->output, e);
}

static int read_prices(const json_t *a, struct tap_config *c, struct err *e)
{
	const size_t n = json_array_size(a);

	if (!json_is_array(a) || n > PRICES_MAX)
		return err_set(e, -EINVAL, "'prices' is not a list of at most %d", PRICES_MAX);
	c->prices = calloc(MAX(n, (size_t)1), sizeof(*c->prices));
	if (!c->prices)
		return err_oom(e);
	for (; c->n_prices < n; c->n_prices++)
		if (read_price(json_array_get(a, c->n_prices), &c->prices[c->n_prices], e) < 0)
			return err_wrap(e, "price %zu", c->n_prices + 1);
	return 0;
}

static int read_rule(const json_t *o, struct tap_llm *r, struct err *e)
{
	static const char *const keys[] = { "provider", "hosts", "models", "requests", "tokens",
					    "usd",	"price", "at",	   NULL };
	const json_t *price = json_object_get(o, "price");

	if (json_only_keys(o, keys, e) < 0 || read_provider(o, &r->provider, e) < 0 ||
	    tap_config_list(o, "hosts", HOSTS_MAX, &r->hosts, e) < 0 ||
	    tap_config_list(o, "models", MODELS_MAX, &r->models, e) < 0 ||
	    json_get_u64(o, "requests", INT64_MAX, &r->requests, e) < 0 ||
	    json_get_u64(o, "tokens", INT64_MAX, &r->tokens, e) < 0 ||
	    json_get_u64(o, "usd", INT64_MAX, &r->usd, e) < 0 ||
	    json_get_string(o, "at", AT_MAX, &r->at, e) < 0)
		return e->num;
	r->has_price = price != NULL;
	return price ? read_price(price, &r->price, e) : 0;
}

int tap_config_llm(const json_t *o, struct tap_config *c, struct err *e)
{
	static const char *const keys[] = { "rules", "prices", NULL };
	const json_t *rules = json_object_get(o, "rules");
	const size_t n = json_array_size(rules);

	if (!o)
		return 0;
	if (json_only_keys(o, keys, e) < 0 || read_prices(json_object_get(o, "prices"), c, e) < 0)
		return e->num;
	if (!json_is_array(rules) || n > TAP_LLM_MAX)
		return err_set(e, -EINVAL, "'rules' is not a list of at most %d", TAP_LLM_MAX);
	c->llm = calloc(MAX(n, (size_t)1), sizeof(*c->llm));
	if (!c->llm)
		return err_oom(e);
	for (c->n_llm = 0; c->n_llm < n; c->n_llm++)
		if (read_rule(json_array_get(rules, c->n_llm), &c->llm[c->n_llm], e) < 0) {
			c->n_llm++; /* its lists are freed too */
			return err_wrap(e, "rule %zu of llm", c->n_llm);
		}
	return 0;
}

void tap_config_llm_done(struct tap_config *c)
{
	for (size_t i = 0; i < c->n_llm; i++) {
		free((void *)c->llm[i].hosts.v);
		free((void *)c->llm[i].models.v);
	}
	free(c->llm);
	free(c->prices);
}
