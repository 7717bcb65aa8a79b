/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of snapshots: creating and removing them. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "image/image-store.h"
#include "image/tree.h"
#include "snapshot/pages.h"
#include "snapshot/snapshot.h"

enum {
	BEGIN_TRIES = 8,
};

/* ---- paths ---- */

int snapshot_home_open(bool make, char path[static 1024], int *ret_fd, struct err *e)
{
	_cleanup_close_ int machine = -EBADF;
	int r = image_home_open(MACHINE_HOME, make, path, &machine, e);

	return r < 0 ? r : image_home_dir(machine, "snapshots", make, ret_fd, e);
}

int snapshot_home(int *ret_fd, struct err *e)
{
	char path[IMAGE_HOME_MAX];

	return snapshot_home_open(true, path, ret_fd, e);
}

int snapshot_path(const char *key, char ret[static SNAPSHOT_PATH_MAX], struct err *e)
{
	_cleanup_close_ int home = -EBADF;
	char path[IMAGE_HOME_MAX];
	int r = snapshot_key_valid(key)
			? snapshot_home_open(true, path, &home, e)
			: err_set(e, -EINVAL, "'%.80s' is not a snapshot name", key);

	if (r == 0)
		(void)snprintf(ret, SNAPSHOT_PATH_MAX, "%s/snapshots/%s", path, key);
	return r;
}

int snapshot_open_box(const char *key, int *ret, struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	_cleanup_json_ json_t *meta = NULL;
	char path[SNAPSHOT_PATH_MAX];
	int r = snapshot_path(key, path, e);

	if (r < 0)
		return r;
	dir = RETRY_EINTR(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (dir < 0)
		return errno == ENOENT ? err_set(e, -ENOENT,
						 "no snapshot '%s': see 'hutch snapshot ls'", key)
				       : err_errno(e, "cannot open snapshot '%s'", key);
	r = snapshot_read_meta(dir, key, &meta, e);
	if (r < 0)
		return err_wrap(e, "snapshot '%s'", key);
	*ret = path_open_nofollow(dir, "box", O_RDONLY | O_DIRECTORY, 0);
	return *ret < 0 ? err_set(e, -EINVAL, "snapshot '%s' was not made from a sandbox", key) : 0;
}

int snapshot_spec(const char *key, struct spec *ret, struct err *e)
{
	_cleanup_close_ int box = -EBADF;
	int r = snapshot_open_box(key, &box, e);

	if (r < 0)
		return r;
	r = spec_read(box, ret, e);
	return r < 0 ? err_wrap(e, "snapshot '%s'", key) : 0;
}

/* ---- creating ---- */

static int random_name(char name[static 64])
{
	uint64_t n[2] = { 0 };

	if (RETRY_EINTR(getrandom(n, sizeof(n), 0)) != (ssize_t)sizeof(n))
		return -EIO;
	(void)snprintf(name, 64, SNAPSHOT_TMP "%016llx%016llx", (unsigned long long)n[0],
		       (unsigned long long)n[1]);
	return 0;
}

static bool still_named(int home, const char *name, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && fstatat(home, name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* 1; 0: a cleanup removed the directory before we locked it. */
static int try_begin(struct snapshot_new *n)
{
	int r = random_name(n->name);

	if (r < 0)
		return r;
	if (mkdirat(n->home, n->name, 0700) < 0)
		return -errno;
	n->dir = RETRY_EINTR(
		openat(n->home, n->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (n->dir < 0 && errno != ENOENT)
		return -errno;
	if (n->dir >= 0 && flock(n->dir, LOCK_EX | LOCK_NB) == 0 &&
	    still_named(n->home, n->name, n->dir))
		return 1;
	n->dir = fd_close(n->dir);
	return 0;
}

int snapshot_begin_at(int home, struct snapshot_new *ret, struct err *e)
{
	_cleanup_snapshot_new_ struct snapshot_new n = SNAPSHOT_NEW_INIT;
	int r = 0;

	n.home = fcntl(home, F_DUPFD_CLOEXEC, 3);
	if (n.home < 0)
		return err_errno(e, "cannot create a snapshot");
	for (int i = 0; r == 0 && i < BEGIN_TRIES; i++)
		r = try_begin(&n);
	if (r == 0)
		r = -EBUSY;
	if (r < 0)
		return err_set(e, r, "cannot create the directory of a snapshot: %s", strerror(-r));
	*ret = n;
	n = (struct snapshot_new)SNAPSHOT_NEW_INIT;
	return FAULT_ERR("snapshot-begun", e);
}

int snapshot_begin(struct snapshot_new *ret, struct err *e)
{
	_cleanup_close_ int home = -EBADF;
	int r = snapshot_home(&home, e);

	return r < 0 ? r : snapshot_begin_at(home, ret, e);
}

void snapshot_drop(struct snapshot_new *n)
{
	/* If this fails, a gc removes the leftover. */
	if (n->home >= 0 && str_has_prefix(n->name, SNAPSHOT_TMP))
		(void)tree_remove(n->home, n->name);
	n->dir = fd_close(n->dir);
	n->home = fd_close(n->home);
	n->name[0] = '\0';
}

static int sync_unless(bool passing, int fd)
{
	return !passing && RETRY_EINTR(fsync(fd)) < 0 ? -errno : 0;
}

/* A directory whose files go into meta.json. */
struct part {
	int dir;
	const char *prefix; /* "" or "box/" */
	const char *memory; /* the digest of the file `memory` */
	struct snapshot_new *of;
};

/* Adds the file's row to meta.json. Makes it read-only and syncs it. */
static int add_file(const struct part *p, const char *name, json_t *files, struct err *e)
{
	_cleanup_close_ int fd = path_open_nofollow(p->dir, name, O_RDONLY | O_NONBLOCK, 0);
	char label[300], hex[PAGES_HEX];
	const char *digest;
	struct stat st;
	int r = fd < 0 ? fd : 0;

	(void)snprintf(label, sizeof(label), "%s%s", p->prefix, name);
	digest = str_eq(label, "memory") ? p->memory : NULL;
	if (r == 0 && fstat(fd, &st) < 0)
		r = -errno;
	if (r == 0 && (!S_ISREG(st.st_mode) || !snapshot_file_valid(label)))
		return err_set(e, -EINVAL, "'%.100s' cannot be in a snapshot", label);
	if (r == 0 && fchmod(fd, 0400) < 0)
		r = -errno;
	if (r == 0)
		r = sync_unless(p->of->passing, fd);
	if (r == 0 && fstat(fd, &st) < 0)
		r = -errno;
	if (r == 0)
		p->of->changed = MAX(p->of->changed, clock_of(st.st_ctim));
	if (r == 0 && !digest)
		r = pages_digest(fd, (uint64_t)st.st_size, hex);
	if (r == 0)
		r = json_put(files, label,
			     JSON_OBJECT({ "size", json_number((uint64_t)st.st_size) },
					 { "blake2b", json_string(digest ? digest : hex) }));
	return r < 0 ? err_set(e, r, "snapshot, '%.100s': %s", label, strerror(-r)) : 0;
}

static int add_files(const struct part *p, json_t *files, struct err *e)
{
	DIR *d = fd_list(p->dir);
	struct dirent *entry;
	int r = 0;

	if (!d)
		return err_errno(e, "cannot list a snapshot");
	while (r == 0 && (entry = readdir(d))) {
		if (entry->d_name[0] == '.' || (!p->prefix[0] && str_eq(entry->d_name, "box")))
			continue;
		r = add_file(p, entry->d_name, files, e);
	}
	(void)closedir(d);
	if (r == 0 && json_object_size(files) > SNAPSHOT_FILES_MAX)
		r = err_set(e, -E2BIG, "more than %d files in a snapshot", SNAPSHOT_FILES_MAX);
	if (r < 0)
		return r;
	r = sync_unless(p->of->passing, p->dir);
	return r < 0 ? err_set(e, r, "cannot sync a snapshot: %s", strerror(-r)) : 0;
}

static int add_all_files(struct snapshot_new *n, const char *memory, json_t *files, struct err *e)
{
	_cleanup_close_ int box = path_open_nofollow(n->dir, "box", O_RDONLY | O_DIRECTORY, 0);
	const struct part inner = { .dir = box, .prefix = "box/", .of = n };
	const struct part outer = { .dir = n->dir, .prefix = "", .memory = memory, .of = n };
	int r = box >= 0 ? add_files(&inner, files, e) : 0;

	if (box < 0 && box != -ENOENT)
		return err_set(e, box, "snapshot, 'box': %s", strerror(-box));
	return r < 0 ? r : add_files(&outer, files, e);
}

static int write_meta(const struct snapshot_new *n, enum snapshot_kind kind, const char *key,
		      json_t *files, const json_t *info, struct err *e)
{
	_cleanup_json_ json_t *meta = NULL;
	_cleanup_free_ char *text = NULL;
	char now[CLOCK_RFC3339_MAX];

	meta = JSON_OBJECT({ "format", json_number(SNAPSHOT_FORMAT) }, { "id", json_string(key) },
			   { "kind", json_string(snapshot_kind_names[kind]) },
			   { "created", json_string(clock_format(clock_wall(), now)) },
			   { "files", json_incref(files) }, { "info", json_deep_copy(info) });
	text = meta ? snapshot_seal_meta(meta) : NULL;
	if (!text)
		return err_oom(e);
	if (strlen(text) > SNAPSHOT_META_MAX)
		return err_set(e, -E2BIG, "the metadata of the snapshot is too large");
	return fd_replace_file(n->dir, SNAPSHOT_META, 0400, text, strlen(text), e);
}

/* The digests were computed just now, unless a process that still has a file open has written to it
 * since. */
static void remember(const struct snapshot_new *n, const char *key)
{
	_cleanup_snapshot_seen_ struct snapshot_seen seen = SNAPSHOT_SEEN_INIT;
	_cleanup_json_ json_t *meta = NULL;
	struct err none = ERR_INIT;

	if (snapshot_read_meta(n->dir, key, &meta, &none) == 0 &&
	    snapshot_look(n->dir, meta, &seen) == 0 && seen.changed == n->changed)
		snapshot_set_verified(n->dir, &seen);
}

/* The snapshot may be opened as soon as it is visible, so our lock becomes shared before the
 * rename. */
static int put_in_place(struct snapshot_new *n, const char *key, struct err *e)
{
	int r;

	if (flock(n->dir, LOCK_SH) < 0)
		return err_errno(e, "cannot lock a snapshot");
	if (renameat2(n->home, n->name, n->home, key, RENAME_NOREPLACE) < 0)
		return errno == EEXIST ? err_set(e, -EEXIST, "the snapshot exists already")
				       : err_errno(e, "cannot rename a snapshot into place");
	r = sync_unless(n->passing, n->home);
	if (r < 0)
		r = err_set(e, r, "cannot sync the directory of snapshots: %s", strerror(-r));
	else
		r = FAULT_ERR("snapshot-placed", e);
	if (r == 0 || renameat(n->home, key, n->home, n->name) < 0)
		n->name[0] = '\0'; /* it is no longer ours to remove */
	return r;
}

int snapshot_finish(struct snapshot_new *n, enum snapshot_kind kind, const char *key,
		    const char *memory, const json_t *info, struct err *e)
{
	_cleanup_json_ json_t *files = json_object();
	int r;

	n->passing = json_is_true(json_object_get(info, "fork"));
	r = files ? add_all_files(n, memory, files, e) : err_oom(e);
	assert(snapshot_key_valid(key));
	if (r == 0)
		r = FAULT_ERR("snapshot-hashed", e);
	if (r == 0)
		r = write_meta(n, kind, key, files, info, e);
	if (r == 0)
		remember(n, key);
	if (r == 0)
		r = FAULT_ERR("snapshot-written", e);
	return r < 0 ? r : put_in_place(n, key, e);
}

/* ---- removing ---- */

/*
 * Renames it first, then deletes it: processes that opened it before have it locked, later ones do
 * not find it. A name that starts with tmp- stays.
 */
static int remove_locked(int home, const char *name)
{
	char tmp[64];
	int r = str_has_prefix(name, SNAPSHOT_TMP) ? 0 : random_name(tmp);

	if (r == 0 && str_has_prefix(name, SNAPSHOT_TMP))
		return tree_remove(home, name);
	if (r == 0 && (renameat(home, name, home, tmp) < 0 || RETRY_EINTR(fsync(home)) < 0))
		r = -errno;
	return r < 0 ? r : tree_remove(home, tmp);
}

int snapshot_remove_at(int home, const char *name)
{
	_cleanup_close_ int fd = path_open_nofollow(home, name, O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return fd;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	return still_named(home, name, fd) ? remove_locked(home, name) : -ENOENT;
}

int snapshot_remove(const char *key, struct err *e)
{
	_cleanup_close_ int home = -EBADF;
	char path[IMAGE_HOME_MAX];
	int r = snapshot_key_valid(key) ? snapshot_home_open(false, path, &home, e) : -ENOENT;

	if (r == 0)
		r = snapshot_remove_at(home, key);
	if (r == -ENOENT)
		return err_set(e, r, "no snapshot '%.80s': see 'hutch snapshot ls'", key);
	if (r == -EBUSY)
		return err_set(e, r, "snapshot '%.80s' is in use by a sandbox", key);
	return r < 0 && e->num == 0
		       ? err_set(e, r, "cannot remove snapshot '%.80s': %s", key, strerror(-r))
		       : r;
}
