/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/request.h"

#include <sodium.h>
#include <stdarg.h>
#include <string.h>

#include "base/str.h"

enum {
	PORT_HTTP = 80,
	PORT_HTTPS = 443,
	QUERY_MAX = 2 * EXCHANGE_HEAD_MAX,
	CREDENTIAL_MAX = 64 * 1024,
};

int refuse_(struct refusal *r, enum tap_result result, int status, const char *fmt, ...)
{
	va_list ap;

	r->result = result;
	r->status = (uint16_t)status;
	va_start(ap, fmt);
	(void)vsnprintf(r->text, sizeof(r->text), fmt, ap);
	va_end(ap);
	return -EBADMSG;
}

static int bad(struct refusal *r, const char *what)
{
	return refuse(r, TAP_BAD_REQUEST, 400, "the request has %s", what);
}

static void buf_wipe(struct buf *b)
{
	if (b->data)
		sodium_memzero(b->data, b->cap);
	buf_done(b);
}

void request_done(struct request *q)
{
	buf_wipe(&q->credential);
	buf_wipe(&q->token);
	buf_wipe(&q->new_query);
	sodium_memzero(&q->chain, sizeof(q->chain));
}

/* ---- the target ---- */

/* HOST or HOST:PORT of this stream, in any case; the port may be left out if it is the default. */
static bool is_place(struct http_text t, const struct place *p)
{
	const uint16_t usual = p->tls ? PORT_HTTPS : PORT_HTTP;
	char port[8];
	int n;

	if (t.n < p->host->len ||
	    !http_text_same((struct http_text){ t.s, p->host->len },
			    (struct http_text){ p->host->text, p->host->len }))
		return false;
	t.s += p->host->len;
	t.n -= p->host->len;
	if (t.n == 0)
		return p->port == usual;
	n = snprintf(port, sizeof(port), ":%u", p->port);
	return t.n == (size_t)n && memcmp(t.s, port, t.n) == 0;
}

/* Takes SCHEME://HOST off an absolute target. */
static int read_absolute(struct http_text *t, const struct place *p, struct refusal *why)
{
	const char *scheme = p->tls ? "https://" : "http://", *end;
	const size_t n = strlen(scheme);
	struct http_text authority;

	if (!p->host || t->n < n || strncasecmp(t->s, scheme, n) != 0)
		return bad(why, "a target that is neither a path nor a URL of this connection");
	authority.s = t->s + n;
	end = authority.s;
	while (end < t->s + t->n && *end != '/' && *end != '?')
		end++;
	authority.n = (size_t)(end - authority.s);
	if (!is_place(authority, p))
		return bad(why, "a URL of another host than the connection");
	t->n -= (size_t)(end - t->s);
	t->s = end;
	return 0;
}

static int read_path(struct http_text t, const struct place *p, struct request *q,
		     struct refusal *why)
{
	const char *reason = NULL;

	if (t.n == 0)
		t = head_text("/"); /* the URL has no path */
	if (p->host) {
		if (l7_path(t.s, t.n, q->path, &reason) < 0)
			return refuse(why, TAP_BAD_REQUEST, 400, "the request is ambiguous: %s",
				      reason);
		return 0;
	}
	if (t.s[0] != '/' || t.n > L7_PATH_MAX)
		return bad(why, "a target that is not a path, or too long");
	memcpy(q->path, t.s, t.n);
	q->path[t.n] = '\0';
	return 0;
}

static int read_target(struct http_text t, const struct place *p, struct request *q,
		       struct refusal *why)
{
	const char *mark;
	int r;

	if (t.n == 0 || !http_target_valid(t) || memchr(t.s, '#', t.n))
		return bad(why, "a target that is not valid");
	if (http_text_is(t, "*")) {
		if (!str_eq(q->method, "OPTIONS"))
			return bad(why, "the target \"*\", which only OPTIONS may have");
		memcpy(q->path, "*", 2);
		return 0;
	}
	if (t.s[0] != '/') {
		r = read_absolute(&t, p, why);
		if (r < 0)
			return r;
	}
	mark = memchr(t.s, '?', t.n);
	if (mark) {
		q->query = (struct http_text){ mark + 1, (size_t)(t.s + t.n - mark) - 1 };
		t.n = (size_t)(mark - t.s);
	}
	return read_path(t, p, q, why);
}

static int read_line(const struct place *p, struct request *q, struct refusal *why)
{
	struct http_request_line l;
	struct err e = ERR_INIT;

	if (http_request_line_parse(q->head.line, &l) < 0)
		return bad(why, "a first line that is not METHOD TARGET HTTP/1.1");
	if (l.major != '1' || l.minor > '1')
		return bad(why, "a version other than HTTP/1.1 and HTTP/1.0");
	if (l7_method_check(l.method.s, l.method.n, &e) < 0)
		return bad(why, "a method that is not a word in upper case");
	memcpy(q->method, l.method.s, l.method.n);
	q->method[l.method.n] = '\0';
	q->old = l.minor == '0';
	if (str_eq(q->method, "CONNECT"))
		return bad(why, "the method CONNECT: this is not a proxy");
	return read_target(l.target, p, q, why);
}

/* ---- the fields ---- */

static int read_host(const struct place *p, struct request *q, struct refusal *why)
{
	size_t count;
	struct head_field *f = head_find(&q->head, "host", &count);

	if (count != 1)
		return bad(why, count == 0 ? "no Host field" : "two Host fields");
	if (p->host && !is_place(f->value, p))
		return refuse(why, TAP_BAD_REQUEST, 400,
			      "the Host field of the request is not %s, the host of the connection",
			      p->host->text);
	if (!p->host) {
		if (f->value.n == 0 || !http_target_valid(f->value) ||
		    memchr(f->value.s, ',', f->value.n))
			return bad(why, "a Host field that is not valid");
		return 0;
	}
	(void)snprintf(q->host, sizeof(q->host), "%s", p->host->text);
	if (p->port != (p->tls ? PORT_HTTPS : PORT_HTTP))
		(void)snprintf(q->host + p->host->len, sizeof(q->host) - p->host->len, ":%u",
			       p->port);
	f->value = head_text(q->host);
	return 0;
}

/* The only upgrade is to a WebSocket; others, such as h2c, are ignored as HTTP allows. */
static int read_upgrade(const struct head_connection *c, struct request *q, struct refusal *why)
{
	size_t count;
	const struct head_field *f = head_find(&q->head, "upgrade", &count);

	q->websocket = count == 1 && http_text_is(f->value, "websocket") && c->upgrade && !q->old;
	(void)head_drop(&q->head, "upgrade");
	if (q->websocket && !str_eq(q->method, "GET"))
		return bad(why, "an upgrade to a WebSocket with a method other than GET");
	if (q->websocket && q->framing != FRAMING_NONE)
		return bad(why, "an upgrade to a WebSocket with a body");
	return 0;
}

static int read_expect(struct request *q, struct refusal *why)
{
	size_t count;
	const struct head_field *f = head_find(&q->head, "expect", &count);

	if (count > 1 || (f && !http_text_is(f->value, "100-continue")))
		return bad(why, "an Expect field other than 100-continue");
	q->expect = f && !q->old &&
		    (q->framing == FRAMING_CHUNKED || (q->framing == FRAMING_LENGTH && q->length));
	(void)head_drop(&q->head, "expect");
	return 0;
}

static int read_fields(const struct place *p, struct request *q, struct refusal *why)
{
	struct head_connection c;
	const char *reason = NULL;
	int r;

	if (head_framing(&q->head, &q->framing, &q->length, &reason) < 0)
		return bad(why, reason);
	if (q->framing == FRAMING_CHUNKED && q->old)
		return bad(why, "a chunked body in HTTP/1.0");
	head_connection(&q->head, &c);
	q->close = c.close || q->old;
	r = read_host(p, q, why);
	r = r < 0 ? r : read_upgrade(&c, q, why);
	return r < 0 ? r : read_expect(q, why);
}

int request_parse(const struct head_input *in, const struct place *p, struct request *ret,
		  struct refusal *why)
{
	const char *reason = NULL;
	int r;

	*ret = (struct request){
		.credential = BUF_INIT(CREDENTIAL_MAX),
		.token = BUF_INIT(CREDENTIAL_MAX),
		.new_query = BUF_INIT(QUERY_MAX),
	};
	if (head_parse(in, &ret->head, &reason) < 0)
		return bad(why, reason);
	r = read_line(p, ret, why);
	return r < 0 ? r : read_fields(p, ret, why);
}

/* ---- for rules ---- */

int request_check_overrides(const struct request *q, struct refusal *why)
{
	static const char *const names[] = {
		"x-http-method-override", "x-http-method", "x-method-override",
		"x-original-url",	  "x-rewrite-url",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		for (size_t k = 0; k < q->head.n; k++)
			if (head_name_same(q->head.field[k].name, head_text(names[i])))
				return refuse(why, TAP_BAD_REQUEST, 400,
					      "the request has the field %s, which would avoid the "
					      "rules on methods and paths",
					      names[i]);
	return 0;
}

const char *request_rule_path(const struct request *q)
{
	return q->path[0] == '*' ? "/" : q->path;
}

/* ---- writing ---- */

void request_finish(struct request *q, enum framing framing, uint64_t length)
{
	if (framing == FRAMING_LENGTH) {
		(void)snprintf(q->length_text, sizeof(q->length_text), "%llu",
			       (unsigned long long)length);
		head_add(&q->head, "Content-Length", head_text(q->length_text));
	} else if (framing == FRAMING_CHUNKED && !q->http2) {
		head_add(&q->head, "Transfer-Encoding", head_text("chunked"));
	}
	if (q->expect)
		head_add(&q->head, "Expect", head_text("100-continue"));
	if (q->http2)
		return;
	if (q->websocket) {
		head_add(&q->head, "Connection", head_text("Upgrade"));
		head_add(&q->head, "Upgrade", head_text("websocket"));
	} else if (q->close) {
		head_add(&q->head, "Connection", head_text("close"));
	}
}

void request_forbid_compression(struct request *q)
{
	static const char *const names[] = {
		"accept-encoding",
		"sec-websocket-extensions",
		"grpc-accept-encoding",
		"connect-accept-encoding",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		(void)head_drop(&q->head, names[i]);
	head_add(&q->head, "Accept-Encoding", head_text("identity"));
}

void request_write(struct buf *out, const struct request *q)
{
	(void)buf_printf(out, "%s %s", q->method, q->path);
	if (q->query.s) {
		(void)buf_putc(out, '?');
		(void)buf_put(out, q->query.s, q->query.n);
	}
	(void)buf_puts(out, " HTTP/1.1\r\n");
	head_write(out, &q->head, NULL);
}
