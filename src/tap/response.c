/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 9112, 6.3: where the body of a response ends. */
#include "tap/response.h"

#include <string.h>

#include "base/str.h"
#include "tap/mask.h"

enum {
	STATUS_SWITCHING = 101,
	STATUS_NO_CONTENT = 204,
	STATUS_NOT_MODIFIED = 304,
	LINE_STATUS_END = STRLEN("HTTP/1.1 200"),
};

static int read_body(const char *method, enum framing framing, bool old, struct response *r,
		     const char **why)
{
	const bool chunked = framing == FRAMING_CHUNKED;

	if (chunked && old) {
		*why = "a chunked body in HTTP/1.0";
		return -EBADMSG;
	}
	r->kind = BODY_NONE;
	if (r->status < 200 || r->status == STATUS_NO_CONTENT) {
		if (!chunked && r->length == 0)
			return 0;
		*why = "a body with a status that has none";
		return -EBADMSG;
	}
	if (r->status == STATUS_NOT_MODIFIED || str_eq(method, "HEAD")) {
		r->announced = framing == FRAMING_LENGTH;
		return 0;
	}
	r->kind = chunked		      ? BODY_CHUNKED
		  : framing == FRAMING_LENGTH ? BODY_LENGTH
					      : BODY_UNTIL_CLOSE;
	return 0;
}

static bool is_websocket(struct response *r, const struct head_connection *c)
{
	size_t count;
	const struct head_field *f = head_find(&r->head, "upgrade", &count);

	return count == 1 && http_text_is(f->value, "websocket") && c->upgrade;
}

int response_parse(const struct head_input *in, const char *method, struct response *ret,
		   const char **ret_why)
{
	struct head_connection c;
	enum framing framing;
	bool old;
	int r;

	*ret = (struct response){ 0 };
	ret->status = http_status_parse(in->text.data, in->text.len);
	if (ret->status <= 0 || head_parse(in, &ret->head, ret_why) < 0) {
		if (ret->status <= 0)
			*ret_why = "a first line that is not HTTP/1.1 STATUS";
		return -EBADMSG;
	}
	old = ret->head.line.s[STRLEN("HTTP/1.")] == '0';
	ret->reason = (struct http_text){ ret->head.line.s + LINE_STATUS_END,
					  ret->head.line.n - LINE_STATUS_END };
	if (head_framing(&ret->head, &framing, &ret->length, ret_why) < 0)
		return -EBADMSG;
	head_connection(&ret->head, &c);
	r = read_body(method, framing, old, ret, ret_why);
	ret->websocket = ret->status == STATUS_SWITCHING && is_websocket(ret, &c);
	(void)head_drop(&ret->head, "upgrade");
	(void)head_drop(&ret->head, "alt-svc"); /* the way around hutch-tap */
	ret->close = c.close || (old && !c.keep_alive) || ret->kind == BODY_UNTIL_CLOSE;
	return r;
}

bool response_is_compressed(struct response *r)
{
	static const char *const names[] = {
		"content-encoding",
		"grpc-encoding",
		"connect-content-encoding",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const struct head_field *f = head_find(&r->head, names[i], NULL);

		if (f && r->kind != BODY_NONE && !http_text_is(f->value, "identity"))
			return true;
	}
	return false;
}

void response_write(struct buf *out, struct response *r, enum body_kind kind, bool close,
		    struct mask *mask)
{
	size_t reason;

	if (kind == BODY_LENGTH || r->announced) {
		(void)snprintf(r->length_text, sizeof(r->length_text), "%llu",
			       (unsigned long long)r->length);
		head_add(&r->head, "Content-Length", head_text(r->length_text));
	} else if (kind == BODY_CHUNKED) {
		head_add(&r->head, "Transfer-Encoding", head_text("chunked"));
	}
	if (r->websocket) {
		head_add(&r->head, "Connection", head_text("Upgrade"));
		head_add(&r->head, "Upgrade", head_text("websocket"));
	} else if (close) {
		head_add(&r->head, "Connection", head_text("close"));
	}
	(void)buf_printf(out, "HTTP/1.1 %d", r->status);
	reason = out->len;
	if (buf_put(out, r->reason.s, r->reason.n) == 0)
		mask_text(mask, out->data + reason, r->reason.n);
	(void)buf_puts(out, r->reason.n == 0 ? " \r\n" : "\r\n");
	head_write(out, &r->head, mask);
}
