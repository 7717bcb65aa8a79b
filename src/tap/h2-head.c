/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/h2-head.h"
#include "tap/call.h"

#include <sodium.h>
#include <string.h>

#include "base/str.h"
#include "tap/mask.h"

enum {
	FIELD_EXTRA = STRLEN(": \r\n"),
	FIELDS_MAX = EXCHANGE_FIELDS_MAX - 2, /* Host and a field about the body are added */
	STATUS_LEN = 3,
	FIELDS_TEXT_MAX = 4 * EXCHANGE_HEAD_MAX,
	SHORT_TEXT = 256,
};

static const char *const pseudo_names[] = {
	[H2_METHOD] = ":method", [H2_SCHEME] = ":scheme", [H2_AUTHORITY] = ":authority",
	[H2_PATH] = ":path",	 [H2_STATUS] = ":status",
};
static_assert(ARRAY_SIZE(pseudo_names) == H2_PSEUDOS, "a name for each");

/* ---- receiving ---- */

void h2_head_init(struct h2_head *h)
{
	*h = (struct h2_head){ .host = BUF_INIT(EXCHANGE_HEAD_MAX),
			       .fields = BUF_INIT(EXCHANGE_HEAD_MAX) };
	for (size_t i = 0; i < H2_PSEUDOS; i++)
		h->pseudo[i] = (struct buf)BUF_INIT(EXCHANGE_HEAD_MAX);
}

void h2_head_done(struct h2_head *h)
{
	for (size_t i = 0; i < H2_PSEUDOS; i++)
		buf_done(&h->pseudo[i]);
	buf_done(&h->host);
	buf_done(&h->fields);
	h2_head_init(h);
}

static bool same(struct http_text t, const char *s)
{
	return t.n == strlen(s) && memcmp(t.s, s, t.n) == 0;
}

static int add_pseudo(struct h2_head *h, struct http_text name, struct http_text value)
{
	for (size_t i = 0; i < H2_PSEUDOS; i++) {
		if (!same(name, pseudo_names[i]))
			continue;
		if (h->pseudo[i].len > 0)
			h->bad = "a pseudo field twice";
		else if (!http_target_valid(value))
			h->bad = "a pseudo field that is not valid";
		else
			return buf_put(&h->pseudo[i], value.s, value.n);
		return 0;
	}
	h->bad = "an unknown pseudo field";
	return 0;
}

static int add_field(struct h2_head *h, struct http_text name, struct http_text value)
{
	static const char *const forbidden[] = { "connection", "transfer-encoding", "upgrade",
						 "keep-alive", "proxy-connection" };

	for (size_t i = 0; i < ARRAY_SIZE(forbidden); i++)
		if (head_name_same(name, head_text(forbidden[i])))
			h->bad = "a field that HTTP/2 does not allow";
	if (same(name, "te")) {
		h->te = http_text_is(value, "trailers");
		return 0;
	}
	if (same(name, "host")) {
		if (h->host.len > 0)
			h->bad = "two Host fields";
		return buf_put(&h->host, value.s, value.n);
	}
	h->has_length |= same(name, "content-length");
	h->n++;
	(void)buf_put(&h->fields, name.s, name.n);
	(void)buf_puts(&h->fields, ": ");
	(void)buf_put(&h->fields, value.s, value.n);
	return buf_puts(&h->fields, "\r\n");
}

static bool is_lower_token(struct http_text t)
{
	for (size_t i = 0; i < t.n; i++)
		if (t.s[i] >= 'A' && t.s[i] <= 'Z')
			return false;
	return t.n > 0 && http_token_len(t.s, t.n) == t.n;
}

int h2_head_add(struct h2_head *h, struct http_text name, struct http_text value)
{
	h->size += name.n + value.n + FIELD_EXTRA;
	if (h->size > EXCHANGE_HEAD_MAX - SHORT_TEXT || h->n == FIELDS_MAX)
		h->is_long = true;
	if (h->is_long || h->bad)
		return 0;
	if (name.n > 0 && name.s[0] == ':')
		return add_pseudo(h, name, value);
	if (!is_lower_token(name) || !http_value_valid(value.s, value.n)) {
		h->bad = "a field whose name or value is not valid";
		return 0;
	}
	return add_field(h, name, value);
}

static bool is_text(const struct buf *b, const char *s)
{
	return str_eq(buf_text(b), s);
}

static struct http_text text_of(const struct buf *b)
{
	return (struct http_text){ buf_text(b), b->len };
}

/* The pseudo fields of a request, as far as the parser of HTTP/1.1 cannot check them. */
static const char *check_pseudo(const struct h2_head *h, const struct place *p)
{
	const struct buf *method = &h->pseudo[H2_METHOD], *path = &h->pseudo[H2_PATH];

	if (is_text(method, "CONNECT"))
		return "the method CONNECT: this is not a proxy";
	if (h->pseudo[H2_STATUS].len > 0 || method->len == 0 ||
	    http_token_len(method->data, method->len) != method->len)
		return "no valid method";
	if (!is_text(&h->pseudo[H2_SCHEME], p->tls ? "https" : "http"))
		return "another scheme than the connection";
	if (path->len == 0 || (path->data[0] != '/' && !is_text(path, "*")))
		return "a target that is not a path";
	if (h->pseudo[H2_AUTHORITY].len > 0 && h->host.len > 0 &&
	    !http_text_same(text_of(&h->pseudo[H2_AUTHORITY]), text_of(&h->host)))
		return "a Host field that differs from :authority";
	return NULL;
}

int h2_head_request(const struct h2_head *h, const struct place *p, bool has_body,
		    struct head_input *ret, struct refusal *why)
{
	const struct buf *authority = &h->pseudo[H2_AUTHORITY];
	const char *bad = h->bad ? h->bad : check_pseudo(h, p);
	struct buf *out = &ret->text;

	if (h->is_long)
		return refuse(why, TAP_TOO_LARGE, 431,
			      "the head of the request has more than %d bytes or %d fields",
			      EXCHANGE_HEAD_MAX, EXCHANGE_FIELDS_MAX);
	if (bad)
		return refuse(why, TAP_BAD_REQUEST, 400, "the request has %s", bad);
	(void)buf_printf(out, "%s %s HTTP/1.1\r\n", buf_text(&h->pseudo[H2_METHOD]),
			 buf_text(&h->pseudo[H2_PATH]));
	if (authority->len > 0 || h->host.len > 0)
		(void)buf_printf(out, "Host: %s\r\n",
				 buf_text(authority->len > 0 ? authority : &h->host));
	if (has_body && !h->has_length)
		(void)buf_puts(out, "Transfer-Encoding: chunked\r\n");
	(void)buf_put(out, buf_text(&h->fields), h->fields.len);
	return buf_puts(out, "\r\n");
}

int h2_head_response(const struct h2_head *h, struct head_input *ret, const char **ret_why)
{
	const struct buf *status = &h->pseudo[H2_STATUS];
	struct buf *out = &ret->text;

	*ret_why = h->is_long ? "a head that is too long" : h->bad;
	if (*ret_why)
		return -EBADMSG;
	/* Trailers have no status, and the line is not used. */
	(void)buf_printf(out, "HTTP/1.1 %.*s \r\n", STATUS_LEN,
			 status->len > 0 ? buf_text(status) : "200");
	(void)buf_put(out, buf_text(&h->fields), h->fields.len);
	return buf_puts(out, "\r\n");
}

/* ---- sending ---- */

void h2_fields_done(struct h2_fields *f)
{
	if (f->text.data)
		sodium_memzero(f->text.data, f->text.cap);
	buf_done(&f->text);
	f->n = 0;
}

/* Makes room for all texts, which must not move afterwards. */
static int begin(struct h2_fields *f, const struct head *h, size_t more)
{
	size_t n = more + SHORT_TEXT;

	for (size_t i = 0; h && i < h->n; i++)
		n += h->field[i].name.n + h->field[i].value.n;
	f->n = 0;
	f->text = (struct buf)BUF_INIT(FIELDS_TEXT_MAX);
	return buf_reserve(&f->text, n) ? 0 : -ENOMEM;
}

/* Names are in lower case. `mask` (or NULL) replaces secrets. */
static void put(struct h2_fields *f, struct http_text name, struct http_text value,
		struct mask *mask, bool is_private)
{
	char *s = f->text.data + f->text.len;

	assert(f->n < ARRAY_SIZE(f->nv) && f->text.cap - f->text.len >= name.n + value.n);
	for (size_t i = 0; i < name.n; i++)
		s[i] = ascii_lower(name.s[i]);
	if (value.n > 0)
		memcpy(s + name.n, value.s, value.n);
	mask_text(mask, s, name.n);
	mask_text(mask, s + name.n, value.n);
	f->nv[f->n++] = (nghttp2_nv){
		.name = (uint8_t *)s,
		.value = (uint8_t *)s + name.n,
		.namelen = name.n,
		.valuelen = value.n,
		.flags = is_private ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE,
	};
	buf_commit(&f->text, name.n + value.n);
}

static void put_pseudo(struct h2_fields *f, enum h2_pseudo i, struct http_text value,
		       bool is_private)
{
	put(f, head_text(pseudo_names[i]), value, NULL, is_private);
}

static void put_head(struct h2_fields *f, const struct head *h, size_t received, struct mask *mask)
{
	for (size_t i = 0; i < h->n; i++) {
		const struct head_field *x = &h->field[i];

		if (!x->drop && !http_text_is(x->name, "host"))
			put(f, x->name, x->value, mask,
			    i >= received || head_is_credential(x->name));
	}
}

int h2_write_request(const struct request *q, const struct place *p, size_t received, bool te,
		     struct h2_fields *ret)
{
	_cleanup_buf_ struct buf path = BUF_INIT(FIELDS_TEXT_MAX);
	struct head head = q->head;
	const struct head_field *host = head_find(&head, "host", NULL);
	const char *scheme = p->tls ? "https" : "http";

	(void)buf_puts(&path, q->path);
	if (q->query.s) {
		(void)buf_putc(&path, '?');
		(void)buf_put(&path, q->query.s, q->query.n);
	}
	if (path.err || begin(ret, &q->head, path.len + strlen(q->method)) < 0)
		return -ENOMEM;
	put_pseudo(ret, H2_METHOD, head_text(q->method), false);
	put_pseudo(ret, H2_SCHEME, head_text(scheme), false);
	put_pseudo(ret, H2_AUTHORITY, host ? host->value : head_text(""), false);
	put_pseudo(ret, H2_PATH, text_of(&path), true);
	put_head(ret, &q->head, received, NULL);
	if (te)
		put(ret, head_text("te"), head_text("trailers"), NULL, false);
	sodium_memzero(path.data, path.cap); /* a query may have a secret */
	return 0;
}

int h2_write_response(struct response *r, struct mask *mask, struct h2_fields *ret)
{
	char status[16];

	if (r->kind == BODY_LENGTH || r->announced) {
		(void)snprintf(r->length_text, sizeof(r->length_text), "%llu",
			       (unsigned long long)r->length);
		head_add(&r->head, "content-length", head_text(r->length_text));
	}
	(void)snprintf(status, sizeof(status), "%d", r->status);
	if (begin(ret, &r->head, 0) < 0)
		return -ENOMEM;
	put_pseudo(ret, H2_STATUS, head_text(status), false);
	put_head(ret, &r->head, r->head.n, mask);
	return 0;
}

int h2_write_trailers(const struct head_input *in, struct mask *mask, struct h2_fields *ret)
{
	struct head_connection c;
	const char *why;
	struct head h;

	ret->n = 0;
	ret->text = (struct buf)BUF_INIT(FIELDS_TEXT_MAX);
	if (head_parse(in, &h, &why) < 0)
		return 0; /* cannot happen: the text was written from checked fields */
	head_connection(&h, &c);
	(void)head_drop(&h, "content-length");
	(void)head_drop(&h, "transfer-encoding");
	(void)head_drop(&h, "alt-svc");
	if (begin(ret, &h, 0) < 0)
		return -ENOMEM;
	put_head(ret, &h, h.n, mask);
	return 0;
}

int h2_write_answer(const struct answer *a, struct h2_fields *ret)
{
	char text[32];

	if (begin(ret, NULL, SHORT_TEXT) < 0)
		return -ENOMEM;
	(void)snprintf(text, sizeof(text), "%u", a->status);
	put_pseudo(ret, H2_STATUS, head_text(text), false);
	put(ret, head_text("content-type"), head_text(a->type), NULL, false);
	put(ret, head_text("x-hutch-denied"), head_text(a->word), NULL, false);
	if (a->stop_retries)
		put(ret, head_text("x-should-retry"), head_text("false"), NULL, false);
	(void)snprintf(text, sizeof(text), "%zu", a->length);
	put(ret, head_text("content-length"), head_text(text), NULL, false);
	(void)snprintf(text, sizeof(text), "%u", a->retry_after);
	if (a->retry_after > 0)
		put(ret, head_text("retry-after"), head_text(text), NULL, false);
	return 0;
}

int h2_write_continue(struct h2_fields *ret)
{
	if (begin(ret, NULL, 0) < 0)
		return -ENOMEM;
	put_pseudo(ret, H2_STATUS, head_text("100"), false);
	return 0;
}
