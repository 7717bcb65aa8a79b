/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives for COPY steps of a recipe. SDKs upload them without a key, so each upload URL is valid
 * for one archive and one hour.
 */
#include <sodium.h>
#include <string.h>

#include "base/clock.h"
#include "e2b/e2b.h"

enum {
	TICKET_HEX = 32,
	TICKET_S = 3600,
};

/* Proves that hutchd issued this URL, for which store, and until when it is valid. */
static void ticket(const struct request *r, const char *owner, uint64_t until,
		   char out[static TICKET_HEX + 1])
{
	const struct api *a = r->api;
	unsigned char mac[TICKET_HEX / 2];
	char text[512];
	int n = snprintf(text, sizeof(text), "%s/%s/%s/%llu", owner, r->args[0], r->args[1],
			 (unsigned long long)until);

	(void)crypto_generichash(mac, sizeof(mac), (const unsigned char *)text,
				 MIN((size_t)n, sizeof(text) - 1), a->secret, sizeof(a->secret));
	(void)sodium_bin2hex(out, TICKET_HEX + 1, mac, sizeof(mac));
}

static json_t *upload_url(const struct request *r, const char *owner)
{
	uint64_t until = clock_wall() / NSEC_PER_SEC + TICKET_S;
	char mac[TICKET_HEX + 1], url[1024];

	ticket(r, owner, until, mac);
	(void)snprintf(url, sizeof(url),
		       "%s://%s/templates/%s/files/%s?until=%llu&owner=%s&ticket=%s",
		       r->x->tls ? "https" : "http", r->x->host, r->args[0], r->args[1],
		       (unsigned long long)until, owner, mac);
	return json_string(url);
}

/* Requires an existing template, so that a client cannot fill another key's store. */
static int has_file(const struct request *r, const struct template_store *s, bool *ret,
		    struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	char id[TEMPLATE_ID + 1];
	int rc = template_find(s, r->args[0], id, e);

	if (rc == 0 && !str_eq(id, r->args[0]))
		rc = err_set(e, -ENOENT, "no template of the id '%.80s'", r->args[0]);
	if (rc < 0)
		return rc;
	rc = template_file_open(s, id, r->args[1], &fd, e);
	*ret = rc == 0;
	return rc == -ENOENT ? 0 : rc;
}

void e2b_template_ask_file(struct request *r)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	struct err e = ERR_INIT;
	bool present = false;
	int rc = e2b_template_store(r, r->args[0], &s, &e);

	if (rc == 0)
		rc = has_file(r, &s, &present, &e);
	if (rc < 0)
		request_fail_err(r, &e);
	else
		request_answer(r, 201,
			       JSON_OBJECT({ "present", json_boolean(present) },
					   { "url", upload_url(r, s.owner) }));
}

/* The loop creates and writes the file, which does not block. A job finishes it, because that waits
 * for the disk and for the lock of the owner's templates. */
struct upload {
	struct request *request;
	struct template_store store;
	struct template_upload upload;
	struct job *job; /* finishes the upload */
	struct err error;
};

static void upload_drop(struct request *r)
{
	struct upload *u = r->data;

	if (u->job)
		job_abandon(u->job, NULL, NULL);
	template_upload_drop(&u->upload);
	template_store_close(&u->store);
	free(u);
}

static void upload_data(struct exchange *x, const char *data, size_t n)
{
	struct request *r = x->cookie;
	struct upload *u = r->data;

	if (u->error.num == 0)
		(void)template_upload_write(&u->upload, data, n, &u->error);
}

static int end_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	const struct upload *u = arg;
	int r = template_store_open(&s, u->store.owner, false, e);

	(void)ret;
	return r < 0 ? r : template_upload_end(&s, &u->upload, e);
}

static void end_done(void *arg, const json_t *result, const struct err *e)
{
	struct upload *u = arg;

	u->job = NULL;
	if (result)
		request_empty(u->request, 200);
	else
		request_fail_err(u->request, e);
}

static void upload_end(struct exchange *x)
{
	static const struct job_ops ops = { .work = end_work, .done = end_done };
	struct request *r = x->cookie;
	struct upload *u = r->data;
	struct err e = u->error;

	request_enter(r);
	/* The job counts for the owner, although the request has no key. */
	if (e.num < 0 ||
	    job_start(r->api->pools[POOL_LOOK], u->store.owner, &ops, u, &u->job, &e) < 0)
		request_fail_err(r, &e);
	request_leave();
}

static bool has_ticket(const struct request *r, char **ret_owner)
{
	_cleanup_free_ char *until = NULL, *given = NULL, *owner = NULL;
	char mac[TICKET_HEX + 1];
	uint64_t end = 0;

	if (http_query(r->x, "until", &until) < 0 || http_query(r->x, "ticket", &given) < 0 ||
	    http_query(r->x, "owner", &owner) < 0 ||
	    str_to_u64(until, strlen(until), INT64_MAX, &end) < 0 || strlen(given) != TICKET_HEX ||
	    end < clock_wall() / NSEC_PER_SEC)
		return false;
	ticket(r, owner, end, mac);
	*ret_owner = TAKE_PTR(owner);
	return sodium_memcmp(mac, given, TICKET_HEX) == 0;
}

void e2b_template_put_file(struct request *r)
{
	static const struct http_body ops = { .data = upload_data, .end = upload_end };
	_cleanup_free_ char *owner = NULL;
	struct err e = ERR_INIT;
	struct upload *u;
	int rc;

	if (!has_ticket(r, &owner)) {
		request_fail(r, 401, "this upload address has expired: request a new one");
		return;
	}
	u = calloc(1, sizeof(*u));
	if (!u) {
		request_fail(r, 503, "out of memory");
		return;
	}
	*u = (struct upload){ .request = r,
			      .store = TEMPLATE_STORE_INIT,
			      .upload = TEMPLATE_UPLOAD_INIT,
			      .error = ERR_INIT };
	r->data = u;
	r->drop = upload_drop;
	rc = template_store_open(&u->store, owner, true, &e);
	if (rc == 0)
		rc = template_upload_begin(&u->store, r->args[0], r->args[1],
					   r->x->length > 0 ? (uint64_t)r->x->length : 0,
					   &u->upload, &e);
	if (rc < 0)
		request_fail_err(r, &e);
	else
		http_body(r->x, &ops);
}
