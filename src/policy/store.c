/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "policy/yaml-tree.h"

enum {
	STORE_NAME_MAX = 63,
	STORE_NAMES_MAX = 4096
};

static const char suffix[] = ".yaml";

void policy_store_done(struct policy_store *s)
{
	arena_done(&s->arena);
}

bool store_name_valid(const char *name, size_t n)
{
	if (n == 0 || n > STORE_NAME_MAX || name[0] == '-')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!ascii_is_lower(name[i]) && !ascii_is_digit(name[i]) && name[i] != '-')
			return false;
	return true;
}

static int keep_source(struct policy_store *s, const char *label, const char *text, size_t len,
		       bool builtin, const struct source **ret)
{
	struct source *src = arena_alloc(&s->arena, sizeof(*src));

	if (!src)
		return -ENOMEM;
	src->label = arena_strdup(&s->arena, label);
	src->text = arena_strndup(&s->arena, text, len);
	src->len = len;
	src->builtin = builtin;
	src->on_disk = !builtin;
	if (!src->label || !src->text)
		return -ENOMEM;
	*ret = src;
	return 0;
}

int store_read(struct policy_store *s, const char *path, const struct source **ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(YAML_TEXT_MAX);
	int r = fd_read_file(AT_FDCWD, path, &b, e);

	if (r < 0)
		return r;
	r = keep_source(s, path, buf_text(&b), b.len, false, ret);
	return r < 0 ? err_oom(e) : 0;
}

static const struct builtin_file *find_builtin(const struct policy_store *s, const char *path)
{
	size_t low = 0, high = s->n_builtins;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int d = strcmp(path, s->builtins[mid].path);

		if (d == 0)
			return &s->builtins[mid];
		if (d < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return NULL;
}

/* A second file of the same name is an error that names both, unless its contents are the same. */
static int note_find(const struct source *found, const struct source **first, struct err *e)
{
	if (!*first) {
		*first = found;
		return 0;
	}
	if ((*first)->len == found->len && memcmp((*first)->text, found->text, found->len) == 0)
		return 0;
	return err_set(e, -EEXIST, "is in two places, %s%s and %s: rename one", (*first)->label,
		       (*first)->builtin ? " (built in)" : "", found->label);
}

/* Adds DIR/RELATIVE if it exists. Directories of the list may be missing. */
static int look_in(struct policy_store *s, const char *dir, const char *relative,
		   const struct source **first, struct err *e)
{
	const struct source *found = NULL;
	char path[PATH_MAX];
	int r;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, relative) >= sizeof(path))
		return err_set(e, -ENAMETOOLONG, "'%s' is too long", dir);
	r = store_read(s, path, &found, e);
	if (r == -ENOENT || r == -ENOTDIR)
		return 0;
	return r < 0 ? r : note_find(found, first, e);
}

static int look_beside(struct policy_store *s, const char *beside, const char *name,
		       const struct source **first, struct err *e)
{
	char dir[PATH_MAX], relative[STORE_NAME_MAX + sizeof(suffix)];
	const struct source *found = NULL;

	(void)snprintf(relative, sizeof(relative), "%s%s", name, suffix);
	if (!strchr(beside, '/')) {
		/* Keep the label a bare name, so that find_parent() detects a file extending
		 * itself. */
		int r = store_read(s, relative, &found, e);

		return r == -ENOENT ? 0 : r < 0 ? r : note_find(found, first, e);
	}
	if (path_parent(beside, dir, sizeof(dir)) < 0)
		return err_set(e, -ENAMETOOLONG, "'%s' is too long", beside);
	return look_in(s, dir, relative, first, e);
}

int store_find(struct policy_store *s, const char *folder, const char *name, const char *beside,
	       const struct source **ret, struct err *e)
{
	const struct source *first = NULL;
	const struct builtin_file *file;
	char relative[128];
	int r = 0;

	if (!store_name_valid(name, strlen(name)))
		return err_set(e, -ENOENT, "is not a name: names have a-z, 0-9 and hyphens");
	(void)snprintf(relative, sizeof(relative), "%s/%s%s", folder, name, suffix);
	file = find_builtin(s, relative);
	if (file && keep_source(s, file->path, file->text, file->len, true, &first) < 0)
		return err_oom(e);
	for (size_t i = 0; r == 0 && s->dirs && s->dirs[i]; i++)
		r = look_in(s, s->dirs[i], relative, &first, e);
	if (r == 0 && beside)
		r = look_beside(s, beside, name, &first, e);
	if (r < 0)
		return r;
	if (!first)
		return err_set(e, -ENOENT, "is not known");
	*ret = first;
	return 0;
}

struct name_set {
	struct arena *arena;
	const char **v;
	size_t n;
};

/* Adds NAME of "NAME.yaml" if it is new; ignores other files. */
static int add_name(struct name_set *set, const char *file)
{
	size_t n = strlen(file);

	if (!str_has_suffix(file, suffix) || !store_name_valid(file, n - STRLEN(".yaml")))
		return 0;
	n -= STRLEN(".yaml");
	for (size_t i = 0; i < set->n; i++)
		if (strlen(set->v[i]) == n && memcmp(set->v[i], file, n) == 0)
			return 0;
	if (set->n == STORE_NAMES_MAX)
		return -E2BIG;
	set->v[set->n] = arena_strndup(set->arena, file, n);
	return set->v[set->n++] ? 0 : -ENOMEM;
}

static int list_dir(struct name_set *set, const char *dir, const char *folder)
{
	char path[PATH_MAX];
	struct dirent *entry;
	int r = 0;
	DIR *d;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, folder) >= sizeof(path))
		return -ENAMETOOLONG;
	d = opendir(path);
	if (!d)
		return errno == ENOENT ? 0 : -errno;
	for (errno = 0; r == 0 && (entry = readdir(d)); errno = 0)
		r = add_name(set, entry->d_name);
	if (r == 0)
		r = -errno;
	(void)closedir(d);
	return r;
}

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int make_list(struct policy_store *s, const char *folder, const char *const **ret,
		     struct err *e)
{
	struct name_set set = { .arena = &s->arena };
	size_t len = strlen(folder);
	int r = 0;

	set.v = arena_calloc(&s->arena, STORE_NAMES_MAX + 1, sizeof(set.v[0]));
	if (!set.v)
		return err_oom(e);
	for (size_t i = 0; r == 0 && i < s->n_builtins; i++) {
		const char *path = s->builtins[i].path;

		if (strncmp(path, folder, len) == 0 && path[len] == '/')
			r = add_name(&set, path + len + 1);
	}
	for (size_t i = 0; r == 0 && s->dirs && s->dirs[i]; i++)
		r = list_dir(&set, s->dirs[i], folder);
	if (r < 0)
		return err_set(e, r, "cannot list the %s: %s", folder, strerror(-r));
	qsort(set.v, set.n, sizeof(set.v[0]), compare_text);
	*ret = set.v;
	return 0;
}

int store_list(struct policy_store *s, const char *folder, const char *const **ret, struct err *e)
{
	size_t i = 0;
	int r;

	while (i < STORE_FOLDERS_MAX && s->lists[i].folder && !str_eq(s->lists[i].folder, folder))
		i++;
	assert(i < STORE_FOLDERS_MAX);
	if (!s->lists[i].folder) {
		r = make_list(s, folder, &s->lists[i].names, e);
		if (r < 0)
			return r;
		s->lists[i].folder = folder;
	}
	*ret = s->lists[i].names;
	return 0;
}
