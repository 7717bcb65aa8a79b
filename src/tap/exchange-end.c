/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "tap/exchange-inner.h"

void exchange_report(struct exchange *x, enum tap_result result, const char *text)
{
	if (!x->active)
		return;
	x->active = false;
	x->record.result = (uint32_t)result;
	x->record.reflected = mask_take_hit(x->mask);
	x->record.ns = clock_mono() - x->started;
	(void)snprintf(x->record.text, sizeof(x->record.text), "%s", text);
	x->conf.report(x->conf.arg, &x->record);
}

static const char *reason_of(unsigned int status)
{
	switch (status) {
	case 400:
		return "Bad Request";
	case 403:
		return "Forbidden";
	case 413:
		return "Content Too Large";
	case 429:
		return "Too Many Requests";
	case 431:
		return "Request Header Fields Too Large";
	case 504:
		return "Gateway Timeout";
	default:
		return "Bad Gateway";
	}
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
	case TAP_SERVER_TRUST:
		return "certificate";
	case TAP_TIME:
		return "time";
	default:
		return "server";
	}
}

/* The seconds after which the rule allows another request. */
static unsigned int retry_after(const struct exchange *x)
{
	const struct tap_config *c = x->conf.config;
	const int i = x->record.rule;
	const uint32_t rate = i >= 0 && (size_t)i < c->n_http ? c->http[i].rate : 0;

	return rate > 0 ? (60 + rate - 1) / rate : 60;
}

static void answer(struct exchange *x, const struct refusal *why)
{
	static const char before[] = "hutch: ";
	struct buf *out = &x->to_client;

	(void)buf_printf(out,
			 "HTTP/1.1 %u %s\r\nContent-Type: text/plain\r\nX-Hutch-Denied: %s\r\n"
			 "Content-Length: %zu\r\nConnection: close\r\n",
			 why->status, reason_of(why->status), word_of(why->result),
			 STRLEN("hutch: ") + strlen(why->text) + 1);
	if (why->result == TAP_RATE)
		(void)buf_printf(out, "Retry-After: %u\r\n", retry_after(x));
	(void)buf_puts(out, "\r\n");
	if (!str_eq(x->record.method, "HEAD"))
		(void)buf_printf(out, "%s%s\n", before, why->text);
}

void exchange_refuse(struct exchange *x, const struct refusal *why)
{
	if (x->active && !x->responded) {
		answer(x, why);
		x->responded = true;
		x->record.status = why->status;
	}
	exchange_report(x, why->result, why->text);
	x->over = true;
}

bool exchange_is_held(const struct exchange *x)
{
	return !x->over && mask_holds(x->mask);
}

int exchange_release(struct exchange *x)
{
	const char *data;
	size_t n;
	int r = mask_release(x->mask, &data, &n);

	if (r == 0)
		body_write(&x->to_client, x->to_client_kind, data, n);
	return r;
}

int exchange_flush_mask(struct exchange *x)
{
	const char *data;
	size_t n;
	int r = mask_end(x->mask, &data, &n);

	if (r == 0)
		body_write(&x->to_client, x->to_client_kind, data, n);
	return r;
}

void exchange_complete(struct exchange *x)
{
	exchange_report(x, TAP_DONE,
			x->opaque ? "the response is compressed and was not searched for secrets"
				  : "");
	x->served++;
	if (x->close || x->client_eof || x->client != CLIENT_WAIT) {
		x->over = true;
		return;
	}
	x->client = CLIENT_HEAD;
	x->server = SERVER_IDLE;
}
