/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/base64.h"
#include "base/json-util.h"
#include "base/str.h"
#include "token/credential.h"

/* application/x-www-form-urlencoded, in the form that every server reads. */
static void put_encoded(struct buf *b, const char *s)
{
	for (; *s; s++) {
		const char c = ascii_lower(*s);

		if ((c >= 'a' && c <= 'z') || ascii_is_digit(c) || strchr("-._~", c))
			(void)buf_putc(b, *s);
		else
			(void)buf_printf(b, "%%%02X", (unsigned char)*s);
	}
}

static void put_pair(struct buf *b, const char *key, const char *value)
{
	if (!value[0])
		return;
	if (b->len > 0)
		(void)buf_putc(b, '&');
	(void)buf_printf(b, "%s=", key);
	put_encoded(b, value);
}

/* RFC 6749, 2.3.1: both parts are encoded before base64. */
static void put_basic(struct buf *b, const struct credential *c)
{
	_cleanup_secret_ struct buf plain = BUF_INIT(TOKEN_REQUEST_MAX);

	if (c->in_body)
		return;
	put_encoded(&plain, c->client_id);
	(void)buf_putc(&plain, ':');
	put_encoded(&plain, c->client_secret);
	(void)buf_puts(b, "Authorization: Basic ");
	(void)base64_put(b, plain.data, plain.len);
	(void)buf_puts(b, "\r\n");
}

static void make_form(struct buf *body, const struct credential *c, const char *refresh)
{
	refresh = refresh[0] ? refresh : c->refresh_token;
	put_pair(body, "grant_type", refresh[0] ? "refresh_token" : "client_credentials");
	put_pair(body, "refresh_token", refresh);
	put_pair(body, "scope", c->scope);
	put_pair(body, "audience", c->audience);
	if (c->in_body) {
		put_pair(body, "client_id", c->client_id);
		put_pair(body, "client_secret", c->client_secret);
	}
}

static int make_limits(struct buf *body, const struct credential *c)
{
	_cleanup_json_ json_t *o = json_object();
	_cleanup_free_ char *text = NULL;

	if (!o ||
	    (c->repositories && json_put(o, "repositories", json_deep_copy(c->repositories))) ||
	    (c->permissions && json_put(o, "permissions", json_deep_copy(c->permissions))))
		return -ENOMEM;
	text = json_write_line(o);
	return text ? buf_puts(body, text) : -ENOMEM;
}

int credential_request(const struct credential *c, const char *refresh, const char *jwt,
		       struct buf *ret, struct err *e)
{
	_cleanup_secret_ struct buf body = BUF_INIT(TOKEN_REQUEST_MAX);
	const bool v6 = strchr(c->url.host, ':') != NULL;

	(void)buf_printf(ret, "POST %s HTTP/1.1\r\nHost: %s%s%s", c->url.target, v6 ? "[" : "",
			 c->url.host, v6 ? "]" : "");
	if (!str_eq(c->url.port, "443"))
		(void)buf_printf(ret, ":%s", c->url.port);
	(void)buf_puts(ret, "\r\nUser-Agent: hutch/" HUTCH_VERSION
			    "\r\nConnection: close\r\nAccept-Encoding: identity\r\n");
	if (c->type == SECRET_OAUTH) {
		make_form(&body, c, refresh);
		put_basic(ret, c);
		(void)buf_puts(ret, "Accept: application/json\r\n"
				    "Content-Type: application/x-www-form-urlencoded\r\n");
	} else {
		if (make_limits(&body, c) < 0)
			return err_oom(e);
		(void)buf_printf(ret,
				 "Authorization: Bearer %s\r\n"
				 "Accept: application/vnd.github+json\r\n"
				 "X-GitHub-Api-Version: 2022-11-28\r\n"
				 "Content-Type: application/json\r\n",
				 jwt);
	}
	(void)buf_printf(ret, "Content-Length: %zu\r\n\r\n", body.len);
	(void)buf_put(ret, body.data, body.len);
	return ret->err < 0 || body.err < 0 ? err_set(e, -E2BIG, "the request is too long") : 0;
}
