/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names across owners. An owner's names are visible to that owner only. The operator can share a
 * template with all owners; it is used by those who have no template or image of that name.
 */
#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "template/template-inner.h"

static int open_shared(bool make, int *ret_fd, struct err *e)
{
	char path[IMAGE_HOME_MAX];

	return image_home_open("templates/shared", make, path, ret_fd, e);
}

static int shared_file(const char *name, char out[static TEMPLATE_FILE_NAME], struct err *e)
{
	if (!image_name_valid(name) || strchr(name, ':'))
		return err_set(e, -EINVAL, "'%.80s' is not the name of a template", name);
	(void)snprintf(out, TEMPLATE_FILE_NAME, "%.63s.json", name);
	return 0;
}

static int not_shared(const char *name, struct err *e)
{
	return err_set(e, -ENOENT, "no template '%.80s' is shared", name);
}

static int check_shared(const json_t *j, const char **owner, const char **id, struct err *e)
{
	static const char *const keys[] = { "owner", "template", NULL };
	int r = json_only_keys(j, keys, e);

	*owner = json_string_value(json_object_get(j, "owner"));
	*id = json_string_value(json_object_get(j, "template"));
	if (r < 0)
		return r;
	return *owner && *id && strlen(*owner) <= TEMPLATE_NAME_MAX && template_id_valid(*id)
		       ? 0
		       : err_set(e, -EBADMSG, "no valid owner and template");
}

int template_shared(const char *name, char owner[static TEMPLATE_NAME_MAX + 1],
		    char id[static TEMPLATE_ID + 1], struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	_cleanup_close_ int dir = -EBADF;
	_cleanup_json_ json_t *j = NULL, *record = NULL;
	const char *whose = NULL, *which = NULL;
	char file[TEMPLATE_FILE_NAME];
	int r = shared_file(name, file, e);

	if (r == 0)
		r = open_shared(false, &dir, e);
	if (r == 0)
		r = template_read(dir, file, &j, e);
	if (r == 0 && check_shared(j, &whose, &which, e) < 0)
		r = err_wrap(e, "the shared template '%s'", name);
	if (r == 0)
		r = template_store_open(&s, whose, false, e);
	if (r == 0)
		r = template_record(&s, which, &record, e);
	if (r < 0)
		return r == -ENOENT ? not_shared(name, e) : r;
	(void)snprintf(owner, TEMPLATE_NAME_MAX + 1, "%s", whose);
	(void)snprintf(id, TEMPLATE_ID + 1, "%s", which);
	return 0;
}

/* The lock of the operator's store also protects shared/. */
static int lock_shared(int *ret_lock, int *ret_dir, struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	int r = template_store_open(&s, "", true, e);

	if (r == 0)
		r = template_lock(&s, ret_lock, e);
	return r < 0 ? r : open_shared(true, ret_dir, e);
}

/* Is the name free? It is if its template was removed. */
static int check_free(const char *name, const char *id, int dir, struct err *e)
{
	char owner[TEMPLATE_NAME_MAX + 1], other[TEMPLATE_ID + 1];
	struct err own = ERR_INIT;
	size_t n = 0;
	int r = template_shared(name, owner, other, &own);

	if (r < 0 && r != -ENOENT)
		return (*e = own).num;
	if (r == 0 && !str_eq(other, id))
		return err_set(e, -EEXIST,
			       "another template '%s' is shared, that of %s%s: unshare it first",
			       name, owner[0] ? "the key " : "the operator", owner);
	r = template_count(dir, &n, e);
	return r == 0 && n >= TEMPLATE_SHARED_MAX
		       ? err_set(e, -EUSERS, "%zu templates are shared: unshare some", n)
		       : r;
}

int template_share(const struct template_store *s, const char *ref, struct err *e)
{
	_cleanup_close_ int lock = -EBADF, dir = -EBADF;
	_cleanup_json_ json_t *j = NULL, *record = NULL;
	const char *name = NULL, *id = NULL;
	char file[TEMPLATE_FILE_NAME];
	int r = template_record(s, ref, &record, e);

	if (r == 0) {
		name = json_string_value(json_object_get(record, "name"));
		id = json_string_value(json_object_get(record, "id"));
		r = shared_file(name, file, e);
	}
	if (r == 0)
		r = lock_shared(&lock, &dir, e);
	if (r == 0)
		r = check_free(name, id, dir, e);
	if (r < 0)
		return r;
	j = JSON_OBJECT({ "owner", json_string(s->owner) }, { "template", json_string(id) });
	return j ? template_write(dir, file, j, e) : err_oom(e);
}

int template_unshare_gone(const char *name, const char *id, struct err *e)
{
	_cleanup_close_ int lock = -EBADF, dir = -EBADF;
	_cleanup_json_ json_t *j = NULL;
	const char *owner = NULL, *own = NULL;
	char file[TEMPLATE_FILE_NAME];
	struct err ignored = ERR_INIT;
	int r = shared_file(name, file, e);

	if (r == 0)
		r = lock_shared(&lock, &dir, e);
	if (r < 0)
		return r;
	/* Leave unreadable files to the operator. */
	if (template_read(dir, file, &j, &ignored) < 0 ||
	    check_shared(j, &owner, &own, &ignored) < 0 || !str_eq(own, id))
		return 0;
	return unlinkat(dir, file, 0) < 0 ? err_errno(e, "cannot unshare the template '%s'", name)
					  : 0;
}

int template_unshare(const char *name, struct err *e)
{
	_cleanup_close_ int lock = -EBADF, dir = -EBADF;
	char file[TEMPLATE_FILE_NAME];
	int r = shared_file(name, file, e);

	if (r == 0)
		r = lock_shared(&lock, &dir, e);
	if (r < 0)
		return r;
	if (unlinkat(dir, file, 0) == 0)
		return 0;
	return errno == ENOENT ? not_shared(name, e)
			       : err_errno(e, "cannot unshare the template '%s'", name);
}

static int insert_sorted(json_t *list, const char *text)
{
	size_t at = 0;

	while (at < json_array_size(list) &&
	       strcmp(json_string_value(json_array_get(list, at)), text) < 0)
		at++;
	return json_array_insert_new(list, at, json_string(text));
}

static int list_names(int dir, json_t *list, struct err *e)
{
	DIR *d = fd_list(dir);
	struct dirent *entry;
	int r = 0;

	if (!d)
		return err_errno(e, "cannot list the shared templates");
	while (r == 0 && (entry = readdir(d))) {
		char *dot = strchr(entry->d_name, '.');

		if (!dot || !str_eq(dot, ".json"))
			continue;
		*dot = '\0';
		if (insert_sorted(list, entry->d_name) < 0)
			r = err_oom(e);
	}
	(void)closedir(d);
	return r;
}

int template_shared_list(json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *list = json_array();
	_cleanup_close_ int dir = -EBADF;
	struct err own = ERR_INIT;
	int r = list ? open_shared(false, &dir, &own) : err_oom(&own);

	if (r == 0)
		r = list_names(dir, list, &own);
	if (r < 0 && r != -ENOENT)
		return (*e = own).num;
	*ret = TAKE_PTR(list);
	return 0;
}
