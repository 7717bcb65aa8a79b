/* SPDX-License-Identifier: Apache-2.0 */
/* Names of images, and the trees they refer to. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "image/image-store.h"

enum {
	META_MAX = 4 * 1024 * 1024,
	FILE_NAME_MAX = IMAGE_NAME_MAX + 33, /* tree, or name with suffix */
	PART_MAX = 63,
	DIGEST_TEXT_MAX = 80,
};

static void tree_name(const char *digest, char out[static FILE_NAME_MAX])
{
	(void)snprintf(out, FILE_NAME_MAX, "sha256-%.64s", digest);
}

/* The first character must be a letter or digit: no hidden files, no options. */
static bool part_valid(const char *s, size_t n, bool tag)
{
	if (n == 0 || n > PART_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		bool letter = ascii_is_lower(s[i]) || ascii_is_digit(s[i]) ||
			      (tag && ascii_is_upper(s[i]));
		bool sign = s[i] == '-' || s[i] == '_' || (tag && s[i] == '.');

		if (!letter && !(sign && i > 0))
			return false;
	}
	return true;
}

bool image_name_valid(const char *name)
{
	size_t n = strcspn(name, ":");

	return part_valid(name, n, false) &&
	       (name[n] == '\0' || part_valid(name + n + 1, strlen(name + n + 1), true));
}

static int name_file(const char *name, char out[static FILE_NAME_MAX], struct err *e)
{
	if (!image_name_valid(name))
		return err_set(e, -EINVAL, "'%.80s' is not a name: " IMAGE_NAME_RULE, name);
	(void)snprintf(out, FILE_NAME_MAX, "%s.json", name);
	return 0;
}

static int read_object(int dirfd, const char *path, json_t **ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(META_MAX);
	int r = fd_read_file(dirfd, path, &b, e);

	if (r == 0)
		r = json_read(buf_text(&b), b.len, ret, e);
	return r;
}

static int write_object(int dirfd, const char *path, const json_t *j, struct err *e)
{
	_cleanup_free_ char *text = json_write_canonical(j);

	return text ? fd_replace_file(dirfd, path, 0600, text, strlen(text), e) : err_oom(e);
}

/* Reads a name's file (ret_info may be NULL) and its digest in hex. */
static int read_name(const struct image_store *s, const char *name,
		     char digest[static IMAGE_DIGEST_HEX + 1], json_t **ret_info, struct err *e)
{
	_cleanup_json_ json_t *j = NULL;
	char file[FILE_NAME_MAX];
	const char *text = NULL;
	int r = name_file(name, file, e);

	if (r == 0)
		r = read_object(s->names, file, &j, e);
	if (r == -ENOENT)
		return err_set(e, r, "no image '%s': see 'hutch image ls', or build it", name);
	if (r == 0)
		r = json_get_string(j, "sha256", DIGEST_TEXT_MAX, &text, e);
	if (r == 0 && (!text || strlen(text) != IMAGE_DIGEST_HEX ||
		       strspn(text, "0123456789abcdef") != IMAGE_DIGEST_HEX))
		r = err_set(e, -EBADMSG, "not a digest");
	if (r < 0 || !text)
		return err_wrap(e, "the image '%s' cannot be read", name);
	memcpy(digest, text, IMAGE_DIGEST_HEX + 1);
	if (ret_info)
		*ret_info = TAKE_PTR(j);
	return 0;
}

int image_store_get(const struct image_store *s, const char *name, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *meta = NULL, *info = NULL;
	char digest[IMAGE_DIGEST_HEX + 1], dir[FILE_NAME_MAX], file[FILE_NAME_MAX + 16];
	int r = read_name(s, name, digest, &info, e);

	if (r < 0)
		return r;
	tree_name(digest, dir);
	(void)snprintf(file, sizeof(file), "%s/meta.json", dir);
	r = read_object(s->trees, file, &meta, e);
	if (r < 0)
		return err_set(e, -EIO, "the tree of image '%s' is missing: build it again", name);
	if (json_object_update(meta, info) < 0 ||
	    json_put(meta, "root", json_sprintf("%s/trees/%s/root", s->path, dir)) < 0)
		return err_oom(e);
	*ret = TAKE_PTR(meta);
	return 0;
}

static int list_one(const void *store, const char *name, void *arg, struct err *e)
{
	const struct image_store *s = store;
	json_t *list = arg, *one = NULL;
	size_t at = 0;

	/* An unreadable image does not hide the others. */
	if (image_store_get(s, name, &one, e) < 0)
		one = JSON_OBJECT({ "name", json_string(name) }, { "error", json_string(e->msg) });
	while (one && at < json_array_size(list) &&
	       strcmp(json_string_value(json_object_get(json_array_get(list, at), "name")), name) <
		       0)
		at++;
	if (!one || json_array_insert_new(list, at, one) < 0)
		return err_oom(e);
	return 0;
}

int image_find(const char *name, struct err *e)
{
	_cleanup_image_store_ struct image_store s = IMAGE_STORE_INIT;
	_cleanup_json_ json_t *image = NULL;
	int r = image_store_open(&s, false, e);

	return r < 0 ? r : image_store_get(&s, name, &image, e);
}

int image_store_list(const struct image_store *s, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *list = json_array();
	int r = list ? image_home_names(s->names, s->path, list_one, s, list, e) : err_oom(e);

	if (r == 0)
		*ret = TAKE_PTR(list);
	return r;
}

static int set_name(const struct image_store *s, const struct image_record *record, struct err *e)
{
	char file[FILE_NAME_MAX];
	int r = name_file(record->name, file, e);

	if (r == 0 && (json_put(record->info, "name", json_string(record->name)) < 0 ||
		       json_put(record->info, "sha256", json_string(record->digest)) < 0))
		r = err_oom(e);
	return r < 0 ? r : write_object(s->names, file, record->info, e);
}

/* Moves the finished work to its place. -EEXIST: the tree exists. */
static int place_tree(const struct image_store *s, const struct image_work *w, const char *digest,
		      const json_t *meta, struct err *e)
{
	char dir[FILE_NAME_MAX];
	int r;

	tree_name(digest, dir);
	if (faccessat(s->trees, dir, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	if (fchmod(w->fd, 0700) < 0)
		return err_errno(e, "cannot restrict the tree's directory");
	r = write_object(w->fd, "meta.json", meta, e);
	if (r < 0)
		return r;
	if (renameat(s->tmp, w->name, s->trees, dir) < 0)
		return err_errno(e, "cannot move the tree to '%s/trees'", s->path);
	return fsync(s->trees) < 0 ? err_errno(e, "cannot sync '%s/trees'", s->path) : 0;
}

int image_store_keep(const struct image_store *s, struct image_work *w, const struct id_ranges *ids,
		     const struct image_record *record, bool *ret_new, struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	struct err ignored = ERR_INIT;
	int r = image_store_lock(s, &lock, e);

	if (r == 0)
		r = place_tree(s, w, record->digest, record->meta, e);
	if (r < 0 && r != -EEXIST)
		return r;
	*ret_new = r == 0;
	/* If this fails, the next build removes the leftover. */
	if (r == -EEXIST)
		(void)image_work_drop(s, w, ids, &ignored);
	w->fd = fd_close(w->fd);
	r = FAULT_ERR("image-placed", e);
	return r < 0 ? r : set_name(s, record, e);
}

struct search {
	const char *digest, *but;
	size_t n;
};

static int count_users(const void *store, const char *name, void *arg, struct err *e)
{
	const struct image_store *s = store;
	struct search *search = arg;
	char digest[IMAGE_DIGEST_HEX + 1];

	if (!str_eq(name, search->but) && read_name(s, name, digest, NULL, e) == 0)
		search->n += str_eq(digest, search->digest);
	return 0;
}

/* Moves the tree from trees/ to the leftovers, under our lock. */
static int take_tree(const struct image_store *s, const char *digest, image_needed_fn *needed,
		     struct image_work *ret, struct err *e)
{
	char dir[FILE_NAME_MAX];
	int r = needed(digest, e);

	if (r < 0)
		return r;
	tree_name(digest, dir);
	ret->fd =
		RETRY_EINTR(openat(s->trees, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (ret->fd < 0)
		return errno == ENOENT ? 0 : err_errno(e, "cannot open the tree");
	if (flock(ret->fd, LOCK_EX | LOCK_NB) < 0) {
		r = err_set(e, -EBUSY, "a sandbox is starting with the image");
		ret->fd = fd_close(ret->fd);
		return r;
	}
	(void)snprintf(ret->name, sizeof(ret->name), "%.32s", digest);
	if (renameat(s->trees, dir, s->tmp, ret->name) < 0)
		return err_errno(e, "cannot move the tree out of the store");
	return 0;
}

int image_store_remove(const struct image_store *s, const char *name, const struct id_ranges *ids,
		       image_needed_fn *needed, bool *ret_tree, struct err *e)
{
	struct image_work w = IMAGE_WORK_INIT;
	char digest[IMAGE_DIGEST_HEX + 1], file[FILE_NAME_MAX];
	struct search search = { .digest = digest, .but = name };
	_cleanup_close_ int lock = -EBADF;
	struct err ignored = ERR_INIT;
	int r = image_store_lock(s, &lock, e);

	if (r == 0)
		r = name_file(name, file, e);
	if (r == 0)
		r = read_name(s, name, digest, NULL, e);
	if (r == 0)
		r = image_home_names(s->names, s->path, count_users, s, &search, &ignored);
	/* The tree first: a name without one is seen and can be removed again. */
	if (r == 0 && search.n == 0)
		r = take_tree(s, digest, needed, &w, e);
	if (r == 0)
		r = FAULT_ERR("image-taken", e);
	if (r == 0 && unlinkat(s->names, file, 0) < 0)
		r = err_errno(e, "cannot remove the name '%s'", name);
	*ret_tree = w.fd >= 0;
	if (r == 0)
		return image_work_drop(s, &w, ids, e);
	(void)fd_close(w.fd);
	return r;
}

struct cleaning {
	const struct image_store *s;
	const struct id_ranges *ids;
	image_needed_fn *needed;
	void (*took)(const char *name, void *arg);
	void *arg;
};

/* A name that cannot be read may mean any tree: -EUCLEAN. */
static int means(const void *store, const char *name, void *arg, struct err *e)
{
	const struct image_store *s = store;
	struct search *search = arg;
	char digest[IMAGE_DIGEST_HEX + 1];

	if (read_name(s, name, digest, NULL, e) < 0)
		return -EUCLEAN;
	search->n += str_eq(digest, search->digest);
	return 0;
}

static int clean_tree(const struct cleaning *c, const char *dir, struct err *e)
{
	const char *digest = dir + STRLEN("sha256-");
	struct search search = { .digest = digest };
	struct image_work w = IMAGE_WORK_INIT;
	struct err ignored = ERR_INIT;
	int r;

	if (!str_has_prefix(dir, "sha256-") || strlen(digest) != IMAGE_DIGEST_HEX)
		return 0;
	r = image_home_names(c->s->names, c->s->path, means, c->s, &search, &ignored);
	if (r < 0 || search.n > 0)
		return 0;
	r = take_tree(c->s, digest, c->needed, &w, e);
	if (r == -EBUSY)
		return 0; /* the name is gone, but a sandbox uses the tree, or will */
	if (r < 0 || w.fd < 0)
		return r;
	r = image_work_drop(c->s, &w, c->ids, e);
	if (r == 0)
		c->took(dir, c->arg);
	return r;
}

/* Removes leftovers of interrupted writes. Names are written only under the store's lock. */
static int clean_name(const struct cleaning *c, const char *file, struct err *e)
{
	if (!str_has_suffix(file, ".tmp"))
		return 0;
	if (unlinkat(c->s->names, file, 0) < 0)
		return err_errno(e, "cannot remove '%s/names/%s'", c->s->path, file);
	c->took(file, c->arg);
	return 0;
}

static int clean_each(const struct cleaning *c, int dir, const char *what,
		      int (*fn)(const struct cleaning *c, const char *name, struct err *e),
		      struct err *e)
{
	DIR *d = fd_list(dir);
	struct dirent *entry;
	int r = 0;

	if (!d)
		return err_errno(e, "cannot list '%s/%s'", c->s->path, what);
	while (r == 0 && (entry = readdir(d)))
		if (entry->d_name[0] != '.')
			r = fn(c, entry->d_name, e);
	(void)closedir(d);
	return r;
}

int image_store_clean_trees(const struct image_store *s, const struct id_ranges *ids,
			    image_needed_fn *needed, void (*took)(const char *name, void *arg),
			    void *arg, struct err *e)
{
	const struct cleaning c = {
		.s = s, .ids = ids, .needed = needed, .took = took, .arg = arg
	};
	_cleanup_close_ int lock = -EBADF;
	int r = image_store_lock(s, &lock, e);

	if (r == 0)
		r = clean_each(&c, s->names, "names", clean_name, e);
	return r < 0 ? r : clean_each(&c, s->trees, "trees", clean_tree, e);
}
