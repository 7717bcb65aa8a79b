/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/exchange-inner.h"

static const char *reason_of(unsigned int status)
{
	switch (status) {
	case 400:
		return "Bad Request";
	case 403:
		return "Forbidden";
	case 413:
		return "Content Too Large";
	case 426:
		return "Upgrade Required";
	case 429:
		return "Too Many Requests";
	case 431:
		return "Request Header Fields Too Large";
	case 503:
		return "Service Unavailable";
	case 504:
		return "Gateway Timeout";
	default:
		return "Bad Gateway";
	}
}

static void write_answer(struct buf *out, const struct answer *a)
{
	(void)buf_printf(out,
			 "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nX-Hutch-Denied: %s\r\n"
			 "Content-Length: %zu\r\nConnection: close\r\n",
			 a->status, reason_of(a->status), a->type, a->word, a->length);
	if (a->stop_retries)
		(void)buf_puts(out, "X-Should-Retry: false\r\n");
	if (a->retry_after > 0)
		(void)buf_printf(out, "Retry-After: %u\r\n", a->retry_after);
	(void)buf_puts(out, "\r\n");
	if (a->has_body)
		(void)buf_puts(out, a->body);
}

void exchange_refuse(struct exchange *x, const struct refusal *why)
{
	struct answer a;

	if (call_refuse(&x->call, why, &a))
		write_answer(&x->to_client, &a);
	x->over = true;
}

bool exchange_is_held(const struct exchange *x)
{
	if (x->h2)
		return h2_is_held(x->h2);
	return !x->over && mask_holds(x->call.mask);
}

int exchange_release(struct exchange *x)
{
	const char *data;
	size_t n;
	int r;

	if (x->h2)
		return h2_release(x->h2);
	r = mask_release(x->call.mask, &data, &n);
	if (r == 0)
		body_write(&x->to_client, x->to_client_kind, data, n);
	return r;
}

int exchange_flush_mask(struct exchange *x)
{
	const char *data;
	size_t n;
	int r = mask_end(x->call.mask, &data, &n);

	if (r == 0)
		body_write(&x->to_client, x->to_client_kind, data, n);
	return r;
}

void exchange_complete(struct exchange *x)
{
	call_complete(&x->call);
	x->served++;
	if (x->close || x->client_eof || x->client != CLIENT_WAIT) {
		x->over = true;
		return;
	}
	x->client = CLIENT_HEAD;
	x->server = SERVER_IDLE;
}
