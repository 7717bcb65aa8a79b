/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/gateway.h"

#include <string.h>

enum {
	SHOWN_PATH = 80, /* bytes in a message */
	SHOWN_RULE = 64,
};

/* ---- rules ---- */

static int deny(struct call *c, const struct request *q, const struct l7_verdict *v,
		struct refusal *why)
{
	const struct tap_config *config = c->conf->config;
	char rule[SHOWN_RULE], what[SHOWN_PATH + 32];

	(void)snprintf(what, sizeof(what), "%s %.*s%s", q->method, SHOWN_PATH, q->path,
		       strlen(q->path) > SHOWN_PATH ? "..." : "");
	if (v->rule >= 0)
		return refuse(why, TAP_DENIED, 403, "%s is denied by rule %s", what,
			      config->http[v->rule].at);
	if (v->near < 0)
		return refuse(why, TAP_DENIED, 403, "%s is denied: no rule allows it", what);
	return refuse(why, TAP_DENIED, 403, "%s is denied: rule %s allows %s", what,
		      config->http[v->near].at,
		      l7_rule_format(&config->http[v->near], rule, sizeof(rule)));
}

static int too_large(const struct call *c, struct refusal *why)
{
	const struct tap_config *config = c->conf->config;
	const int i = c->record.rule;

	return refuse(why, TAP_TOO_LARGE, 413,
		      "the body of the request has more than %llu bytes, the max_body of rule %s",
		      (unsigned long long)c->max_body,
		      i >= 0 && (size_t)i < config->n_http ? config->http[i].at : "");
}

static int too_long_to_collect(const struct call *c, struct refusal *why)
{
	if (c->gateway)
		return refuse(why, TAP_TOO_LARGE, 400, "the body of a call has more than %d bytes",
			      GATEWAY_BODY_MAX);
	return refuse(why, TAP_TOO_LARGE, 413,
		      "the body of a request to sign has more than %d bytes", COLLECT_MAX);
}

static int check_rules(struct call *c, const struct request *q, struct refusal *why)
{
	const struct tap_config *config = c->conf->config;
	const struct l7_request r = { c->conf->host, q->method, request_rule_path(q) };
	const struct l7_rule *rule;
	struct l7_verdict v;

	if (!c->conf->host)
		return 0;
	if ((l7_names(config->http, config->n_http, r.host) || inject_names_paths(config, r.host) ||
	     gateway_rule_of(config, r.host) >= 0) &&
	    request_check_overrides(q, why) < 0)
		return -EBADMSG;
	v = l7_check(config->http, config->n_http, &r);
	c->record.rule = v.rule;
	if (!v.allowed)
		return deny(c, q, &v, why);
	if (v.rule < 0)
		return 0;
	rule = &config->http[v.rule];
	c->max_body = rule->max_body;
	if (c->max_body > 0 && q->length > c->max_body)
		return too_large(c, why);
	if (rule->rate > 0 && !c->conf->may_pass(c->conf->arg, (size_t)v.rule))
		return refuse(why, TAP_RATE, 429, "over the rate of rule %s: %u requests a minute",
			      rule->at, rule->rate);
	return 0;
}

/* ---- sending the head ---- */

/* The server may return the secret, so it is masked from now on. */
static int remember(struct call *c, const struct tap_secret *s, struct refusal *why)
{
	int r;

	if (!c->mask)
		c->mask = mask_new(c->conf->probes);
	if (!c->mask)
		return -ENOMEM;
	r = inject_mask(s, c->mask);
	if (r == -ENOSPC)
		return refuse(why, TAP_NO_SECRET, 403,
			      "too many secrets on one connection: open another one");
	return r;
}

int call_choose(struct call *c, struct request *q, struct injection *ret, struct refusal *why)
{
	*ret = (struct injection){ .secret = -1 };
	if (!c->conf->tls || !c->conf->host)
		return 0;
	return inject_choose(c->conf->config, c->conf->host, q, ret, why);
}

int call_admit(struct call *c, struct request *q, struct injection *ret, struct refusal *why)
{
	int r = check_rules(c, q, why);

	r = r < 0 ? r : call_choose(c, q, ret, why);
	r = r < 0 ? r : gateway_admit(c, q, ret, why);
	if (r == 0 && ret->need_body && q->length > c->collected.max)
		return too_long_to_collect(c, why);
	return r;
}

void call_name(struct call *c, const struct request *q)
{
	(void)snprintf(c->record.method, sizeof(c->record.method), "%s", q->method);
	(void)snprintf(c->record.path, sizeof(c->record.path), "%.*s", TAP_PATH_MAX, q->path);
}

int call_credit(struct call *c, struct request *q, const struct injection *inj,
		const struct buf *body, bool is_done, struct refusal *why)
{
	const struct tap_config *config = c->conf->config;
	int r = 0;

	if (body) {
		request_finish(q, FRAMING_LENGTH, body->len);
		c->record.bytes_out = body->len;
	} else {
		request_finish(q, q->framing, q->length);
	}
	if (inj->secret >= 0 || !mask_is_empty(c->mask) || c->gateway)
		request_forbid_compression(q);
	if (c->conf->tls && c->conf->host)
		r = inject_apply(config, c->conf->host, inj, body, q, why);
	if (r == 0 && inj->secret >= 0) {
		c->record.secret = inj->secret;
		r = remember(c, &config->secrets[inj->secret], why);
	}
	if (r == 0 && inj->chunks && !is_done) {
		c->chunks = aws_chunks_new(&q->chain, inj->trailers);
		r = c->chunks ? 0 : -ENOMEM;
	}
	if (r == 0 && c->gateway)
		c->gateway->is_sent = true;
	return r;
}

/* ---- the body ---- */

int call_review(struct call *c, struct refusal *why)
{
	return gateway_review(c, why);
}

int call_collect(struct call *c, const char *data, size_t n, struct refusal *why)
{
	int r = buf_put(&c->collected, data, n);

	if (c->max_body > 0 && c->collected.len > c->max_body)
		return too_large(c, why);
	return r == -ENOBUFS ? too_long_to_collect(c, why) : r;
}

static int sign_again(struct call *c, const char *data, size_t n, bool is_last, struct refusal *why)
{
	int r;

	buf_reset(&c->again);
	r = aws_chunks_feed(c->chunks, data, n, &c->again);
	if (r == -E2BIG)
		return refuse(why, TAP_TOO_LARGE, 413,
			      "the request has a chunk to sign of more than %d bytes",
			      AWS_CHUNK_MAX);
	if (r == -EBADMSG || (r == 0 && is_last && !aws_chunks_done(c->chunks)))
		return refuse(why, TAP_BAD_REQUEST, 400, "the request has broken signed chunks");
	if (is_last)
		c->chunks = aws_chunks_free(c->chunks);
	return r;
}

int call_body(struct call *c, const char *data, size_t n, bool is_last, const char **ret,
	      size_t *ret_n, struct refusal *why)
{
	int r;

	*ret = data;
	*ret_n = n;
	c->record.bytes_out += n;
	if (c->max_body > 0 && c->record.bytes_out > c->max_body)
		return too_large(c, why);
	if (!c->chunks)
		return 0;
	r = sign_again(c, data, n, is_last, why);
	*ret = buf_text(&c->again);
	*ret_n = c->again.len;
	return r;
}
