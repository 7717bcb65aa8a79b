/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/gateway.h"

#include <string.h>

#include "base/clock.h"
#include "base/str.h"

void call_init(struct call *c, const struct exchange_conf *conf)
{
	*c = (struct call){ .conf = conf,
			    .collected = BUF_INIT(COLLECT_MAX),
			    .again = BUF_INIT(4 * AWS_CHUNK_MAX) };
}

void call_done(struct call *c)
{
	buf_done(&c->collected);
	buf_done(&c->again);
	c->mask = mask_free(c->mask);
	c->chunks = aws_chunks_free(c->chunks);
	c->gateway = gateway_free(c->gateway);
}

void call_begin(struct call *c)
{
	c->record = (struct tap_request){ .rule = -1, .secret = -1 };
	c->active = true;
	c->responded = c->opaque = false;
	c->interims = 0;
	c->max_body = 0;
	c->started = clock_mono();
	buf_done(&c->again);
	c->gateway = gateway_free(c->gateway);
	c->collected.max = COLLECT_MAX;
	(void)mask_take_hit(c->mask);
}

struct place call_place(const struct call *c)
{
	return (struct place){ c->conf->host, c->conf->port, c->conf->tls };
}

/* ---- the response ---- */

int call_bad_response(struct refusal *why, const char *what)
{
	return refuse(why, TAP_BAD_RESPONSE, 502, "the response of the server has %s", what);
}

int call_response(struct call *c, struct response *r)
{
	c->opaque = !mask_is_empty(c->mask) && response_is_compressed(r);
	c->responded = true;
	c->record.status = (uint16_t)r->status;
	return c->gateway ? gateway_response(c->gateway, r) : 0;
}

int call_interim(struct call *c, struct refusal *why)
{
	if (++c->interims > INTERIM_MAX)
		return call_bad_response(why, "too many interim responses before it");
	return 0;
}

int call_pass(struct call *c, const char *data, size_t n, const char **ret, size_t *ret_n)
{
	c->record.bytes_in += n;
	if (c->gateway && gateway_read(c->gateway, &data, &n) < 0)
		return -ENOMEM;
	return mask_feed(c->mask, data, n, ret, ret_n);
}

/* ---- the end ---- */

void call_report(struct call *c, enum tap_result result, const char *text)
{
	if (!c->active)
		return;
	c->active = false;
	c->record.result = (uint32_t)result;
	c->record.reflected = mask_take_hit(c->mask);
	c->record.ns = clock_mono() - c->started;
	(void)snprintf(c->record.text, sizeof(c->record.text), "%s", text);
	if (c->gateway)
		gateway_report(c->gateway, &c->record);
	c->conf->report(c->conf->arg, &c->record);
}

bool call_is_cut(const struct call *c)
{
	return c->gateway && c->gateway->is_cut;
}

void call_report_cut(struct call *c)
{
	call_report(c, TAP_BUDGET, "the answer was ended where the budget ends");
}

void call_complete(struct call *c)
{
	call_report(c, TAP_DONE,
		    c->opaque ? "the response is compressed and was not searched for secrets" : "");
}

/* The value of X-Hutch-Denied. */
static const char *word_of(enum tap_result r)
{
	switch (r) {
	case TAP_DENIED:
		return "rule";
	case TAP_BAD_REQUEST:
		return "request";
	case TAP_TOO_LARGE:
		return "size";
	case TAP_RATE:
		return "rate";
	case TAP_NO_SECRET:
		return "secret";
	case TAP_LLM:
		return "model";
	case TAP_BUDGET:
		return "budget";
	case TAP_SERVER_TRUST:
		return "certificate";
	case TAP_TIME:
		return "time";
	default:
		return "server";
	}
}

/* The seconds after which the rule allows another request. */
static unsigned int retry_after(const struct call *c)
{
	const struct tap_config *config = c->conf->config;
	const int i = c->record.rule;
	const uint32_t rate = i >= 0 && (size_t)i < config->n_http ? config->http[i].rate : 0;

	return rate > 0 ? (60 + rate - 1) / rate : 60;
}

static void fill_answer(const struct call *c, const struct refusal *why, struct answer *ret)
{
	*ret = (struct answer){
		.word = word_of(why->result),
		.status = why->status,
		.retry_after = why->result == TAP_RATE ? retry_after(c) : 0,
		.type = "text/plain",
		.has_body = !str_eq(c->record.method, "HEAD"),
	};
	(void)snprintf(ret->body, sizeof(ret->body), "hutch: %s\n", why->text);
	ret->length = strlen(ret->body);
	if (c->gateway)
		gateway_refuse(c->gateway, why, ret);
}

bool call_refuse(struct call *c, const struct refusal *why, struct answer *ret)
{
	const bool answers = c->active && !c->responded;

	if (answers) {
		fill_answer(c, why, ret);
		c->responded = true;
		c->record.status = why->status;
	}
	call_report(c, why->result, why->text);
	return answers;
}

bool call_refusal(enum tap_result result, const char *text, struct refusal *ret)
{
	switch (result) {
	case TAP_SERVER_TRUST:
	case TAP_SERVER_TLS:
	case TAP_SERVER_CLOSED:
	case TAP_BAD_RESPONSE:
	case TAP_TIME:
		(void)refuse(ret, result, result == TAP_TIME ? 504 : 502, "%s", text);
		return true;
	default:
		return false;
	}
}
