/* SPDX-License-Identifier: Apache-2.0 */
/* Templates by name and id, and their tags, which point to builds. */
#include <fcntl.h>
#include <string.h>

#include "clock.h"
#include "fd.h"
#include "str.h"
#include "template-inner.h"

static void record_file(const char *name, char out[static TEMPLATE_FILE_NAME])
{
	(void)snprintf(out, TEMPLATE_FILE_NAME, "%.63s.json", name);
}

/* ---- records ---- */

static int check_tags(const json_t *tags, struct err *e)
{
	const char *tag;
	json_t *one;

	if (!json_is_object(tags) || json_object_size(tags) > TEMPLATE_TAGS_MAX)
		return err_set(e, -EBADMSG, "'tags' is not an object of tags");
	json_object_foreach((json_t *)tags, tag, one)
	{
		const char *build = json_string_value(json_object_get(one, "build"));

		if (!build || !template_build_valid(build))
			return err_set(e, -EBADMSG, "the tag '%.63s' has no valid build", tag);
	}
	return 0;
}

static int check_record(const json_t *j, const char *name, struct err *e)
{
	/* Versions before per-key stores wrote "owner", which is ignored. */
	static const char *const keys[] = { "id", "name", "owner", "tags", "when", NULL };
	const char *id = json_string_value(json_object_get(j, "id"));
	const char *own = json_string_value(json_object_get(j, "name"));

	if (json_only_keys(j, keys, e) < 0)
		return e->num;
	if (!id || !own || !template_id_valid(id) || !str_eq(own, name))
		return err_set(e, -EBADMSG, "contents do not match the file name");
	return check_tags(json_object_get(j, "tags"), e);
}

static int read_record(const struct template_store *s, const char *name, json_t **ret,
		       struct err *e)
{
	_cleanup_json_ json_t *j = NULL;
	char file[TEMPLATE_FILE_NAME];
	int r;

	record_file(name, file);
	r = template_read(s->names, file, &j, e);
	if (r == -ENOENT)
		return err_set(e, r, "no template '%s'", name);
	if (r == 0 && check_record(j, name, e) < 0)
		r = err_wrap(e, "the template '%s'", name);
	if (r == 0)
		*ret = TAKE_PTR(j);
	return r;
}

static int write_record(const struct template_store *s, const json_t *record, struct err *e)
{
	char file[TEMPLATE_FILE_NAME];

	record_file(json_string_value(json_object_get(record, "name")), file);
	return template_write(s->names, file, record, e);
}

/* Calls `fn` with the name of every template until it returns nonzero. */
static int each_name(const struct template_store *s,
		     int (*fn)(const struct template_store *s, const char *name, void *arg,
			       struct err *e),
		     void *arg, struct err *e)
{
	DIR *d = fd_list(s->names);
	struct dirent *entry;
	int r = 0;

	if (!d)
		return err_errno(e, "cannot list '%s/names'", s->path);
	while (r == 0 && (entry = readdir(d))) {
		char *dot = strchr(entry->d_name, '.');

		if (!dot || !str_eq(dot, ".json"))
			continue;
		*dot = '\0';
		if (image_name_valid(entry->d_name))
			r = fn(s, entry->d_name, arg, e);
	}
	(void)closedir(d);
	return r;
}

struct search {
	const char *id;
	json_t *found;
};

static int has_id(const struct template_store *s, const char *name, void *arg, struct err *e)
{
	_cleanup_json_ json_t *j = NULL;
	struct search *search = arg;
	int r = read_record(s, name, &j, e);

	if (r == -ENOMEM)
		return r;
	/* Skip unreadable records: they must not hide the others. */
	if (r < 0 || !str_eq(json_string_value(json_object_get(j, "id")), search->id))
		return 0;
	search->found = TAKE_PTR(j);
	return 1;
}

int template_record_of_id(const struct template_store *s, const char *id, json_t **ret,
			  struct err *e)
{
	struct search search = { .id = id };
	int r = each_name(s, has_id, &search, e);

	if (r == 0)
		return err_set(e, -ENOENT, "no template '%s'", id);
	if (r > 0)
		*ret = search.found;
	return MIN(r, 0);
}

int template_record(const struct template_store *s, const char *name, json_t **ret, struct err *e)
{
	int r = read_record(s, name, ret, e);

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
	r = j ? write_record(s, j, e) : err_oom(e);
	if (r == 0)
		*ret = TAKE_PTR(j);
	return r;
}

/* ---- tags ---- */

static int put_tag(json_t *record, const char *tag, const char *build, struct err *e)
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

/* Does nothing if the template was removed meanwhile, and so does not recreate it. */
int template_set_tags(const struct template_store *s, const struct template_build *b, struct err *e)
{
	_cleanup_json_ json_t *record = NULL;
	int r = template_record(s, b->template, &record, e);

	if (r == -ENOENT)
		return 0;
	for (size_t i = 0; r == 0 && i < b->n_tags; i++)
		r = put_tag(record, b->tags[i], b->build, e);
	return r < 0 ? r : write_record(s, record, e);
}

/* Finds the build that a reference means, and the record of its template. */
static int resolve(const struct template_store *s, const char *text, json_t **ret_record,
		   struct template_build *ret, struct err *e)
{
	_cleanup_json_ json_t *record = NULL;
	struct template_ref ref;
	const char *build;
	int r = template_ref_parse(text, &ref, e);

	if (r == 0)
		r = template_record(s, ref.name, &record, e);
	if (r < 0)
		return r;
	build = json_string_value(json_object_get(
		json_object_get(json_object_get(record, "tags"), ref.tag), "build"));
	if (!build)
		return err_set(e, -ENOENT, "no template '%s' that is ready", text);
	r = template_build_read(s, build, ret, e);
	if (r == 0 && ret->status != TEMPLATE_READY)
		r = err_set(e, -ENOENT, "no template '%s' that is ready", text);
	if (r == 0)
		*ret_record = TAKE_PTR(record);
	return r;
}

int template_resolve(const struct template_store *s, const char *ref, struct template_build *ret,
		     struct err *e)
{
	_cleanup_json_ json_t *record = NULL;
	struct template_build b = { 0 };
	int r = resolve(s, ref, &record, &b, e);

	if (r == 0)
		*ret = b;
	return r;
}

static int check_tag(const char *tag, struct err *e)
{
	char whole[IMAGE_NAME_MAX + 8];
	int n = snprintf(whole, sizeof(whole), "x:%s", tag);

	if (n < 0 || (size_t)n >= sizeof(whole) || !image_name_valid(whole))
		return err_set(e, -EINVAL, "'%.80s' is not a tag", tag);
	return 0;
}

int template_tag(const struct template_store *s, const char *ref, const char *const *tags,
		 struct template_build *ret, struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	_cleanup_json_ json_t *record = NULL;
	struct template_build b = { 0 };
	int r = template_lock(s, &lock, e);

	if (r == 0)
		r = resolve(s, ref, &record, &b, e);
	for (; r == 0 && *tags; tags++) {
		r = check_tag(*tags, e);
		if (r == 0)
			r = put_tag(record, *tags, b.build, e);
	}
	if (r == 0)
		r = write_record(s, record, e);
	if (r == 0)
		*ret = b;
	return r;
}

/* Finds the record of NAME or ID; a tag is an error. */
static int find(const struct template_store *s, const char *text, json_t **ret, struct err *e)
{
	struct template_ref ref;
	int r = template_ref_parse(text, &ref, e);

	if (r == 0 && strchr(text, ':'))
		r = err_set(e, -EINVAL, "'%s': expected a template without a tag", text);
	return r < 0 ? r : template_record(s, ref.name, ret, e);
}

int template_untag(const struct template_store *s, const char *ref, const char *const *tags,
		   struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	_cleanup_json_ json_t *record = NULL;
	int r = template_lock(s, &lock, e);

	if (r == 0)
		r = find(s, ref, &record, e);
	for (; r == 0 && *tags; tags++)
		if (json_object_del(json_object_get(record, "tags"), *tags) < 0)
			r = err_set(e, -ENOENT, "'%s' has no tag '%.63s'", ref, *tags);
	return r < 0 ? r : write_record(s, record, e);
}

int template_find(const struct template_store *s, const char *ref, char ret[static TEMPLATE_ID + 1],
		  struct err *e)
{
	_cleanup_json_ json_t *record = NULL;
	int r = find(s, ref, &record, e);

	if (r == 0)
		(void)snprintf(ret, TEMPLATE_ID + 1, "%s",
			       json_string_value(json_object_get(record, "id")));
	return r;
}

static int list_one(const struct template_store *s, const char *name, void *arg, struct err *e)
{
	struct err own = ERR_INIT;
	json_t *list = arg, *one = NULL;
	size_t at = 0;
	int r = read_record(s, name, &one, &own);

	if (r < 0)
		return r == -ENOMEM ? err_oom(e) : 0;
	while (at < json_array_size(list) &&
	       strcmp(json_string_value(json_object_get(json_array_get(list, at), "name")), name) <
		       0)
		at++;
	return json_array_insert_new(list, at, one) < 0 ? err_oom(e) : 0;
}

int template_list(const struct template_store *s, const char *ref, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *list = json_array();
	json_t *one = NULL;
	int r = list ? 0 : err_oom(e);

	if (r == 0 && !ref)
		r = each_name(s, list_one, list, e);
	else if (r == 0)
		r = find(s, ref, &one, e);
	if (r == 0 && one && json_push(list, one) < 0)
		r = err_oom(e);
	if (r == 0)
		*ret = TAKE_PTR(list);
	return r;
}

int template_remove(const struct template_store *s, const char *ref, struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	_cleanup_json_ json_t *record = NULL;
	char file[TEMPLATE_FILE_NAME];
	int r = template_lock(s, &lock, e);

	if (r == 0)
		r = find(s, ref, &record, e);
	if (r < 0)
		return r;
	record_file(json_string_value(json_object_get(record, "name")), file);
	if (unlinkat(s->names, file, 0) < 0)
		return err_errno(e, "cannot remove '%s/names/%s'", s->path, file);
	lock = fd_close(lock); /* template_unshare_gone() may take the same lock */
	return template_unshare_gone(json_string_value(json_object_get(record, "name")),
				     json_string_value(json_object_get(record, "id")), e);
}
