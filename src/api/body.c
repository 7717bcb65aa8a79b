/* SPDX-License-Identifier: Apache-2.0 */
#include "api/body.h"

#include "api/apart.h"

static void on_collected(struct exchange *x, const char *data, size_t n)
{
	struct request *r = x->cookie;
	struct err e = ERR_INIT;

	request_enter(r);
	if (n == 0)
		r->body = json_object();
	if (n > 0 && json_read(data, n, &r->body, &e) < 0)
		request_fail(r, 400, "the body is not JSON: %s", e.msg);
	else if (!r->body)
		request_fail(r, 503, "out of memory");
	else if (!json_is_object(r->body))
		request_fail(r, 400, "the body is not a JSON object");
	else if (r->route && r->route->apart == BODY_APART)
		request_apart(r, r->have_body);
	else
		r->have_body(r);
	request_leave();
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
