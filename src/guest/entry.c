/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes the attributes of a file: the fields of an entry, or of an event with an entry. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/str.h"

#include "guest/worker.h"

/* The shown attributes; for a symbolic link they may be those of its target. */
struct view {
	mode_t mode;
	off_t size;
	char target[WORKER_PATH_MAX]; /* "": not a link */
};

static enum wire_entry_kind kind_of(mode_t mode)
{
	if (S_ISREG(mode))
		return WIRE_FILE;
	if (S_ISDIR(mode))
		return WIRE_DIRECTORY;
	return S_ISLNK(mode) ? WIRE_SYMLINK : WIRE_OTHER;
}

static uint64_t mtime_of(const struct stat *st)
{
	if (st->st_mtim.tv_sec < 0 || st->st_mtim.tv_sec > INT64_MAX / 1000000000 - 1)
		return 0;
	return (uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec;
}

/* Makes an entry's path absolute: those of a list or a watch are relative to w->path. */
static int whole(const struct worker *w, const char *path, char out[static WORKER_PATH_MAX])
{
	bool absolute = path[0] == '/';
	int n = snprintf(out, WORKER_PATH_MAX, "%s%s%s", absolute ? "" : w->path,
			 absolute ? "" : "/", path);

	return n > 0 && n < WORKER_PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Finds the target of a link, if it exists and the user may access it. */
static bool follow(const struct worker *w, const char *path, struct view *v)
{
	char full[WORKER_PATH_MAX];
	struct stat st;

	static_assert(PATH_MAX <= sizeof(v->target), "realpath(3) needs PATH_MAX bytes");
	if (!fields_has(w->fields, TAG_FOLLOW) || whole(w, path, full) < 0 ||
	    !realpath(full, v->target) || lstat(v->target, &st) < 0 || S_ISLNK(st.st_mode))
		return false;
	v->mode = st.st_mode;
	v->size = st.st_size;
	return true;
}

static void look(const struct worker *w, int dirfd, const char *name, const char *path,
		 const struct stat *st, struct view *v)
{
	ssize_t k;

	v->mode = st->st_mode;
	v->size = st->st_size;
	v->target[0] = '\0';
	if (!S_ISLNK(st->st_mode) || follow(w, path, v))
		return;
	k = readlinkat(dirfd, name, v->target, sizeof(v->target) - 1);
	v->target[MAX(k, (ssize_t)0)] = '\0';
}

/* Adds one attribute as "key=value"; skips one that our own write would not have accepted. */
static bool put_attribute(struct buf *b, const char *full, const char *name)
{
	char text[WIRE_META_BYTES];
	const char *key = name + STRLEN(META_PREFIX);
	size_t n;
	ssize_t k;

	if (!str_has_prefix(name, META_PREFIX) || strlen(key) > WIRE_META_KEY_MAX)
		return false;
	n = strlen(key);
	memcpy(text, key, n);
	text[n++] = '=';
	k = getxattr(full, name, text + n, WIRE_META_VALUE_MAX);
	if (k < 0 || !wire_meta_valid(text, n + (size_t)k))
		return false;
	fields_put_bytes(b, TAG_META, text, n + (size_t)k);
	return true;
}

/* Adds the metadata, also of a link's target if the entry describes the target. */
static void put_meta(struct worker *w, const char *path)
{
	static char names[XATTR_LIST_MAX];
	char full[WORKER_PATH_MAX];
	size_t count = 0;
	ssize_t n = whole(w, path, full) < 0 ? 0 : listxattr(full, names, sizeof(names));

	for (const char *name = names; count < WIRE_META_MAX && n > 0 && name < names + n;
	     name += strlen(name) + 1)
		count += put_attribute(&w->packet, full, name);
}

void entry_put(struct worker *w, enum wire_event event, int dirfd, const char *name,
	       const char *path, const struct stat *st)
{
	struct buf *b = &w->packet;
	struct view v = { 0 };

	if (st)
		look(w, dirfd, name, path, st, &v);
	fields_put_text(b, TAG_PATH, path);
	if (v.target[0])
		fields_put_text(b, TAG_TARGET, v.target);
	if (st)
		fields_put_number(b, TAG_MODE, v.mode & 07777);
	if (event)
		fields_put_number(b, TAG_EVENT, event);
	if (!st)
		return;
	fields_put_number(b, TAG_KIND, kind_of(v.mode));
	fields_put_number(b, TAG_SIZE, v.size > 0 ? (uint64_t)v.size : 0);
	fields_put_number(b, TAG_UID, st->st_uid);
	fields_put_number(b, TAG_GID, st->st_gid);
	fields_put_number(b, TAG_MTIME, mtime_of(st));
	fields_put_text(b, TAG_OWNER, user_name(st->st_uid));
	fields_put_text(b, TAG_GROUP, group_name(st->st_gid));
	if (S_ISREG(v.mode))
		put_meta(w, path);
}
