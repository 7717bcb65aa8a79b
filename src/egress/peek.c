/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/peek.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "egress/hello.h"

static enum peek_result refuse(char *detail, const char *why, const char *what, size_t n)
{
	(void)snprintf(detail, PEEK_DETAIL_MAX, "%s%s%.*s", why, n > 0 ? ": " : "",
		       (int)MIN(n, (size_t)PEEK_DETAIL_MAX), what);
	return PEEK_REFUSE;
}

static enum peek_result peek_tls(bool ech_allowed, const struct target *t, const void *data,
				 size_t n, char *detail)
{
	struct hello h = { 0 };
	const char *why = "";
	int r = hello_parse(data, n, &h, &why);

	if (r < 0)
		return refuse(detail, why, "", 0);
	if (r == 0)
		return PEEK_MORE;
	if (h.ech && !ech_allowed)
		return refuse(detail,
			      "an encrypted ClientHello; only a rule with /tls+ech allows it", "",
			      0);
	/* A connection to an address must not ask for a name. */
	if (h.has_name == t->is_addr)
		return refuse(detail, t->is_addr ? "asks for a name" : "no server name",
			      h.name.text, h.name.len);
	if (!t->is_addr && !str_eq(h.name.text, t->name.text))
		return refuse(detail, "asks for another name", h.name.text, h.name.len);
	return PEEK_PASS;
}

/* Parses a Host field; the port is optional. */
static bool host_parse(const char *host, size_t n, uint16_t port, struct target *ret)
{
	char with_port[NAME_TEXT_MAX + 8];
	struct err e;
	const char *close = n > 0 && host[0] == '[' ? memchr(host, ']', n) : host;
	int len;

	if (!close || n == 0 || n > NAME_TEXT_MAX)
		return false;
	if (memchr(close, ':', n - (size_t)(close - host)))
		len = snprintf(with_port, sizeof(with_port), "%.*s", (int)n, host);
	else
		len = snprintf(with_port, sizeof(with_port), "%.*s:%u", (int)n, host, port);
	return len >= 0 && (size_t)len < sizeof(with_port) &&
	       target_parse(with_port, (size_t)len, ret, &e) == 0;
}

/* Does the Host field name the target? */
static bool host_is(const char *host, size_t n, const struct target *t)
{
	struct target asked;

	if (!host_parse(host, n, t->port, &asked) || asked.port != t->port ||
	    asked.is_addr != t->is_addr)
		return false;
	if (t->is_addr)
		return asked.addr.family == t->addr.family &&
		       memcmp(asked.addr.bytes, t->addr.bytes, sizeof(t->addr.bytes)) == 0;
	return str_eq(asked.name.text, t->name.text);
}

static enum peek_result peek_http(const struct target *t, struct http_reading *rd, const void *data,
				  size_t n, char *detail)
{
	struct http_head h = { 0 };
	const char *why = "";
	int r = http_parse(rd, data, n, &h, &why);

	if (r < 0)
		return refuse(detail, why, "", 0);
	if (r == 0)
		return PEEK_MORE;
	if (!host_is(h.host, h.host_len, t))
		return refuse(detail, "asks for another host", h.host, h.host_len);
	return PEEK_PASS;
}

static bool looks_like_tls(const uint8_t *p, size_t n)
{
	return n > 0 && p[0] == 22 && (n < 2 || p[1] == 3);
}

/* The first byte of TLS is not a letter, so at most one of the two protocols matches. */
static enum peek_result peek_any(const struct target *t, struct http_reading *rd, const void *data,
				 size_t n, char *detail)
{
	int r;

	if (looks_like_tls(data, n))
		return peek_tls(false, t, data, n, detail);
	r = n > 0 ? http_looks_like(data, n) : 0;
	if (r > 0)
		return peek_http(t, rd, data, n, detail);
	return r < 0 ? PEEK_PASS : PEEK_MORE;
}

enum peek_result peek(enum rule_proto proto, const struct target *t, struct http_reading *rd,
		      const void *data, size_t n, bool eof, char detail[static PEEK_DETAIL_MAX])
{
	enum peek_result r;

	if (proto == RULE_PROTO_TCP)
		return PEEK_PASS;
	if (proto == RULE_PROTO_ANY)
		r = peek_any(t, rd, data, n, detail);
	else if (proto == RULE_PROTO_HTTP)
		r = peek_http(t, rd, data, n, detail);
	else
		r = peek_tls(proto == RULE_PROTO_TLS_ECH, t, data, n, detail);
	if (r != PEEK_MORE)
		return r;
	if (n >= PEEK_MAX)
		return refuse(detail, "too many bytes before it is clear what they are", "", 0);
	if (!eof)
		return PEEK_MORE;
	/* Bytes that ended before they became a request name no host. */
	if (proto == RULE_PROTO_ANY)
		return PEEK_PASS;
	return refuse(detail, "ended before it named a host", "", 0);
}

/* ---- around hutch-tap ---- */

#define AROUND "requests to this host need a rule without /tcp, so that hutch-tap reads them"

/* The target that the first bytes of a stream ask for. */
struct asked {
	bool is_web;	  /* TLS or HTTP */
	struct name name; /* empty: none, or an address */
};

static int asked_by_tls(const void *data, size_t n, struct asked *ret, const char **why)
{
	struct hello h = { 0 };
	int r = hello_parse(data, n, &h, why);

	if (r <= 0)
		return r;
	*why = "an encrypted ClientHello, which may ask for any host";
	if (h.ech)
		return -EBADMSG;
	*ret = (struct asked){ true, h.name };
	return 1;
}

static int asked_by_http(const struct target *t, struct http_reading *rd, const void *data,
			 size_t n, struct asked *ret, const char **why)
{
	struct http_head head = { 0 };
	struct target host = { 0 };
	int r = http_parse(rd, data, n, &head, why);

	if (r <= 0)
		return r;
	*why = "Host is not the name of a host";
	if (!host_parse(head.host, head.host_len, t->port, &host))
		return -EBADMSG;
	*ret = (struct asked){ true, host.name };
	return 1;
}

/* 1 with the result, 0 for more bytes, -EBADMSG with the reason. */
static int asked_for(const struct target *t, struct http_reading *rd, const void *data, size_t n,
		     struct asked *ret, const char **why)
{
	int r;

	*ret = (struct asked){ 0 };
	if (looks_like_tls(data, n))
		return asked_by_tls(data, n, ret, why);
	r = n > 0 ? http_looks_like(data, n) : 0;
	return r > 0 ? asked_by_http(t, rd, data, n, ret, why) : r < 0;
}

enum peek_result peek_around(peek_tapped_fn *is_tapped, void *arg, const struct target *t,
			     struct http_reading *rd, const void *data, size_t n, bool eof,
			     char detail[static PEEK_DETAIL_MAX])
{
	const char *why = "";
	struct asked asked;
	int r = asked_for(t, rd, data, n, &asked, &why);

	if (r < 0)
		return refuse(detail, why, "", 0);
	/* A server may ignore the name that is asked for: no such bytes to a tapped host, either.
	 */
	if (r > 0 && asked.is_web &&
	    (is_tapped(arg, &asked.name) || (!t->is_addr && is_tapped(arg, &t->name))))
		return refuse(detail, AROUND, "", 0);
	if (r > 0)
		return PEEK_PASS;
	if (n >= PEEK_MAX)
		return refuse(detail, "too many bytes before it is clear what they are", "", 0);
	if (!eof)
		return PEEK_MORE;
	/* A server may serve a head without its end. */
	if (looks_like_tls(data, n) || http_looks_like(data, n) > 0)
		return refuse(detail, "ended before it named a host", "", 0);
	return PEEK_PASS;
}
