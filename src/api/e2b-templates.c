/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates of the E2B API. What is known of them is in files (template.h); builds are jobs of
 * their own queue. Archives for COPY are sent to an address that holds for an hour and for that
 * archive only, because SDKs send no key along with them.
 */
#include <sodium.h>
#include <string.h>

#include "clock.h"
#include "e2b.h"
#include "recipe.h"
#include "routes.h"

enum {
	TICKET_HEX = 32,
	TICKET_S = 3600,
};

static int open_store(struct template_store *s, struct err *e)
{
	return template_store_open(s, true, e);
}

/*
 * Everybody may use a template; to change one is for administrators and for the key that it was
 * first made with. One that is not there yet is nobody's.
 */
static int may_change(const struct request *r, const struct template_store *s, const char *ref,
		      struct err *e)
{
	char owner[TEMPLATE_NAME_MAX + 1] = "";
	struct err own = ERR_INIT;
	int rc;

	if (r->role == ROLE_ADMIN)
		return 0;
	rc = template_owner(s, ref, owner, &own);
	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return (*e = own).num;
	if (!str_eq(owner, r->owner))
		return err_set(e, -EACCES, "the template '%.80s' is somebody else's", ref);
	return 0;
}

/* A uint that may be absent. */
static int take_u64(const json_t *body, const char *key, uint64_t max, uint64_t *ret, struct err *e)
{
	const json_t *value = json_object_get(body, key);

	*ret = 0;
	return !value || json_is_null(value) ? 0 : json_get_u64(body, key, max, ret, e);
}

/* Texts of a list, NULL-terminated; absent is none. They belong to the body. */
static int take_texts(const json_t *body, const char *key, const char **list, size_t max,
		      struct err *e)
{
	const json_t *array = json_object_get(body, key), *one;
	size_t i;

	list[0] = NULL;
	if (!array || json_is_null(array))
		return 0;
	if (!json_is_array(array) || json_array_size(array) > max)
		return err_set(e, -EINVAL, "%s: expected a list of at most %zu texts", key, max);
	json_array_foreach(array, i, one)
	{
		if (!json_is_string(one))
			return err_set(e, -EINVAL, "%s: expected a list of texts", key);
		list[i] = json_string_value(one);
		list[i + 1] = NULL;
	}
	return 0;
}

/* ---- a new build ---- */

static json_t *names_of(const struct template_build *b)
{
	_cleanup_json_ json_t *list = json_array();

	if (!list || json_push(list, json_string(b->name)) < 0)
		return NULL;
	return TAKE_PTR(list);
}

static json_t *tags_of(const struct template_build *b)
{
	const char *tags[TEMPLATE_ASKED_MAX];

	for (size_t i = 0; i < b->n_tags; i++)
		tags[i] = b->tags[i];
	return json_texts(tags, b->n_tags);
}

static int begin(const struct request *rq, const json_t *body, struct template_build *ret,
		 struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	const char *tags[TEMPLATE_ASKED_MAX + 1];
	struct template_request q = { .tags = tags, .owner = rq->owner };
	int r;

	q.name = json_string_value(json_object_get(body, "name"));
	if (!q.name)
		q.name = json_string_value(json_object_get(body, "alias"));
	if (!q.name)
		return err_set(e, -EINVAL, "name is missing");
	r = take_texts(body, "tags", tags, TEMPLATE_ASKED_MAX, e);
	if (r == 0)
		r = take_u64(body, "cpuCount", TEMPLATE_CPUS_MAX, &q.cpus, e);
	if (r == 0)
		r = take_u64(body, "memoryMB", TEMPLATE_MEMORY_MAX, &q.memory, e);
	if (r == 0)
		r = open_store(&s, e);
	if (r == 0)
		r = may_change(rq, &s, q.name, e);
	return r < 0 ? r : template_begin(&s, &q, ret, e);
}

static void have_new(struct request *r)
{
	struct template_build b = { 0 };
	struct err e = ERR_INIT;

	if (begin(r, r->body, &b, &e) < 0)
		request_fail_err(r, &e);
	else
		request_answer(r, 202,
			       JSON_OBJECT({ "templateID", json_string(b.template) },
					   { "buildID", json_string(b.build) },
					   { "public", json_false() }, { "names", names_of(&b) },
					   { "aliases", names_of(&b) }, { "tags", tags_of(&b) }));
}

static void new_build(struct request *r)
{
	request_json(r, false, have_new);
}

/* ---- archives ---- */

/* Proves that we gave out this address, and until when it holds. */
static void ticket(const struct api *a, const char *template, const char *hash, uint64_t until,
		   char out[static TICKET_HEX + 1])
{
	unsigned char mac[TICKET_HEX / 2];
	char text[512];
	int n = snprintf(text, sizeof(text), "%s/%s/%llu", template, hash,
			 (unsigned long long)until);

	(void)crypto_generichash(mac, sizeof(mac), (const unsigned char *)text, (size_t)n,
				 a->secret, sizeof(a->secret));
	(void)sodium_bin2hex(out, TICKET_HEX + 1, mac, sizeof(mac));
}

static json_t *upload_url(const struct request *r)
{
	uint64_t until = clock_wall() / NSEC_PER_SEC + TICKET_S;
	char mac[TICKET_HEX + 1], url[1024];

	ticket(r->api, r->args[0], r->args[1], until, mac);
	(void)snprintf(url, sizeof(url), "%s://%s/templates/%s/files/%s?until=%llu&ticket=%s",
		       r->x->tls ? "https" : "http", r->x->host, r->args[0], r->args[1],
		       (unsigned long long)until, mac);
	return json_string(url);
}

static int has_file(const struct request *r, bool *ret, struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	_cleanup_close_ int fd = -EBADF;
	int rc = open_store(&s, e);

	if (rc == 0)
		rc = may_change(r, &s, r->args[0], e);
	if (rc < 0)
		return rc;
	if (rc == 0)
		rc = template_file_open(&s, r->args[0], r->args[1], &fd, e);
	*ret = rc == 0;
	return rc == -ENOENT ? 0 : rc;
}

static void ask_file(struct request *r)
{
	struct err e = ERR_INIT;
	bool present = false;

	if (has_file(r, &present, &e) < 0)
		request_fail_err(r, &e);
	else
		request_answer(r, 201,
			       JSON_OBJECT({ "present", json_boolean(present) },
					   { "url", upload_url(r) }));
}

struct upload {
	struct template_store store;
	struct template_upload upload;
	struct err error;
};

static void upload_drop(struct request *r)
{
	struct upload *u = r->data;

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

static void upload_end(struct exchange *x)
{
	struct request *r = x->cookie;
	struct upload *u = r->data;
	struct err e = u->error;

	if (e.num == 0)
		(void)template_upload_end(&u->upload, &e);
	if (e.num < 0)
		request_fail_err(r, &e);
	else
		request_empty(r, 200);
}

static bool has_ticket(const struct request *r)
{
	_cleanup_free_ char *until = NULL, *given = NULL;
	char mac[TICKET_HEX + 1];
	uint64_t end = 0;

	if (http_query(r->x, "until", &until) < 0 || http_query(r->x, "ticket", &given) < 0 ||
	    str_to_u64(until, strlen(until), INT64_MAX, &end) < 0 || strlen(given) != TICKET_HEX ||
	    end < clock_wall() / NSEC_PER_SEC)
		return false;
	ticket(r->api, r->args[0], r->args[1], end, mac);
	return sodium_memcmp(mac, given, TICKET_HEX) == 0;
}

static void put_file(struct request *r)
{
	static const struct http_body ops = { .data = upload_data, .end = upload_end };
	struct err e = ERR_INIT;
	struct upload *u;
	int rc;

	if (!has_ticket(r)) {
		request_fail(r, 401, "this address does not hold any more: ask for another");
		return;
	}
	u = calloc(1, sizeof(*u));
	if (!u) {
		request_fail(r, 503, "out of memory");
		return;
	}
	*u = (struct upload){ .store = TEMPLATE_STORE_INIT,
			      .upload = TEMPLATE_UPLOAD_INIT,
			      .error = ERR_INIT };
	r->data = u;
	r->drop = upload_drop;
	rc = open_store(&u->store, &e);
	if (rc == 0)
		rc = template_upload_begin(&u->store, r->args[0], r->args[1],
					   r->x->length > 0 ? (uint64_t)r->x->length : 0,
					   &u->upload, &e);
	if (rc < 0)
		request_fail_err(r, &e);
	else
		http_body(r->x, &ops);
}

/* ---- builds ---- */

struct build {
	struct recipe_terms terms;
	char agent[256];
	struct key_grant grant;
	struct template_build build;
	json_t *recipe;
};

static void build_free(struct build *b)
{
	json_decref(b->recipe);
	free(b);
}

static int build_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	const struct build *b = arg;
	int r = open_store(&s, e);

	return r < 0 ? r : recipe_run(&s, &b->build, b->recipe, &b->terms, e);
}

/* One that died on the way has left no end. */
static void build_done(void *arg, const json_t *result, const struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	struct err own = ERR_INIT;
	struct build *b = arg;

	if (!result && open_store(&s, &own) == 0 &&
	    template_end(&s, b->build.template, b->build.build, e->msg, NULL, &own) < 0 &&
	    own.num != -EALREADY)
		log_error("build %s: %s", b->build.build, own.msg);
	build_free(b);
}

static const struct job_ops build_ops = { .work = build_work, .done = build_done };

static int start_build(struct request *r, struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	struct build *b;
	struct job *job;
	int rc = recipe_check(r->body, e);

	if (rc == 0)
		rc = open_store(&s, e);
	if (rc < 0)
		return rc;
	b = calloc(1, sizeof(*b));
	if (!b)
		return err_oom(e);
	(void)snprintf(b->agent, sizeof(b->agent), "%s", request_agent(r));
	b->grant = r->grant;
	b->terms = (struct recipe_terms){ .agent = b->agent,
					  .level = b->grant.level,
					  .all = r->role == ROLE_ADMIN };
	b->recipe = json_incref(r->body);
	rc = may_change(r, &s, r->args[0], e);
	if (rc == 0)
		rc = template_get(&s, r->args[0], r->args[1], &b->build, e);
	if (rc == 0)
		rc = template_building(&s, r->args[0], r->args[1], e);
	if (rc == 0)
		rc = job_start(r->api->builds, &build_ops, b, &job, e);
	if (rc < 0)
		build_free(b);
	return rc;
}

static void have_recipe(struct request *r)
{
	struct err e = ERR_INIT;

	if (start_build(r, &e) < 0)
		request_fail_err(r, &e);
	else
		request_empty(r, 202);
}

static void build(struct request *r)
{
	request_json(r, false, have_recipe);
}

static json_t *log_entry(const json_t *one)
{
	char when[CLOCK_RFC3339_MAX];
	json_t *step = json_object_get(one, "step");
	json_t *j = JSON_OBJECT(
		{ "timestamp",
		  json_string(clock_format(
			  (uint64_t)json_integer_value(json_object_get(one, "time")), when)) },
		{ "level", json_incref(json_object_get(one, "level")) },
		{ "message", json_incref(json_object_get(one, "message")) });

	if (j && step && json_put(j, "step", json_incref(step)) < 0)
		j = (json_decref(j), NULL);
	return j;
}

static json_t *log_entries(const json_t *log)
{
	_cleanup_json_ json_t *list = json_array();
	const json_t *one;
	size_t i;

	json_array_foreach(log, i, one)
	{
		if (list && json_push(list, log_entry(one)) < 0)
			return NULL;
	}
	return TAKE_PTR(list);
}

static json_t *reason_of(const struct template_build *b)
{
	json_t *j = JSON_OBJECT({ "message", json_string(b->reason) });

	if (j && b->step[0] && json_put(j, "step", json_string(b->step)) < 0)
		j = (json_decref(j), NULL);
	return j;
}

static json_t *status_of(const struct template_build *b, const json_t *log)
{
	_cleanup_json_ json_t *j = JSON_OBJECT(
		{ "templateID", json_string(b->template) }, { "buildID", json_string(b->build) },
		{ "status", json_string(template_status_names[b->status]) },
		{ "logs", json_array() }, { "logEntries", log_entries(log) });

	if (j && b->status == TEMPLATE_ERROR && json_put(j, "reason", reason_of(b)) < 0)
		return NULL;
	return TAKE_PTR(j);
}

static void status(struct request *r)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	_cleanup_json_ json_t *log = NULL;
	_cleanup_free_ char *text = NULL;
	struct template_build b = { 0 };
	struct err e = ERR_INIT;
	uint64_t from = 0;
	int rc = http_query(r->x, "logsOffset", &text);

	if (rc != -ENOENT && (rc < 0 || str_to_u64(text, strlen(text), INT64_MAX, &from) < 0)) {
		request_fail(r, 400, "logsOffset: expected a number");
		return;
	}
	rc = open_store(&s, &e);
	if (rc == 0)
		rc = may_change(r, &s, r->args[0], &e);
	/* What it is first, then what it said: so its last words are never missed. */
	if (rc == 0)
		rc = template_get(&s, r->args[0], r->args[1], &b, &e);
	if (rc == 0)
		rc = template_log_read(&s, b.build, from, TEMPLATE_PAGE_MAX, &log, &e);
	if (rc < 0)
		request_fail_err(r, &e);
	else
		request_answer(r, 200, status_of(&b, log));
}

/* ---- names and tags ---- */

/* A name means a template, or else an image of this host. */
static void alias(struct request *r)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	char id[TEMPLATE_ID + 1] = "";
	struct err e = ERR_INIT;
	int rc = image_name_valid(r->args[0]) ? open_store(&s, &e) : -ENOENT;

	if (rc == 0)
		rc = template_find(&s, r->args[0], id, &e);
	if ((rc == -ENOENT || rc == -EINVAL) && image_name_valid(r->args[0])) {
		e = (struct err)ERR_INIT;
		rc = image_find(r->args[0], &e);
	}
	if (rc == -ENOENT)
		request_fail(r, 404, "there is no template '%s'", r->args[0]);
	else if (rc < 0)
		request_fail_err(r, &e);
	else
		request_answer(r, 200,
			       JSON_OBJECT({ "templateID", json_string(id[0] ? id : r->args[0]) },
					   { "public", json_false() }));
}

static int set_tags(const struct request *rq, struct template_build *ret, struct err *e)
{
	const json_t *body = rq->body;
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	const char *tags[TEMPLATE_ASKED_MAX + 1];
	const char *target = json_string_value(json_object_get(body, "target"));
	int r = target ? open_store(&s, e) : err_set(e, -EINVAL, "target is missing");

	if (r == 0)
		r = take_texts(body, "tags", tags, TEMPLATE_ASKED_MAX, e);
	if (r == 0)
		r = may_change(rq, &s, target, e);
	return r < 0 ? r : template_tag(&s, target, tags, ret, e);
}

static void have_tags(struct request *r)
{
	struct template_build b = { 0 };
	struct err e = ERR_INIT;

	if (set_tags(r, &b, &e) < 0)
		request_fail_err(r, &e);
	else
		request_answer(
			r, 201,
			JSON_OBJECT({ "buildID", json_string(b.build) },
				    { "tags", json_incref(json_object_get(r->body, "tags")) }));
}

static void add_tags(struct request *r)
{
	request_json(r, false, have_tags);
}

static int take_tags(const struct request *rq, struct err *e)
{
	const json_t *body = rq->body;
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	const char *tags[TEMPLATE_ASKED_MAX + 1];
	const char *name = json_string_value(json_object_get(body, "name"));
	int r = name ? open_store(&s, e) : err_set(e, -EINVAL, "name is missing");

	if (r == 0)
		r = take_texts(body, "tags", tags, TEMPLATE_ASKED_MAX, e);
	if (r == 0)
		r = may_change(rq, &s, name, e);
	return r < 0 ? r : template_untag(&s, name, tags, e);
}

static void have_untag(struct request *r)
{
	struct err e = ERR_INIT;

	if (take_tags(r, &e) < 0)
		request_fail_err(r, &e);
	else
		request_empty(r, 204);
}

static void remove_tags(struct request *r)
{
	request_json(r, false, have_untag);
}

static json_t *tag_list(const json_t *all)
{
	_cleanup_json_ json_t *list = json_array();
	char when[CLOCK_RFC3339_MAX];
	const char *tag;
	json_t *value;

	json_object_foreach(json_object_get(json_array_get(all, 0), "tags"), tag, value)
	{
		uint64_t made = (uint64_t)json_integer_value(json_object_get(value, "when"));

		if (!list ||
		    json_push(list,
			      JSON_OBJECT(
				      { "tag", json_string(tag) },
				      { "buildID", json_incref(json_object_get(value, "build")) },
				      { "createdAt", json_string(clock_format(made, when)) })) < 0)
			return NULL;
	}
	return TAKE_PTR(list);
}

static void list_tags(struct request *r)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	_cleanup_json_ json_t *all = NULL;
	struct err e = ERR_INIT;
	int rc = open_store(&s, &e);

	if (rc == 0)
		rc = template_list(&s, r->args[0], &all, &e);
	if (rc < 0)
		request_fail_err(r, &e);
	else
		request_answer(r, 200, tag_list(all));
}

static json_t *template_json(const json_t *one)
{
	char when[CLOCK_RFC3339_MAX];
	json_t *name = json_object_get(one, "name"), *names = json_array();
	uint64_t made = (uint64_t)json_integer_value(json_object_get(one, "when"));

	if (!names || json_push(names, json_incref(name)) < 0)
		return json_decref(names), NULL;
	return JSON_OBJECT({ "templateID", json_incref(json_object_get(one, "id")) },
			   { "names", json_incref(names) }, { "aliases", names },
			   { "public", json_false() },
			   { "createdAt", json_string(clock_format(made, when)) });
}

static void list_templates(struct request *r)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	_cleanup_json_ json_t *all = NULL, *list = json_array();
	struct err e = ERR_INIT;
	const json_t *one;
	size_t i;
	int rc = open_store(&s, &e);

	if (rc == 0)
		rc = template_list(&s, NULL, &all, &e);
	if (rc < 0) {
		request_fail_err(r, &e);
		return;
	}
	json_array_foreach(all, i, one)
	{
		if (list && json_push(list, template_json(one)) < 0)
			list = (json_decref(list), NULL);
	}
	request_answer(r, 200, TAKE_PTR(list));
}

static void remove_template(struct request *r)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	struct err e = ERR_INIT;
	int rc;

	if (e2b_remove_snapshot(r, r->args[0]))
		return;
	rc = open_store(&s, &e);
	if (rc == 0)
		rc = may_change(r, &s, r->args[0], &e);
	if (rc == 0)
		rc = template_remove(&s, r->args[0], &e);
	if (rc == -ENOENT || rc == -EINVAL)
		request_fail(r, 404, "there is no template '%s'", r->args[0]);
	else if (rc < 0)
		request_fail_err(r, &e);
	else
		request_empty(r, 204);
}

enum {
	KEYS = ROLE_USER | ROLE_ADMIN,
	ANYBODY = ROLE_NOBODY | ROLE_USER | ROLE_ADMIN, /* the ticket decides */
};

const struct route template_routes[] = {
	{ "POST", "/v3/templates", KEYS, new_build },
	{ "GET", "/templates", KEYS, list_templates },
	{ "POST", "/templates/tags", KEYS, add_tags },
	{ "DELETE", "/templates/tags", KEYS, remove_tags },
	{ "GET", "/templates/aliases/{}", KEYS, alias },
	{ "GET", "/templates/{}/tags", KEYS, list_tags },
	{ "GET", "/templates/{}/files/{}", KEYS, ask_file },
	{ "PUT", "/templates/{}/files/{}", ANYBODY, put_file },
	{ "POST", "/v2/templates/{}/builds/{}", KEYS, build },
	{ "GET", "/templates/{}/builds/{}/status", KEYS, status },
	{ "DELETE", "/templates/{}", KEYS, remove_template },
	{ NULL },
};
