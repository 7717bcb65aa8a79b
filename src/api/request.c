/* SPDX-License-Identifier: Apache-2.0 */
#include "api/request.h"

#include <stdarg.h>
#include <string.h>

#include "base/clock.h"

static const char type_json[] = "application/json";

/* ---- life ---- */

void request_enter(const struct request *r)
{
	trace_set_request(r->id);
}

void request_leave(void)
{
	trace_set_request("");
}

static void trace_answer(const struct request *r, int status)
{
	TRACE_OF(r->id, TRACE_TIME, "%s %s: %d, %llu us", r->x->method,
		 r->route ? r->route->path : "(no route)", status,
		 (unsigned long long)((clock_mono() - r->since) / 1000));
}

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
	if (r->forget)
		r->forget(r);
	leave(r);
	json_decref(r->body);
	free(r);
}

/* Ends a request whose answer is complete: the exchange is not ours any more. */
#define FINISH(r, call)                       \
	do {                                  \
		struct exchange *x_ = (r)->x; \
		request_free(r);              \
		call(x_);                     \
	} while (0)

const char *request_agent(const struct request *r)
{
	return r->role != ROLE_ADMIN && r->grant.n_agents > 0 ? r->grant.agents[0]
							      : r->api->config->agent;
}

bool request_may_use(const struct request *r, const char *agent)
{
	return r->role == ROLE_ADMIN || str_eq(agent, request_agent(r)) ||
	       key_grant_has(&r->grant, agent);
}

/* ---- answers ---- */

void request_text(struct request *r, int status, const char *type, const char *text, size_t n)
{
	struct exchange *x = r->x;

	if (r->tell) {
		r->tell(r, status, type, text, n);
		return;
	}
	trace_answer(r, status);
	/* The text may be freed with the request, so free that last, when x is not ours. */
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
		return 409;
	case -EACCES:
		return 403;
	case -EAGAIN:
	case -EUSERS: /* a quota */
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

/* The text of these errors is meant for clients, although the status is 500. */
static bool is_told(int num)
{
	return num == -ETIME || num == -ECANCELED || num == -ENOEXEC || num == -ENOMEM;
}

/* Finds a slash at the start of a word: in "'/var/lib/hutch': ...", not in "10.0.0.0/8". */
static bool names_a_path(const char *text)
{
	for (const char *s = strchr(text, '/'); s; s = strchr(s + 1, '/'))
		if ((s == text || strchr(" '\"(:=", s[-1])) &&
		    (ascii_is_lower(ascii_lower(s[1])) || s[1] == '.' || s[1] == '_'))
			return true;
	return false;
}

static const char *generic_text(int status)
{
	switch (status) {
	case 400:
		return "this request is refused";
	case 403:
		return "this is not permitted";
	case 404:
		return "there is no such object";
	case 409:
		return "the object is in use or has changed: try again";
	case 507:
		return "this host has no room left";
	default:
		return "this host could not do it";
	}
}

const char *request_reason(const struct request *r, int status, const struct err *e,
			   char out[static REQUEST_TEXT_MAX])
{
	const char *path = r->route ? r->route->path : "";

	if (status >= 500)
		log_error_of(r->box ? r->box->sandbox.id : NULL, r->id, "%s %s: %s", r->x->method,
			     path, e->msg);
	if (r->role == ROLE_ADMIN || !((status >= 500 && !is_told(e->num)) || names_a_path(e->msg)))
		return e->msg;
	if (status < 500)
		log_warning("%s %s: %s", r->x->method, path, e->msg);
	(void)snprintf(out, REQUEST_TEXT_MAX, "%s; the operator sees why in hutchd's log",
		       generic_text(status));
	return out;
}

void request_retry(struct request *r, int status)
{
	if (status == 429)
		http_add_field(r->x, "Retry-After", "1");
}

void request_fail_err(struct request *r, const struct err *e)
{
	int status = status_of(e->num);
	char text[REQUEST_TEXT_MAX];

	request_retry(r, status);
	request_fail(r, status, "%s", request_reason(r, status, e, text));
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

/* ---- streamed answers ---- */

static void on_room(struct exchange *x)
{
	struct request *r = x->cookie;

	if (r && r->room)
		r->room(r);
}

void request_begin(struct request *r, int status, const char *type, int64_t length)
{
	r->begun = true;
	trace_answer(r, status);
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
