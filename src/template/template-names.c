/* SPDX-License-Identifier: Apache-2.0 */
/* Templates by name and id, and their tags, which point to builds. */
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "template/template-inner.h"

/* The build that the reference means, and the record it stands in. */
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
			r = template_put_tag(record, *tags, b.build, e);
	}
	if (r == 0)
		r = template_record_write(s, record, e);
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
	return r < 0 ? r : template_record_write(s, record, e);
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

static int list_one(const void *store, const char *name, void *arg, struct err *e)
{
	const struct template_store *s = store;
	struct err own = ERR_INIT;
	json_t *list = arg, *one = NULL;
	size_t at = 0;
	int r = template_record_read(s, name, &one, &own);

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
		r = image_home_names(s->names, s->path, list_one, s, list, e);
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
	template_record_file(json_string_value(json_object_get(record, "name")), file);
	if (unlinkat(s->names, file, 0) < 0)
		return err_errno(e, "cannot remove '%s/names/%s'", s->path, file);
	lock = fd_close(lock); /* template_unshare_gone() may take the same lock */
	return template_unshare_gone(json_string_value(json_object_get(record, "name")),
				     json_string_value(json_object_get(record, "id")), e);
}
