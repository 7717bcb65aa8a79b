/* SPDX-License-Identifier: Apache-2.0 */
/* Records of templates: one file per name, with the id and the builds of its tags. */
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "template/template-inner.h"

void template_record_file(const char *name, char out[static TEMPLATE_FILE_NAME])
{
	(void)snprintf(out, TEMPLATE_FILE_NAME, "%.63s.json", name);
}

static int check_tags(const json_t *tags, struct err *e)
{
	const char *tag;
	json_t *one;

	if (!json_is_object(tags) || json_object_size(tags) > TEMPLATE_TAGS_MAX)
		return err_set(e, -EBADMSG, "'tags' is not an object with at most %d tags",
			       TEMPLATE_TAGS_MAX);
	json_object_foreach((json_t *)tags, tag, one)
	{
		const char *build = json_string_value(json_object_get(one, "build"));

		if (!build || !template_build_valid(build))
			return err_set(e, -EBADMSG, "the tag '%.63s' has no valid build id", tag);
	}
	return 0;
}

static int check_record(const json_t *j, const char *name, struct err *e)
{
	/* Versions before per-key stores wrote an owner, which is ignored. */
	static const char *const keys[] = { "id", "name", "owner", "tags", "when", NULL };
	const char *id = json_string_value(json_object_get(j, "id"));
	const char *own = json_string_value(json_object_get(j, "name"));

	if (json_only_keys(j, keys, e) < 0)
		return e->num;
	if (!id || !own || !template_id_valid(id) || !str_eq(own, name))
		return err_set(e, -EBADMSG,
			       "the record has an invalid id, or another name than its file");
	return check_tags(json_object_get(j, "tags"), e);
}

int template_record_read(const struct template_store *s, const char *name, json_t **ret,
			 struct err *e)
{
	_cleanup_json_ json_t *j = NULL;
	char file[TEMPLATE_FILE_NAME];
	int r;

	if (!image_name_valid(name))
		return err_set(e, -ENOENT, "no template '%s'", name);
	template_record_file(name, file);
	r = template_read(s->names, file, &j, e);
	if (r == -ENOENT)
		return err_set(e, r, "no template '%s'", name);
	if (r == 0 && check_record(j, name, e) < 0)
		r = err_wrap(e, "the template '%s'", name);
	if (r == 0)
		*ret = TAKE_PTR(j);
	return r;
}

int template_record_write(const struct template_store *s, const json_t *record, struct err *e)
{
	char file[TEMPLATE_FILE_NAME];

	template_record_file(json_string_value(json_object_get(record, "name")), file);
	return template_write(s->names, file, record, e);
}

struct search {
	const char *id;
	json_t *found;
};

static int has_id(const void *store, const char *name, void *arg, struct err *e)
{
	const struct template_store *s = store;
	_cleanup_json_ json_t *j = NULL;
	struct search *search = arg;
	int r = template_record_read(s, name, &j, e);

	if (r == -ENOMEM)
		return r;
	/* An unreadable record does not hide the others. */
	if (r < 0 || !str_eq(json_string_value(json_object_get(j, "id")), search->id))
		return 0;
	search->found = TAKE_PTR(j);
	return 1;
}

int template_record_of_id(const struct template_store *s, const char *id, json_t **ret,
			  struct err *e)
{
	struct search search = { .id = id };
	int r = image_home_names(s->names, s->path, has_id, s, &search, e);

	if (r == 0)
		return err_set(e, -ENOENT, "no template '%s'", id);
	if (r > 0)
		*ret = search.found;
	return MIN(r, 0);
}

int template_record(const struct template_store *s, const char *name, json_t **ret, struct err *e)
{
	int r = template_record_read(s, name, ret, e);

	if (r != -ENOENT || !template_id_valid(name))
		return r;
	*e = (struct err)ERR_INIT;
	return template_record_of_id(s, name, ret, e);
}

int template_record_make(const struct template_store *s, const char *name, json_t **ret,
			 struct err *e)
{
	_cleanup_json_ json_t *j = NULL;
	char id[TEMPLATE_ID + 1];
	size_t n = 0;
	int r = template_record(s, name, ret, e);

	if (r != -ENOENT)
		return r;
	r = template_count(s->names, &n, e);
	if (r == 0 && n >= TEMPLATE_NAMES_MAX)
		r = err_set(e, -EUSERS, "there are %zu templates: remove some", n);
	if (r == 0 && template_random(id, TEMPLATE_ID) < 0)
		r = err_set(e, -EIO, "no random numbers");
	if (r < 0)
		return r;
	j = JSON_OBJECT({ "id", json_string(id) }, { "name", json_string(name) },
			{ "tags", json_object() }, { "when", json_number(clock_wall()) });
	r = j ? template_record_write(s, j, e) : err_oom(e);
	if (r == 0)
		*ret = TAKE_PTR(j);
	return r;
}

int template_put_tag(json_t *record, const char *tag, const char *build, struct err *e)
{
	json_t *tags = json_object_get(record, "tags");

	if (json_object_size(tags) >= TEMPLATE_TAGS_MAX && !json_object_get(tags, tag))
		return err_set(e, -EUSERS, "a template has at most %d tags", TEMPLATE_TAGS_MAX);
	return json_put(tags, tag,
			JSON_OBJECT({ "build", json_string(build) },
				    { "when", json_number(clock_wall()) })) < 0
		       ? err_oom(e)
		       : 0;
}

/* Sets the tags, unless the template has been removed meanwhile. */
int template_set_tags(const struct template_store *s, const struct template_build *b, struct err *e)
{
	_cleanup_json_ json_t *record = NULL;
	int r = template_record(s, b->template, &record, e);

	if (r == -ENOENT)
		return 0;
	for (size_t i = 0; r == 0 && i < b->n_tags; i++)
		r = template_put_tag(record, b->tags[i], b->build, e);
	return r < 0 ? r : template_record_write(s, record, e);
}
