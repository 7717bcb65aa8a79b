/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates of the E2B API. Their data is in files (template.h), in one store per key, so templates
 * of another key are not found. Builds are in template-builds.c, archives for COPY in
 * template-files.c.
 */
#include <string.h>

#include "api/apart.h"
#include "base/clock.h"
#include "e2b/e2b.h"

int e2b_template_store_of(bool all, const char *owner, const char *ref, struct template_store *s,
			  struct err *e)
{
	struct err own = ERR_INIT;
	int rc = all && ref ? template_store_with(s, ref, &own) : -ENOENT;

	if (rc == -ENOENT || rc == -EINVAL)
		return template_store_open(s, owner, true, e);
	return rc < 0 ? (*e = own).num : 0;
}

int e2b_template_store(const struct request *r, const char *ref, struct template_store *s,
		       struct err *e)
{
	return e2b_template_store_of(r->role == ROLE_ADMIN, r->owner, ref, s, e);
}

/* Reads an optional unsigned number. */
static int take_u64(const json_t *body, const char *key, uint64_t max, uint64_t *ret, struct err *e)
{
	const json_t *value = json_object_get(body, key);

	*ret = 0;
	return !value || json_is_null(value) ? 0 : json_get_u64(body, key, max, ret, e);
}

/* Reads an optional list of texts, NULL-terminated. They belong to the body. */
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
	struct template_request q = { .tags = tags };
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
		r = e2b_template_store(rq, q.name, &s, e);
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

void e2b_template_new(struct request *r)
{
	request_json(r, false, have_new);
}

/* ---- names and tags ---- */

/* Resolves a name for the client, as template_find_image() does. */
static int find_alias(const struct request *r, char ret[static IMAGE_NAME_MAX + 1], bool *shared,
		      struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	char owner[TEMPLATE_NAME_MAX + 1];
	const char *name = r->args[0];
	int rc;

	if (!image_name_valid(name) || template_is_image(name))
		return -ENOENT;
	rc = e2b_template_store(r, name, &s, e);
	if (rc == 0)
		rc = template_find(&s, name, ret, e);
	if (rc == -ENOENT || rc == -EINVAL) {
		*e = (struct err)ERR_INIT;
		rc = image_find(name, e);
		(void)snprintf(ret, IMAGE_NAME_MAX + 1, "%s", name);
	}
	if (rc == -ENOENT) {
		*e = (struct err)ERR_INIT;
		rc = strchr(name, ':') ? rc : template_shared(name, owner, ret, e);
		*shared = rc == 0;
	}
	return rc;
}

void e2b_template_alias(struct request *r)
{
	char id[IMAGE_NAME_MAX + 1] = "";
	struct err e = ERR_INIT;
	bool shared = false;
	int rc = find_alias(r, id, &shared, &e);

	if (rc == -ENOENT)
		request_fail(r, 404, "there is no template '%s'", r->args[0]);
	else if (rc < 0)
		request_fail_err(r, &e);
	else
		request_answer(r, 200,
			       JSON_OBJECT({ "templateID", json_string(shared ? r->args[0] : id) },
					   { "public", json_boolean(shared) }));
}

static int set_tags(const struct request *rq, struct template_build *ret, struct err *e)
{
	const json_t *body = rq->body;
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	const char *tags[TEMPLATE_ASKED_MAX + 1];
	const char *target = json_string_value(json_object_get(body, "target"));
	int r = target ? e2b_template_store(rq, target, &s, e)
		       : err_set(e, -EINVAL, "target is missing");

	if (r == 0)
		r = take_texts(body, "tags", tags, TEMPLATE_ASKED_MAX, e);
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

void e2b_template_tag(struct request *r)
{
	request_json(r, false, have_tags);
}

static int take_tags(const struct request *rq, struct err *e)
{
	const json_t *body = rq->body;
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	const char *tags[TEMPLATE_ASKED_MAX + 1];
	const char *name = json_string_value(json_object_get(body, "name"));
	int r = name ? e2b_template_store(rq, name, &s, e) : err_set(e, -EINVAL, "name is missing");

	if (r == 0)
		r = take_texts(body, "tags", tags, TEMPLATE_ASKED_MAX, e);
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

void e2b_template_untag(struct request *r)
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

void e2b_template_tags(struct request *r)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	_cleanup_json_ json_t *all = NULL;
	struct err e = ERR_INIT;
	int rc = e2b_template_store(r, r->args[0], &s, &e);

	if (rc == 0)
		rc = template_list(&s, r->args[0], &all, &e);
	if (rc < 0)
		request_fail_err(r, &e);
	else
		request_answer(r, 200, tag_list(all));
}

static json_t *template_json(const json_t *one, bool shared)
{
	char when[CLOCK_RFC3339_MAX];
	json_t *name = json_object_get(one, "name"), *names = json_array();
	uint64_t made = (uint64_t)json_integer_value(json_object_get(one, "when"));

	if (!names || json_push(names, json_incref(name)) < 0)
		return json_decref(names), NULL;
	return JSON_OBJECT({ "templateID", json_incref(json_object_get(one, "id")) },
			   { "names", json_incref(names) }, { "aliases", names },
			   { "public", json_boolean(shared) },
			   { "createdAt", json_string(clock_format(made, when)) });
}

struct listing {
	json_t *list;
	bool shared;
	const char *only; /* list only this one; NULL: all */
};

static int list_store(const struct template_store *s, void *arg, struct err *e)
{
	const struct listing *l = arg;
	_cleanup_json_ json_t *all = NULL;
	const json_t *one;
	size_t i;
	int rc = template_list(s, l->only, &all, e);

	json_array_foreach(all, i, one)
	{
		if (json_push(l->list, template_json(one, l->shared)) < 0)
			return err_oom(e);
	}
	return rc;
}

/* Adds shared templates of other keys, unless all are listed anyway. */
static int list_shared(const struct request *r, json_t *list, struct err *e)
{
	_cleanup_json_ json_t *names = NULL;
	const json_t *one;
	size_t i;
	int rc = template_shared_list(&names, e);

	json_array_foreach(names, i, one)
	{
		_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
		char owner[TEMPLATE_NAME_MAX + 1], id[TEMPLATE_ID + 1];
		struct listing l = { .list = list, .shared = true, .only = id };
		struct err own = ERR_INIT;

		if (template_shared(json_string_value(one), owner, id, &own) < 0 ||
		    str_eq(owner, r->owner) || template_store_open(&s, owner, false, &own) < 0)
			continue; /* an unreadable template does not hide the others */
		rc = list_store(&s, &l, e);
		if (rc < 0)
			return rc;
	}
	return rc;
}

static int list_all(const struct request *r, json_t *list, struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	struct listing l = { .list = list };
	int rc;

	if (r->role == ROLE_ADMIN)
		return template_each_store(list_store, &l, e);
	rc = template_store_open(&s, r->owner, true, e);
	if (rc == 0)
		rc = list_store(&s, &l, e);
	return rc < 0 ? rc : list_shared(r, list, e);
}

void e2b_templates(struct request *r)
{
	_cleanup_json_ json_t *list = json_array();
	struct err e = ERR_INIT;

	if ((list ? list_all(r, list, &e) : err_oom(&e)) < 0)
		request_fail_err(r, &e);
	else
		request_answer(r, 200, TAKE_PTR(list));
}

static void remove_apart(struct request *r)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	struct err e = ERR_INIT;
	int rc = e2b_template_store(r, r->args[0], &s, &e);

	if (rc == 0)
		rc = template_remove(&s, r->args[0], &e);
	if (rc == -ENOENT || rc == -EINVAL)
		request_fail(r, 404, "there is no template '%s'", r->args[0]);
	else if (rc < 0)
		request_fail_err(r, &e);
	else
		request_empty(r, 204);
}

void e2b_template_remove(struct request *r)
{
	if (!e2b_remove_snapshot(r, r->args[0]))
		request_apart(r, remove_apart);
}
