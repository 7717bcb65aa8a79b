/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/gateway.h"

#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "tap/unzip.h"

enum {
	OUT_MAX = 4 * 1024 * 1024, /* a piece of a response, and the end of its stream */
	STATUS_ERROR = 400,
	STATUS_UPGRADE_REQUIRED = 426,
};

static const struct tap_llm *rule_of(const struct gateway *g)
{
	return &g->conf->config->llm[g->rule];
}

int gateway_rule_of(const struct tap_config *c, const struct name *host)
{
	for (size_t i = 0; host && i < c->n_llm; i++)
		for (size_t k = 0; k < c->llm[i].hosts.n; k++)
			if (str_eq(c->llm[i].hosts.v[k], host->text))
				return (int)i;
	return -1;
}

/* ---- the head ---- */

static int begin(struct call *c, const struct request *q, int rule)
{
	struct gateway *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->conf = c->conf;
	g->rule = (size_t)rule;
	g->out = (struct buf)BUF_INIT(OUT_MAX);
	llm_classify(rule_of(g)->provider, q->method, request_rule_path(q), &g->endpoint);
	c->gateway = g;
	return 0;
}

/* GET of another path reads, and gets no key. Other requests could use models in ways that are not
 * counted, such as batches. */
static bool only_reads(const struct request *q)
{
	return str_eq(q->method, "GET") || str_eq(q->method, "HEAD") ||
	       str_eq(q->method, "OPTIONS");
}

/* 0 with *ret_gzip, or -EBADMSG: another coding, or several. */
static int read_coding(const struct request *q, bool *ret_gzip)
{
	size_t count = 0;
	const struct head_field *f = head_find((struct head *)&q->head, "content-encoding", &count);

	*ret_gzip = f && f->value.n == 4 && strncasecmp(f->value.s, "gzip", 4) == 0;
	if (!f || (count == 1 && *ret_gzip))
		return 0;
	return count == 1 && f->value.n == 8 && strncasecmp(f->value.s, "identity", 8) == 0
		       ? 0
		       : -EBADMSG;
}

int gateway_admit(struct call *c, const struct request *q, struct injection *ret,
		  struct refusal *why)
{
	const int rule = gateway_rule_of(c->conf->config, c->conf->host);
	int r = rule < 0 ? 0 : begin(c, q, rule);

	if (rule < 0 || r < 0)
		return r;
	/* Codex tries this first, and continues with POST after a 426. */
	if (q->websocket)
		return refuse(why, TAP_LLM, STATUS_UPGRADE_REQUIRED,
			      "models are called by HTTP requests here, not over a WebSocket");
	if (c->gateway->endpoint.kind == LLM_LIST ||
	    (c->gateway->endpoint.kind == LLM_OTHER && only_reads(q)))
		return 0;
	if (c->gateway->endpoint.kind == LLM_OTHER)
		return refuse(why, TAP_LLM, 403,
			      "%s %.80s is not a call of a model that Hutch knows: rule %s allows "
			      "no other request",
			      q->method, q->path, rule_of(c->gateway)->at);
	if (q->framing == FRAMING_NONE)
		return refuse(why, TAP_LLM, 400, "a call of a model needs a body");
	if (read_coding(q, &c->gateway->gzip) < 0)
		return refuse(
			why, TAP_LLM, 400,
			"the body of a call has another coding than gzip: the model is read in "
			"it");
	c->collected.max = GATEWAY_BODY_MAX;
	ret->need_body = true;
	return 0;
}

/* ---- the body ---- */

static bool may_call(const struct tap_llm *rule, const char *model)
{
	for (size_t i = 0; i < rule->models.n; i++)
		if (llm_model_match(rule->models.v[i], model))
			return true;
	return rule->models.n == 0;
}

/* The names in the list, for a message. */
static const char *list_models(const struct tap_llm *rule, char *out, size_t size)
{
	size_t n = 0;

	out[0] = '\0';
	for (size_t i = 0; i < rule->models.n && n + LLM_MODEL_MAX / 2 < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%.*s", i > 0 ? ", " : "",
				      LLM_MODEL_MAX / 2 - 4, rule->models.v[i]);
	return out;
}

static void feed(void *arg, const char *data, size_t n)
{
	llm_request_feed(arg, data, n);
}

static int read_body(struct gateway *g, const struct buf *body, struct llm_request *q,
		     struct refusal *why)
{
	const char *reason = NULL;
	char models[120];
	int r = 0;

	llm_request_init(q);
	if (g->gzip)
		r = unzip(buf_text(body), body->len, GATEWAY_BODY_MAX, feed, q);
	else
		llm_request_feed(q, buf_text(body), body->len);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		return refuse(why, TAP_LLM, 400, "the call is refused: its body is %s",
			      r == -E2BIG ? "too large once decompressed"
					  : "not one whole gzip text");
	if (llm_request_end(q, &g->endpoint, &reason) < 0)
		return refuse(why, TAP_LLM, 400, "the call is refused: %s", reason);
	memcpy(g->model, q->model, sizeof(g->model));
	str_make_utf8(g->model);
	g->is_named = true;
	if (!may_call(rule_of(g), q->model))
		return refuse(why, TAP_LLM, 400, "model %.64s is not allowed: rule %s allows %s",
			      g->model, rule_of(g)->at,
			      list_models(rule_of(g), models, sizeof(models)));
	return 0;
}

static void find_price(struct gateway *g)
{
	const struct tap_config *config = g->conf->config;
	const struct tap_llm *rule = rule_of(g);
	const struct llm_price *p =
		rule->has_price ? &rule->price
				: llm_price_of(config->prices, config->n_prices, g->model);

	if (!p)
		return;
	g->has_price = true;
	g->price = *p;
	g->price.model = NULL;
}

static uint64_t cost(const struct gateway *g, uint64_t input, uint64_t output)
{
	/* A cache may be written: that is the highest price of input. */
	const uint64_t dear = MAX(g->price.input, g->price.cache_write);
	const struct llm_price p = { .input = dear, .output = g->price.output };
	const struct llm_usage u = { .input = input, .output = output };

	return g->has_price ? llm_cost(&p, &u) : 0;
}

static int ask(struct gateway *g, const struct llm_request *q, struct refusal *why)
{
	const uint64_t limit = llm_request_output(q);
	const uint64_t output =
		limit > 0 ? MIN(limit, (uint64_t)GATEWAY_OUTPUT_MAX) : GATEWAY_OUTPUT_MAX;
	struct tap_reserve r = { .rule = (uint32_t)g->rule };

	g->input = llm_uses_tokens(g->endpoint.kind) ? llm_request_input(q) : 0;
	r.least_tokens = g->input;
	r.least_usd = cost(g, g->input, 0);
	if (llm_uses_tokens(g->endpoint.kind)) {
		r.tokens = g->input + output;
		r.usd = cost(g, g->input, output);
	}
	if (g->conf->reserve(g->conf->arg, g, &r) < 0)
		return refuse(why, TAP_FAULT, 503, "the budget cannot be asked now");
	g->state = GATEWAY_WAITS;
	return 1;
}

int gateway_review(struct call *c, struct refusal *why)
{
	struct gateway *g = c->gateway;
	struct llm_request *q;
	int r;

	if (!g || g->state == GATEWAY_GRANTED)
		return 0;
	if (g->state == GATEWAY_REFUSED)
		return refuse(why, TAP_BUDGET, 400, "%s", g->grant.text);
	if (g->state == GATEWAY_WAITS)
		return 1;
	q = malloc(sizeof(*q));
	if (!q)
		return -ENOMEM;
	r = read_body(g, &c->collected, q, why);
	if (r == 0) {
		find_price(g);
		if (rule_of(g)->usd > 0 && !g->has_price)
			r = refuse(why, TAP_LLM, 400,
				   "model %.64s has no known price, and rule %s has a budget in "
				   "dollars: add a price to the rule",
				   g->model, rule_of(g)->at);
		else if (tap_llm_has_budget(rule_of(g)) && g->conf->reserve)
			r = ask(g, q, why);
		else
			g->state = GATEWAY_GRANTED;
	}
	free(q);
	return r;
}

void gateway_answer(struct gateway *g, const struct tap_grant *grant)
{
	g->grant = *grant;
	g->state = grant->granted ? GATEWAY_GRANTED : GATEWAY_REFUSED;
}

/* ---- the response ---- */

static bool is_events(const struct head *h)
{
	static const char type[] = "text/event-stream";
	const struct head_field *f = head_find((struct head *)h, "content-type", NULL);

	return f && f->value.n >= sizeof(type) - 1 &&
	       strncasecmp(f->value.s, type, sizeof(type) - 1) == 0;
}

int gateway_response(struct gateway *g, struct response *r)
{
	g->is_refused = r->status >= STATUS_ERROR;
	if (g->state != GATEWAY_GRANTED || !llm_uses_tokens(g->endpoint.kind) || g->is_refused ||
	    response_is_compressed(r))
		return 0;
	g->reader = malloc(sizeof(*g->reader));
	if (!g->reader)
		return -ENOMEM;
	llm_reader_init(g->reader, g->endpoint.kind, is_events(&r->head));
	return 0;
}

/* Has the answer so far used more than was granted? */
static bool is_over(const struct gateway *g)
{
	const struct llm_usage u = llm_reader_usage(g->reader, g->input);

	if (!tap_llm_has_budget(rule_of(g)))
		return false;
	return llm_usage_tokens(&u) > g->grant.tokens ||
	       (g->has_price && llm_cost(&g->price, &u) > g->grant.usd);
}

/* The stream ends here, as the API would end it. */
static int cut(struct gateway *g, const char **data, size_t *n, size_t at)
{
	g->is_cut = true;
	buf_reset(&g->out);
	(void)buf_put(&g->out, *data, at);
	(void)llm_reader_close(g->reader, g->model, &g->out);
	*data = buf_text(&g->out);
	*n = g->out.len;
	return g->out.err ? -ENOMEM : 0;
}

int gateway_read(struct gateway *g, const char **data, size_t *n)
{
	size_t at = 0;
	bool ends;

	if (g->is_cut)
		*n = 0;
	while (g->reader && at < *n) {
		at += llm_reader_feed(g->reader, *data + at, *n - at, &ends);
		if (ends && !g->reader->is_ended && is_over(g))
			return cut(g, data, n, at);
	}
	return 0;
}

/* ---- the end ---- */

/* Did the server not serve the request? The sandbox has no influence on that. */
static bool is_failure(enum tap_result r)
{
	return r == TAP_SERVER_TRUST || r == TAP_SERVER_TLS || r == TAP_SERVER_CLOSED ||
	       r == TAP_BAD_RESPONSE;
}

/* An answer that is no stream has its usage at its end. */
static bool is_known(const struct gateway *g, enum tap_result r)
{
	if (!g->is_sent || g->is_refused || !llm_uses_tokens(g->endpoint.kind))
		return true;
	if (!g->reader)
		return is_failure(r);
	return g->reader->is_stream || g->reader->has_usage || r == TAP_DONE || is_failure(r);
}

static struct llm_usage usage_of(const struct gateway *g)
{
	if (g->reader)
		return llm_reader_usage(g->reader, g->input);
	return (struct llm_usage){ .input = g->is_sent && !g->is_known ? g->input : 0 };
}

static void settle(struct gateway *g)
{
	const struct llm_usage u = usage_of(g);
	struct tap_settle s = { .as_reserved = g->is_sent && !g->is_known,
				.tokens = llm_usage_tokens(&u),
				.usd = g->has_price ? llm_cost(&g->price, &u) : 0 };

	if (g->id != 0)
		g->conf->settle(g->conf->arg, g, &s);
}

void gateway_report(struct gateway *g, struct tap_request *record)
{
	struct tap_call *c = &record->llm;
	struct llm_usage u;

	if (!g->is_named)
		return;
	g->is_known = is_known(g, (enum tap_result)record->result);
	u = usage_of(g);
	*c = (struct tap_call){ .is_call = true,
				.is_guess = !g->is_known || (g->reader && !g->reader->has_usage),
				.has_cost = g->has_price,
				.rule = (uint32_t)g->rule,
				.input = u.input,
				.cached = u.cached,
				.cache_write = u.cache_write,
				.output = u.output,
				.cost = g->has_price ? llm_cost(&g->price, &u) : 0 };
	memcpy(c->model, g->model, sizeof(c->model));
	(void)snprintf(c->provider, sizeof(c->provider), "%s",
		       llm_provider_names[rule_of(g)->provider]);
	settle(g);
}

struct gateway *gateway_free(struct gateway *g)
{
	if (!g)
		return NULL;
	settle(g);
	buf_done(&g->out);
	free(g->reader);
	free(g);
	return NULL;
}

void gateway_refuse(const struct gateway *g, const struct refusal *why, struct answer *a)
{
	_cleanup_buf_ struct buf body = BUF_INIT(sizeof(a->body) - 1);
	char text[TAP_TEXT_MAX + 16];
	struct llm_answer form;

	(void)snprintf(text, sizeof(text), "hutch: %s", why->text);
	str_make_utf8(text);
	if (llm_refuse(g->endpoint.family, text, &body, &form) < 0)
		return;
	memcpy(a->body, body.data, body.len + 1);
	a->length = body.len;
	a->type = "application/json";
	a->stop_retries = form.stop_retries;
	if ((why->result == TAP_LLM || why->result == TAP_BUDGET) &&
	    why->status != STATUS_UPGRADE_REQUIRED)
		a->status = form.status;
}
