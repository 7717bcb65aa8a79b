/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/head.h"

#include <string.h>

#include "base/str.h"
#include "tap/mask.h"

static const char *const credentials[] = {
	"authorization",  "proxy-authorization", "x-api-key",	  "api-key",
	"x-goog-api-key", "x-auth-token",	 "private-token", "job-token",
};

/* Fields about one connection, never forwarded as received; and all that begin with "Proxy-". The
 * caller handles Upgrade. */
static const char *const hop_fields[] = {
	"connection", "keep-alive", "te", "trailer", "http2-settings",
};

/* Fields that a Connection field cannot remove: otherwise a client could undo the checks, or what
 * the head of the message means. */
static const char *const end_fields[] = {
	"host",		 "content-length", "transfer-encoding", "content-type", "content-encoding",
	"content-range", "cookie",	   "set-cookie",	"expect",	"location",
	"range",
};

static bool listed(struct http_text name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (head_name_same(name, head_text(list[i])))
			return true;
	return false;
}

bool head_name_same(struct http_text a, struct http_text b)
{
	if (a.n != b.n)
		return false;
	for (size_t i = 0; i < a.n; i++) {
		char x = a.s[i] == '_' ? '-' : ascii_lower(a.s[i]);
		char y = b.s[i] == '_' ? '-' : ascii_lower(b.s[i]);

		if (x != y)
			return false;
	}
	return true;
}

bool head_is_credential(struct http_text name)
{
	return listed(name, credentials, ARRAY_SIZE(credentials));
}

/* ---- reading ---- */

int head_feed(struct head_input *in, const char *data, size_t n, size_t *ret_used,
	      const char **ret_why)
{
	enum http_scanned r = HTTP_SCAN_MORE;
	size_t i = 0;

	*ret_used = 0;
	while (i < n && r != HTTP_SCAN_HEAD) {
		if (in->scan.pos == EXCHANGE_HEAD_MAX)
			return -E2BIG;
		r = http_scan_byte(&in->scan, data[i++]);
		if (r == HTTP_SCAN_BAD_END || r == HTTP_SCAN_CONTROL) {
			*ret_why = r == HTTP_SCAN_CONTROL ? "a control character in the head"
							  : "a line that does not end in CR LF";
			return -EBADMSG;
		}
		if (r == HTTP_SCAN_LINE && in->scan.lines > EXCHANGE_FIELDS_MAX + 1)
			return -E2BIG;
	}
	if (buf_put(&in->text, data, i) < 0)
		return in->text.err;
	*ret_used = i;
	return r == HTTP_SCAN_HEAD;
}

void head_input_reset(struct head_input *in)
{
	buf_done(&in->text);
	in->scan = (struct http_scan){ 0 };
}

int head_parse(const struct head_input *in, struct head *ret, const char **ret_why)
{
	struct http_scan scan = { 0 };
	struct http_header field;
	struct http_text line;

	ret->n = 0;
	if (http_scan_line(&scan, in->text.data, in->text.len, &ret->line) != HTTP_SCAN_LINE) {
		*ret_why = "an empty line instead of a head";
		return -EBADMSG;
	}
	while (http_scan_line(&scan, in->text.data, in->text.len, &line) == HTTP_SCAN_LINE) {
		if (http_header_parse(line, &field) < 0) {
			*ret_why = http_is_blank(line.s[0]) ? "a folded field"
							    : "a field that is not NAME: VALUE";
			return -EBADMSG;
		}
		assert(ret->n < EXCHANGE_FIELDS_MAX);
		ret->field[ret->n++] = (struct head_field){ field.name, field.value, false };
	}
	return 0;
}

/* ---- fields ---- */

struct head_field *head_find(struct head *h, const char *name, size_t *ret_count)
{
	struct head_field *found = NULL;
	size_t count = 0;

	for (size_t i = 0; i < h->n; i++) {
		if (h->field[i].drop || !http_text_is(h->field[i].name, name))
			continue;
		if (count++ == 0)
			found = &h->field[i];
	}
	if (ret_count)
		*ret_count = count;
	return found;
}

size_t head_drop(struct head *h, const char *name)
{
	size_t count = 0;

	for (size_t i = 0; i < h->n; i++) {
		if (h->field[i].drop || !head_name_same(h->field[i].name, head_text(name)))
			continue;
		h->field[i].drop = true;
		count++;
	}
	return count;
}

void head_add(struct head *h, const char *name, struct http_text value)
{
	assert(h->n < ARRAY_SIZE(h->field));
	h->field[h->n++] = (struct head_field){ head_text(name), value, false };
}

bool head_list_next(struct http_text *list, struct http_text *ret)
{
	while (list->n > 0) {
		const char *comma = memchr(list->s, ',', list->n);
		struct http_text t = { list->s, comma ? (size_t)(comma - list->s) : list->n };
		size_t used = t.n + (comma != NULL);

		list->s += used;
		list->n -= used;
		for (; t.n > 0 && http_is_blank(t.s[0]); t.s++)
			t.n--;
		while (t.n > 0 && http_is_blank(t.s[t.n - 1]))
			t.n--;
		*ret = t;
		if (t.n > 0)
			return true;
	}
	return false;
}

static void connection_token(struct head *h, struct http_text token, struct head_connection *c)
{
	if (http_text_is(token, "close"))
		c->close = true;
	else if (http_text_is(token, "keep-alive"))
		c->keep_alive = true;
	else if (http_text_is(token, "upgrade"))
		c->upgrade = true;
	else if (!listed(token, end_fields, ARRAY_SIZE(end_fields)) && !head_is_credential(token))
		for (size_t i = 0; i < h->n; i++)
			h->field[i].drop |= http_text_same(h->field[i].name, token);
}

void head_connection(struct head *h, struct head_connection *ret)
{
	*ret = (struct head_connection){ 0 };
	for (size_t i = 0; i < h->n; i++) {
		struct http_text list = h->field[i].value, token;

		if (http_text_is(h->field[i].name, "connection"))
			while (head_list_next(&list, &token))
				connection_token(h, token, ret);
	}
	for (size_t i = 0; i < h->n; i++) {
		struct http_text name = h->field[i].name;

		h->field[i].drop |= listed(name, hop_fields, ARRAY_SIZE(hop_fields)) ||
				    (name.n > 6 && strncasecmp(name.s, "proxy-", 6) == 0);
	}
}

int head_framing(struct head *h, enum framing *ret, uint64_t *ret_length, const char **ret_why)
{
	size_t lengths, codings;
	const struct head_field *length = head_find(h, "content-length", &lengths);
	const struct head_field *coding = head_find(h, "transfer-encoding", &codings);

	*ret_why = NULL;
	*ret_length = 0;
	if (lengths + codings > 1)
		*ret_why = "more than one Content-Length or Transfer-Encoding";
	else if (codings == 1 && !http_text_is(coding->value, "chunked"))
		*ret_why = "a Transfer-Encoding other than chunked";
	else if (lengths == 1 &&
		 str_to_u64(length->value.s, length->value.n, INT64_MAX, ret_length) < 0)
		*ret_why = "a Content-Length that is not a number below 2^63";
	*ret = codings ? FRAMING_CHUNKED : lengths ? FRAMING_LENGTH : FRAMING_NONE;
	/* Also "Content_Length", which some servers take for the field. */
	if (!*ret_why &&
	    head_drop(h, "content-length") + head_drop(h, "transfer-encoding") != lengths + codings)
		*ret_why = "a field that resembles Content-Length or Transfer-Encoding";
	return *ret_why ? -EBADMSG : 0;
}

/* ---- writing ---- */

static void put_masked(struct buf *out, struct http_text t, struct mask *mask)
{
	size_t at = out->len;

	if (buf_put(out, t.s, t.n) == 0 && mask)
		mask_text(mask, out->data + at, t.n);
}

void head_write(struct buf *out, const struct head *h, struct mask *mask)
{
	for (size_t i = 0; i < h->n; i++) {
		const struct head_field *f = &h->field[i];

		if (f->drop)
			continue;
		put_masked(out, f->name, mask);
		(void)buf_puts(out, ": ");
		put_masked(out, f->value, mask);
		(void)buf_puts(out, "\r\n");
	}
	(void)buf_puts(out, "\r\n");
}
