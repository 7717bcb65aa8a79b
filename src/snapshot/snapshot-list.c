/* SPDX-License-Identifier: Apache-2.0 */
/* Lists snapshots, and finds those that can be removed. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "image/image-store.h"
#include "snapshot/snapshot.h"

enum {
	LIST_MAX = 4096,
	FORK_S = 10,
};

/* ---- listing ---- */

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(char ***names)
{
	for (char **p = *names; p && *p; p++)
		free(*p);
	free(*names);
}

/* Names in the directory without a leading dot, sorted, NULL-terminated. */
static int list_names(int home, char ***ret, struct err *e)
{
	_cleanup_(free_names) char **names = calloc(LIST_MAX + 1, sizeof(*names));
	DIR *d = names ? fd_list(home) : NULL;
	struct dirent *entry;
	size_t n = 0;

	if (!names)
		return err_oom(e);
	if (!d)
		return err_errno(e, "cannot list snapshots");
	while (n < LIST_MAX && (entry = readdir(d)))
		if (entry->d_name[0] != '.' && !(names[n++] = strdup(entry->d_name))) {
			(void)closedir(d);
			return err_oom(e);
		}
	(void)closedir(d);
	qsort(names, n, sizeof(*names), compare_names);
	*ret = TAKE_PTR(names);
	return 0;
}

static uint64_t bytes_on_disk(int dir, const json_t *files)
{
	uint64_t sum = 0;
	const char *name;
	json_t *row;
	struct stat st;

	json_object_foreach((json_t *)files, name, row)
	{
		if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			sum += (uint64_t)st.st_blocks * 512;
	}
	return sum;
}

static json_t *describe(int home, const char *key)
{
	_cleanup_close_ int dir = path_open_nofollow(home, key, O_RDONLY | O_DIRECTORY, 0);
	_cleanup_json_ json_t *meta = NULL;
	struct err e = ERR_INIT;
	int r = dir < 0 ? err_set(&e, dir, "cannot open it: %s", strerror(-dir))
			: snapshot_read_meta(dir, key, &meta, &e);

	if (r < 0)
		return JSON_OBJECT({ "id", json_string(key) }, { "error", json_string(e.msg) });
	return JSON_OBJECT(
		{ "id", json_string(key) }, { "kind", json_incref(json_object_get(meta, "kind")) },
		{ "created", json_incref(json_object_get(meta, "created")) },
		{ "bytes", json_number(bytes_on_disk(dir, json_object_get(meta, "files"))) },
		{ "info", json_incref(json_object_get(meta, "info")) });
}

int snapshot_list(json_t **ret, struct err *e)
{
	_cleanup_(free_names) char **names = NULL;
	_cleanup_json_ json_t *list = json_array();
	_cleanup_close_ int home = -EBADF;
	struct err none = ERR_INIT;
	char path[IMAGE_HOME_MAX];
	int r = list ? snapshot_home_open(false, path, &home, &none) : err_oom(&none);

	if (r == 0)
		r = list_names(home, &names, &none);
	for (char **p = names; r == 0 && *p; p++)
		if (snapshot_key_valid(*p) && json_push(list, describe(home, *p)) < 0)
			r = err_oom(&none);
	if (r < 0 && r != -ENOENT)
		return (*e = none).num;
	*ret = TAKE_PTR(list);
	return 0;
}

/* ---- unused snapshots ---- */

static bool is_the_same(const json_t *need)
{
	const char *path = json_string_value(json_object_get(need, "path"));
	struct stat st;

	/* A file that cannot be examined may still exist. */
	if (!path || stat(path, &st) < 0)
		return path && errno != ENOENT && errno != ENOTDIR;
	return (uint64_t)json_integer_value(json_object_get(need, "size")) ==
		       (uint64_t)st.st_size &&
	       (uint64_t)json_integer_value(json_object_get(need, "mtime")) == clock_of(st.st_mtim);
}

/* Made for a fork, whose process holds it while the copies start. Waits FORK_S after its creation,
 * since the process locks it a moment later.
 */
static bool is_of_dead_fork(const json_t *meta)
{
	const char *created = json_string_value(json_object_get(meta, "created"));
	uint64_t made = 0;

	return json_is_true(json_object_get(json_object_get(meta, "info"), "fork")) && created &&
	       clock_parse(created, &made) == 0 && made + FORK_S * NSEC_PER_SEC < clock_wall();
}

/* A template whose inputs have changed, or a leftover of a fork. */
static bool is_useless(int home, const char *name)
{
	_cleanup_close_ int dir = path_open_nofollow(home, name, O_RDONLY | O_DIRECTORY, 0);
	_cleanup_json_ json_t *meta = NULL;
	struct err e = ERR_INIT;
	const json_t *need;
	size_t i;

	if (dir < 0 || snapshot_read_meta(dir, name, &meta, &e) < 0)
		return false;
	if (!str_eq(json_string_value(json_object_get(meta, "kind")), "template"))
		return is_of_dead_fork(meta);
	json_array_foreach(json_object_get(json_object_get(meta, "info"), "needs"), i, need)
	{
		if (!is_the_same(need))
			return true;
	}
	return false;
}

int snapshot_clean(void (*took)(const char *name, void *arg), void *arg, struct err *e)
{
	_cleanup_(free_names) char **names = NULL;
	_cleanup_close_ int home = -EBADF;
	struct err none = ERR_INIT;
	char path[IMAGE_HOME_MAX];
	int r = snapshot_home_open(false, path, &home, &none), one;

	if (r < 0)
		return r == -ENOENT ? 0 : (*e = none).num;
	r = list_names(home, &names, e);
	for (char **p = names; r == 0 && p && *p; p++) {
		if (!str_has_prefix(*p, SNAPSHOT_TMP) &&
		    !(snapshot_key_valid(*p) && is_useless(home, *p)))
			continue;
		one = snapshot_remove_at(home, *p);
		if (one == 0)
			took(*p, arg);
		else if (one != -EBUSY && one != -ENOENT)
			r = err_set(e, one, "cannot remove '%s/snapshots/%.80s': %s", path, *p,
				    strerror(-one));
	}
	return r;
}
