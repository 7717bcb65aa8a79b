/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <string.h>

#include "api-inner.h"
#include "request.h"
#include "rpc.h"

static const char type_json[] = "application/json";

/* ---- life ---- */

static void leave(struct request *r)
{
	struct box *b = r->box;

	if (!b)
		return;
	if (r->prev)
		r->prev->next = r->next;
	else
		b->requests = r->next;
	if (r->next)
		r->next->prev = r->prev;
	r->box = NULL;
	r->prev = r->next = NULL;
}

void request_join(struct request *r, struct box *b)
{
	leave(r);
	r->box = b;
	r->next = b->requests;
	if (r->next)
		r->next->prev = r;
	b->requests = r;
}

void request_free(struct request *r)
{
	if (r->x)
		r->x->cookie = NULL;
	if (r->drop)
		r->drop(r);
	rpc_forget(r);
	leave(r);
	json_decref(r->body);
	free(r);
}

/* The answer is complete: the exchange is not ours any more. */
#define FINISH(r, call)                       \
	do {                                  \
		struct exchange *x_ = (r)->x; \
		request_free(r);              \
		call(x_);                     \
	} while (0)

/* ---- answers ---- */

void request_text(struct request *r, int status, const char *type, const char *text, size_t n)
{
	struct exchange *x = r->x;

	/* The text may belong to what is freed with the request, so that goes last; but by then the
	 * exchange is not ours. */
	x->cookie = NULL;
	r->x = NULL;
	http_answer(x, status, type, text, n);
	request_free(r);
}

void request_empty(struct request *r, int status)
{
	request_text(r, status, NULL, "", 0);
}

void request_answer(struct request *r, int status, json_t *body)
{
	_cleanup_json_ json_t *j = body;
	_cleanup_free_ char *text = j ? json_write_line(j) : NULL;

	if (!text)
		request_text(r, 503, type_json, "{\"code\":503,\"message\":\"out of memory\"}", 38);
	else
		request_text(r, status, type_json, text, strlen(text));
}

static json_t *failure(int status, const char *message)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4 * REQUEST_TEXT_MAX + 64);

	if (str_escape(&b, message, strlen(message)) < 0)
		return NULL;
	return JSON_OBJECT({ "code", json_integer(status) },
			   { "message", json_string(buf_text(&b)) });
}

void request_fail(struct request *r, int status, const char *fmt, ...)
{
	char text[REQUEST_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (r->begun)
		request_cut(r);
	else
		request_answer(r, status, failure(status, text));
}

static int status_of(int num)
{
	switch (num) {
	case -EINVAL:
	case -E2BIG:
	case -ERANGE:
	case -ENOTSUP:
		return 400;
	case -ENOENT:
	case -ESRCH:
		return 404;
	case -EEXIST:
	case -EBUSY:
	case -EALREADY:
	case -EUSERS:
		return 409;
	case -EACCES:
		return 403;
	case -EAGAIN:
		return 429;
	case -ENOSPC:
	case -EDQUOT:
		return 507;
	case -ENOMEM:
		return 503;
	default:
		return 500;
	}
}

void request_fail_err(struct request *r, const struct err *e)
{
	int status = status_of(e->num);

	if (status == 429)
		http_add_field(r->x, "Retry-After", "1");
	if (status >= 500)
		log_error("%s %s: %s", r->x->method, r->route ? r->route->path : "", e->msg);
	request_fail(r, status, "%s", e->msg);
}

void request_gone(struct request *r)
{
	const char *id = r->args[0];

	if (r->begun) {
		request_cut(r);
		return;
	}
	request_answer(r, 502,
		       JSON_OBJECT({ "sandboxId", json_string(id) },
				   { "message", json_string("The sandbox was not found") },
				   { "code", json_integer(502) }));
}

/* ---- in pieces ---- */

static void on_room(struct exchange *x)
{
	struct request *r = x->cookie;

	if (r && r->room)
		r->room(r);
}

void request_begin(struct request *r, int status, const char *type, int64_t length)
{
	r->begun = true;
	http_begin(r->x, status, type, length, on_room);
}

void request_write(struct request *r, const void *data, size_t n)
{
	http_write(r->x, data, n);
}

void request_end(struct request *r)
{
	FINISH(r, http_end);
}

void request_finish(struct request *r, const void *data, size_t n)
{
	struct exchange *x = r->x;

	request_free(r);
	http_finish(x, data, n);
}

void request_cut(struct request *r)
{
	FINISH(r, http_cut);
}

/* ---- bodies ---- */

static void on_collected(struct exchange *x, const char *data, size_t n)
{
	struct request *r = x->cookie;
	struct err e = ERR_INIT;

	if (n == 0)
		r->body = json_object();
	else if (json_read(data, n, &r->body, &e) < 0)
		return request_fail(r, 400, "the body is not JSON: %s", e.msg);
	if (!r->body)
		request_fail(r, 503, "out of memory");
	else if (!json_is_object(r->body))
		request_fail(r, 400, "the body is not a JSON object");
	else
		r->have_body(r);
}

void request_json(struct request *r, bool optional, void (*have)(struct request *r))
{
	if (r->x->length == 0 && !optional) {
		request_fail(r, 400, "a JSON object is expected as the body");
		return;
	}
	r->have_body = have;
	http_collect(r->x, HTTP_SERVER_JSON_MAX, on_collected);
}
