/* SPDX-License-Identifier: Apache-2.0 */
/* Opens snapshots: meta.json must match its own checksum, and all files must match meta.json. */
#include "snapshot/snapshot.h"

#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "snapshot/pages.h"

#define FILE_SIZE_MAX (UINT64_C(1) << 48)

enum {
	NAME_MAX_ = 100, /* longest file name in box/ */
	DATE_MAX = 40,
};

const char *const snapshot_kind_names[] = {
	[SNAPSHOT_TEMPLATE] = "template",
	[SNAPSHOT_SAVED] = "saved",
	NULL,
};
static_assert(ARRAY_SIZE(snapshot_kind_names) == SNAPSHOT_KINDS + 1, "each kind has a name");

/* ---- names ---- */

bool snapshot_key_valid(const char *key)
{
	size_t n = strlen(key);

	return (n == SNAPSHOT_KEY && strspn(key, "0123456789abcdef") == n) || spec_id_valid(key);
}

bool snapshot_file_valid(const char *name)
{
	static const char ok[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	const char *inner = name + STRLEN("box/");

	if (str_eq(name, "memory") || str_eq(name, "state") || str_eq(name, "disk"))
		return true;
	return str_has_prefix(name, "box/") && inner[0] != '\0' && inner[0] != '.' &&
	       strlen(inner) <= NAME_MAX_ && inner[strspn(inner, ok)] == '\0';
}

/* ---- meta.json ---- */

static void sum_of(const char *text, char ret_hex[static PAGES_HEX])
{
	unsigned char digest[PAGES_DIGEST];

	(void)crypto_generichash(digest, sizeof(digest), (const unsigned char *)text, strlen(text),
				 NULL, 0);
	(void)sodium_bin2hex(ret_hex, PAGES_HEX, digest, sizeof(digest));
}

char *snapshot_seal_meta(json_t *meta)
{
	_cleanup_free_ char *bare = NULL;
	char hex[PAGES_HEX];

	(void)json_object_del(meta, "sum");
	bare = json_write_canonical(meta);
	if (!bare)
		return NULL;
	sum_of(bare, hex);
	return json_put(meta, "sum", json_string(hex)) < 0 ? NULL : json_write_canonical(meta);
}

/* Compares byte by byte with what we would write: the canonical text is unique. */
static int check_sum(json_t *meta, const struct buf *text, struct err *e)
{
	_cleanup_free_ char *again = json_is_object(meta) ? snapshot_seal_meta(meta) : NULL;

	if (!again && json_is_object(meta))
		return err_oom(e);
	if (!again || strlen(again) != text->len || memcmp(again, text->data, text->len) != 0)
		return err_set(e, -EBADMSG, SNAPSHOT_META " is damaged");
	return 0;
}

static int check_file_row(const char *name, const json_t *row, struct err *e)
{
	static const char *const keys[] = { "size", "blake2b", NULL };
	const char *digest;
	uint64_t size;
	int r = json_only_keys(row, keys, e);

	if (r == 0)
		r = json_get_u64(row, "size", FILE_SIZE_MAX, &size, e);
	if (r == 0)
		r = json_get_string(row, "blake2b", PAGES_HEX - 1, &digest, e);
	if (r == 0 && (!snapshot_file_valid(name) || strlen(digest) != PAGES_HEX - 1))
		r = err_set(e, -EINVAL, "contains an invalid file name or digest");
	return r;
}

static int check_files(const json_t *files, struct err *e)
{
	const char *name;
	json_t *row;
	int r = 0;

	if (!json_is_object(files) || json_object_size(files) > SNAPSHOT_FILES_MAX)
		return err_set(e, -EINVAL, "files: missing, or too many");
	json_object_foreach((json_t *)files, name, row)
	{
		r = check_file_row(name, row, e);
		if (r < 0)
			break;
	}
	return r;
}

static int check_meta(const json_t *meta, const char *key, struct err *e)
{
	static const char *const keys[] = { "format", "id",   "kind", "created",
					    "files",  "info", "sum",  NULL };
	const char *id, *kind, *created;
	uint64_t format;
	int r = json_only_keys(meta, keys, e);

	if (r == 0)
		r = json_get_u64(meta, "format", INT32_MAX, &format, e);
	if (r == 0 && format != SNAPSHOT_FORMAT)
		return err_set(e, -EBADMSG,
			       "format %u is not supported by this hutch, which supports %u",
			       (unsigned int)format, (unsigned int)SNAPSHOT_FORMAT);
	if (r == 0)
		r = json_get_string(meta, "id", SNAPSHOT_KEY, &id, e);
	if (r == 0 && !str_eq(id, key))
		return err_set(e, -EBADMSG, "it belongs to another snapshot: '%.64s'", id);
	if (r == 0)
		r = json_get_string(meta, "kind", DATE_MAX, &kind, e);
	if (r == 0 && !str_eq(kind, "template") && !str_eq(kind, "saved"))
		return err_set(e, -EBADMSG, "its kind is unknown to this hutch");
	if (r == 0)
		r = json_get_string(meta, "created", DATE_MAX, &created, e);
	if (r == 0 && !json_is_object(json_object_get(meta, "info")))
		r = err_set(e, -EINVAL, "info: not an object");
	if (r == 0)
		r = check_files(json_object_get(meta, "files"), e);
	/* Missing or invalid values mean a damaged snapshot. */
	return r == -ENOENT || r == -EINVAL ? (e->num = -EBADMSG) : r;
}

int snapshot_read_meta(int dir, const char *key, json_t **ret, struct err *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT(SNAPSHOT_META_MAX);
	_cleanup_json_ json_t *meta = NULL;
	int r = fd_read_file(dir, SNAPSHOT_META, &text, e);

	if (r < 0)
		return r == -ENOENT || r == -EFBIG ? (e->num = -EBADMSG) : r;
	r = json_read(buf_text(&text), text.len, &meta, e);
	if (r < 0)
		return r == -ENOMEM ? r : (e->num = -EBADMSG);
	r = check_sum(meta, &text, e);
	if (r == 0)
		r = check_meta(meta, key, e);
	if (r == 0)
		*ret = TAKE_PTR(meta);
	return r;
}

/* ---- files ---- */

static int damaged(struct err *e, const char *name, const char *how)
{
	return err_set(e, -EBADMSG, "its file '%.100s' %s", name, how);
}

/* Opens a file and checks its size. */
static int open_file(int dir, const char *name, uint64_t size, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = path_open_nofollow(dir, name, O_RDONLY | O_NONBLOCK, 0);
	struct stat st;

	if (fd == -ENOENT || fd == -ELOOP || fd == -ENOTDIR)
		return damaged(e, name, "is missing");
	if (fd < 0)
		return err_set(e, fd, "cannot open '%.100s': %s", name, strerror(-fd));
	if (fstat(fd, &st) < 0)
		return err_errno(e, "cannot stat '%.100s'", name);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != size)
		return damaged(e, name, "has the wrong size");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int check_bytes(int fd, const char *name, uint64_t size, const char *digest, struct err *e)
{
	char hex[PAGES_HEX];
	int r = pages_digest(fd, size, hex);

	if (r == -EBADMSG || (r == 0 && !str_eq(hex, digest)))
		return damaged(e, name, "is damaged");
	return r < 0 ? err_set(e, r, "cannot read '%.100s': %s", name, strerror(-r)) : 0;
}

static int take_file(struct snapshot *s, const char *name, const json_t *row, bool verified,
		     struct err *e)
{
	uint64_t size = (uint64_t)json_integer_value(json_object_get(row, "size"));
	const char *digest = json_string_value(json_object_get(row, "blake2b"));
	_cleanup_close_ int fd = -EBADF;
	int r = open_file(s->dir, name, size, &fd, e);

	if (r < 0)
		return r;
	r = verified ? 0 : check_bytes(fd, name, size, digest, e);
	if (r == 0 && str_eq(name, "memory"))
		s->memory = TAKE_FD(fd);
	else if (r == 0 && str_eq(name, "state"))
		s->state = TAKE_FD(fd);
	else if (r == 0 && str_eq(name, "disk"))
		s->disk = TAKE_FD(fd);
	return r;
}

/* Number of entries in a directory, except meta.json, `verified` (also while another process writes
 * it) and box; or -errno. */
static int count_in(int dir)
{
	DIR *d = fd_list(dir);
	struct dirent *entry;
	int n = 0;

	if (!d)
		return -errno;
	while ((entry = readdir(d)))
		n += !str_eq(entry->d_name, ".") && !str_eq(entry->d_name, "..") &&
		     !str_eq(entry->d_name, SNAPSHOT_META) &&
		     !str_has_prefix(entry->d_name, SNAPSHOT_SEEN) && !str_eq(entry->d_name, "box");
	(void)closedir(d);
	return n;
}

/* Rejects files that meta.json does not list. */
static int check_no_more(const struct snapshot *s, struct err *e)
{
	_cleanup_close_ int box = path_open_nofollow(s->dir, "box", O_RDONLY | O_DIRECTORY, 0);
	int here = count_in(s->dir), there = box >= 0 ? count_in(box) : 0;

	if (here < 0 || there < 0)
		return err_set(e, MIN(here, there), "cannot list it: %s",
			       strerror(-MIN(here, there)));
	if ((size_t)here + (size_t)there != json_object_size(json_object_get(s->meta, "files")))
		return err_set(e, -EBADMSG, "its files do not match meta.json");
	return 0;
}

static int take_files(struct snapshot *s, struct err *e)
{
	_cleanup_snapshot_seen_ struct snapshot_seen seen = SNAPSHOT_SEEN_INIT;
	json_t *files = json_object_get(s->meta, "files"), *row;
	const char *name;
	bool looked, verified;
	int r = check_no_more(s, e);

	if (r < 0)
		return r;
	looked = snapshot_look(s->dir, s->meta, &seen) == 0;
	verified = looked && snapshot_was_verified(s->dir, &seen);
	json_object_foreach(files, name, row)
	{
		r = take_file(s, name, row, verified, e);
		if (r < 0)
			return r;
	}
	s->kind = str_eq(json_string_value(json_object_get(s->meta, "kind")), "template")
			  ? SNAPSHOT_TEMPLATE
			  : SNAPSHOT_SAVED;
	if (s->state < 0 || s->disk < 0 || s->memory < 0 ||
	    (s->kind == SNAPSHOT_SAVED) != !!json_object_get(files, "box/spec.json"))
		return err_set(e, -EBADMSG,
			       "files of its kind are missing, or it has unexpected files");
	if (looked && !verified)
		snapshot_set_verified(s->dir, &seen);
	return 0;
}

/* ---- opening ---- */

/* Takes the shared lock, then checks that the path still refers to it: it may have been renamed for
 * removal. */
int snapshot_lock_shared(const char *path, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = RETRY_EINTR(
		openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	struct stat held, named;

	if (fd < 0)
		return errno == ENOENT ? err_set(e, -ENOENT, "it does not exist")
				       : err_errno(e, "cannot open it");
	if (RETRY_EINTR(flock(fd, LOCK_SH | LOCK_NB)) < 0)
		return errno == EWOULDBLOCK ? err_set(e, -EBUSY, "it is being removed")
					    : err_errno(e, "cannot lock it");
	if (fstat(fd, &held) < 0 || fstatat(AT_FDCWD, path, &named, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? err_set(e, -ENOENT, "it was removed")
				       : err_errno(e, "cannot stat it");
	if (held.st_dev != named.st_dev || held.st_ino != named.st_ino)
		return err_set(e, -EBUSY, "it was replaced just now");
	if (held.st_uid != geteuid() || (held.st_mode & (S_IWGRP | S_IWOTH)))
		return err_set(e, -EPERM, "other users can write to it: refused");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int snapshot_open(const char *path, struct snapshot *ret, struct err *e)
{
	_cleanup_snapshot_ struct snapshot s = SNAPSHOT_INIT;
	const char *slash = strrchr(path, '/'), *key = slash ? slash + 1 : path;
	int r = path[0] == '/' && snapshot_key_valid(key)
			? snapshot_lock_shared(path, &s.dir, e)
			: err_set(e, -EINVAL, "not the path of a snapshot");

	if (r == 0)
		r = snapshot_read_meta(s.dir, key, &s.meta, e);
	if (r == 0)
		r = take_files(&s, e);
	if (r < 0)
		return err_wrap(e, "snapshot %.16s%s", key, strlen(key) > 16 ? "..." : "");
	*ret = s;
	s = (struct snapshot)SNAPSHOT_INIT;
	return 0;
}

void snapshot_done(struct snapshot *s)
{
	s->dir = fd_close(s->dir);
	s->state = fd_close(s->state);
	s->memory = fd_close(s->memory);
	s->disk = fd_close(s->disk);
	json_decref(TAKE_PTR(s->meta));
}
