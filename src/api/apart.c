/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a handler in a job's child, on the child's copy of the request. The handler's answer is the
 * job's result, which the parent sends. A handler needs no changes for this, if it answers before
 * it returns and changes nothing but files.
 */
#include "api/apart.h"

struct apart {
	struct request *request;
	struct job *job;
	void (*handle)(struct request *r);
	json_t *told; /* the answer, in the child */
};

static void tell(struct request *r, int status, const char *type, const char *text, size_t n)
{
	struct apart *a = r->apart;

	json_decref(a->told);
	a->told = JSON_OBJECT({ "status", json_integer(status) },
			      { "json", json_boolean(type != NULL) },
			      { "text", json_stringn(text, n) });
}

static int work(void *arg, json_t **ret, struct err *e)
{
	struct apart *a = arg;

	a->request->apart = a;
	a->request->tell = tell;
	a->handle(a->request);
	*ret = a->told;
	return *ret ? 0 : err_oom(e);
}

static void done(void *arg, const json_t *result, const struct err *e)
{
	const json_t *text = json_object_get(result, "text");
	const int status = (int)json_integer_value(json_object_get(result, "status"));
	struct apart *a = arg;
	struct request *r = a->request;

	a->job = NULL;
	if (!text || status < 200) {
		request_fail_err(r, e);
		return;
	}
	request_retry(r, status);
	request_text(r, status,
		     json_is_true(json_object_get(result, "json")) ? "application/json" : NULL,
		     json_string_value(text), json_string_length(text));
}

static void drop(struct request *r)
{
	struct apart *a = r->data;

	if (a->job)
		job_abandon(a->job, NULL, NULL);
	free(a);
}

void request_apart(struct request *r, void (*handle)(struct request *r))
{
	static const struct job_ops ops = { .work = work, .done = done };
	struct apart *a = calloc(1, sizeof(*a));
	struct err e = ERR_INIT;

	if (!a) {
		request_fail(r, 503, "out of memory");
		return;
	}
	*a = (struct apart){ .request = r, .handle = handle };
	r->data = a;
	r->drop = drop;
	if (job_start(r->api->pools[POOL_LOOK], r->owner, &ops, a, &a->job, &e) < 0)
		request_fail_err(r, &e);
}
