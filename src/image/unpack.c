/* SPDX-License-Identifier: Apache-2.0 */
#include "image/unpack.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "image/tree.h"

enum {
	CHUNK = 256 * 1024,
	OCTAL_FILE = 0777,
	OCTAL_DIR = 01777,
	SET_IDS = S_ISUID | S_ISGID,
};

/*
 * Every sandbox mounts over these. A link there would redirect the mounts (CVE-2019-19921,
 * CVE-2025-31133), so each must be a directory; an image's files in the first three are never
 * visible.
 */
static const char *const mount_points[] = { "dev", "proc", "sys", "run" };

enum {
	N_COVERED = 3
};

bool unpack_is_mount_point(const char *name, bool *ret_below)
{
	for (size_t i = 0; i < ARRAY_SIZE(mount_points); i++) {
		size_t n = strlen(mount_points[i]);

		if (strncmp(name, mount_points[i], n) != 0 || (name[n] != '/' && name[n]))
			continue;
		*ret_below = name[n] == '/' && i < N_COVERED;
		return name[n] == '\0';
	}
	*ret_below = false;
	return false;
}

static int refuse(const struct tar_entry *en, const char *why, struct err *e)
{
	return err_set(e, -EINVAL, "'%.120s': %s", en->name, why);
}

static int failed(const struct tar_entry *en, int r, struct err *e)
{
	if (r == -ELOOP)
		return refuse(en, "is behind a symbolic link", e);
	if (r == -ENOTDIR)
		return refuse(en, "is below something that is not a directory", e);
	return err_set(e, r, "cannot write '%.120s': %s", en->name, strerror(-r));
}

int unpack_open_parent(int root, const char *name, bool make, const char **ret_base)
{
	const char *slash = strrchr(name, '/');
	char parent[TAR_NAME_MAX + 1] = ".";
	int fd, r;

	*ret_base = slash ? slash + 1 : name;
	if (slash) {
		memcpy(parent, name, (size_t)(slash - name));
		parent[slash - name] = '\0';
	}
	fd = path_open_nofollow(root, parent, O_PATH | O_DIRECTORY, 0);
	if (fd != -ENOENT || !make)
		return fd;
	r = path_mkdirs(root, parent, 0755);
	return r < 0 ? r : path_open_nofollow(root, parent, O_PATH | O_DIRECTORY, 0);
}

static int set_times(int dirfd, const char *base, uint64_t mtime)
{
	const struct timespec t[2] = { { .tv_sec = (time_t)mtime }, { .tv_sec = (time_t)mtime } };

	return utimensat(dirfd, base, t, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int copy_data(struct unpack *u, struct tar *t, int fd, struct err *e)
{
	_cleanup_free_ char *chunk = malloc(CHUNK);
	int64_t k;
	int r = 0;

	if (!chunk)
		return err_oom(e);
	while (r == 0 && (k = tar_read(t, chunk, CHUNK, e)) != 0) {
		if (k < 0)
			return (int)k;
		r = fd_write_all(fd, chunk, (size_t)k);
		u->counts.bytes += (uint64_t)k;
		if (u->tick)
			u->tick(u->arg, &u->counts);
	}
	return r < 0 ? err_set(e, r, "cannot write: %s", strerror(-r)) : 0;
}

static int put_file(struct unpack *u, struct tar *t, const struct tar_entry *en, int dirfd,
		    const char *base, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r;

	if (en->size > IMAGE_BYTES_MAX - u->counts.bytes)
		return refuse(en, "with this file the image is larger than 64 GiB", e);
	r = tree_remove(dirfd, base);
	if (r < 0)
		return failed(en, r, e);
	fd = RETRY_EINTR(
		openat(dirfd, base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (fd < 0)
		return failed(en, -errno, e);
	r = copy_data(u, t, fd, e);
	if (r < 0)
		return err_wrap(e, "'%.100s'", en->name);
	/* Owner first: changing it may clear mode bits. */
	if (fchown(fd, en->uid, en->gid) < 0 || fchmod(fd, en->mode & OCTAL_FILE) < 0)
		return failed(en, -errno, e);
	r = set_times(dirfd, base, en->mtime);
	return r < 0 ? failed(en, r, e) : 0;
}

static int put_symlink(const struct tar_entry *en, int dirfd, const char *base, struct err *e)
{
	int r = tree_remove(dirfd, base);

	if (r == 0 && symlinkat(en->link, dirfd, base) < 0)
		r = -errno;
	if (r == 0 && fchownat(dirfd, base, en->uid, en->gid, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (r == 0)
		r = set_times(dirfd, base, en->mtime);
	return r < 0 ? failed(en, r, e) : 0;
}

static int put_hardlink(struct unpack *u, const struct tar_entry *en, int dirfd, const char *base,
			struct err *e)
{
	_cleanup_close_ int target_dir = -EBADF;
	const char *target_base;
	struct stat st;
	int r;

	if (str_eq(en->name, en->link))
		return refuse(en, "a hard link to itself", e);
	target_dir = unpack_open_parent(u->root, en->link, false, &target_base);
	if (target_dir < 0 || fstatat(target_dir, target_base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return refuse(en, "a hard link to a target that is not in the image", e);
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return refuse(en, "a hard link to a directory", e);
	r = tree_remove(dirfd, base);
	if (r == 0 && linkat(target_dir, target_base, dirfd, base, 0) < 0)
		r = -errno;
	return r < 0 ? failed(en, r, e) : 0;
}

static int put_dir(const struct tar_entry *en, int dirfd, const char *base, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r = 0;

	if (mkdirat(dirfd, base, 0700) < 0) {
		struct stat st;

		if (errno != EEXIST || fstatat(dirfd, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return failed(en, -errno, e);
		if (!S_ISDIR(st.st_mode))
			r = tree_remove(dirfd, base);
		if (r == 0 && !S_ISDIR(st.st_mode) && mkdirat(dirfd, base, 0700) < 0)
			r = -errno;
		if (r < 0)
			return failed(en, r, e);
	}
	fd = RETRY_EINTR(openat(dirfd, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (fd < 0 || fchown(fd, en->uid, en->gid) < 0 || fchmod(fd, en->mode & OCTAL_DIR) < 0)
		return failed(en, -errno, e);
	return 0;
}

static int put_root(struct unpack *u, const struct tar_entry *en, struct err *e)
{
	if (en->type != TAR_DIR)
		return refuse(en, "the root must be a directory", e);
	if (fchown(u->root, en->uid, en->gid) < 0 || fchmod(u->root, en->mode & OCTAL_DIR) < 0)
		return failed(en, -errno, e);
	return 0;
}

/* Drops an entry, and removes a file that the entry would have replaced. */
static int drop(const struct tar_entry *en, int dirfd, const char *base, uint64_t *count,
		struct err *e)
{
	int r = tree_remove(dirfd, base);

	++*count;
	return r < 0 ? failed(en, r, e) : 0;
}

static int put_entry(struct unpack *u, struct tar *t, const struct tar_entry *en, struct err *e)
{
	_cleanup_close_ int dirfd = -EBADF;
	const char *base;

	dirfd = unpack_open_parent(u->root, en->name, true, &base);
	if (dirfd < 0)
		return failed(en, dirfd, e);
	switch (en->type) {
	case TAR_FILE:
		return put_file(u, t, en, dirfd, base, e);
	case TAR_SYMLINK:
		return put_symlink(en, dirfd, base, e);
	case TAR_HARDLINK:
		return put_hardlink(u, en, dirfd, base, e);
	case TAR_DIR:
		return put_dir(en, dirfd, base, e);
	case TAR_DEVICE:
		return drop(en, dirfd, base, &u->counts.devices, e);
	case TAR_FIFO:
		return drop(en, dirfd, base, &u->counts.fifos, e);
	}
	return refuse(en, "of unknown type", e);
}

static int take_entry(struct unpack *u, struct tar *t, const struct tar_entry *en, struct err *e)
{
	bool below, itself = unpack_is_mount_point(en->name, &below);

	if (en->uid >= IMAGE_ID_COUNT || en->gid >= IMAGE_ID_COUNT)
		return err_set(e, -EINVAL, "'%.100s': owner %u:%u is out of range; ids go up to %d",
			       en->name, en->uid, en->gid, IMAGE_ID_COUNT - 1);
	if (itself && en->type != TAR_DIR)
		return err_set(e, -EINVAL, "'/%s' must be a directory: refused", en->name);
	if (below) {
		u->counts.covered++;
		return 0;
	}
	u->counts.xattrs += en->xattrs;
	if (en->type == TAR_FILE || en->type == TAR_DIR)
		u->counts.setids += (en->mode & SET_IDS) != 0;
	if (str_eq(en->name, "."))
		return put_root(u, en, e);
	return put_entry(u, t, en, e);
}

/*
 * ".wh.NAME" in a layer removes NAME from the layers below; ".wh..wh..opq" removes all their files
 * in this directory. A separate pass removes them before the layer is written, so that a whiteout
 * never affects the layer's own files, whatever the order.
 */
static int take_whiteout(struct unpack *u, const struct tar_entry *en, const char *mark,
			 struct err *e)
{
	_cleanup_close_ int dirfd = -EBADF, opaque = -EBADF;
	const char *base;
	int r;

	if (str_eq(mark, ".") || str_eq(mark, "..") || mark[0] == '\0')
		return refuse(en, "a whiteout without a name", e);
	if (str_has_prefix(mark, ".wh.") && !str_eq(mark, ".wh..opq"))
		return refuse(en, "an unknown kind of whiteout", e);
	dirfd = unpack_open_parent(u->root, en->name, false, &base);
	if (dirfd == -ENOENT)
		return 0;
	if (dirfd < 0)
		return failed(en, dirfd, e);
	u->counts.whiteouts++;
	if (!str_eq(mark, ".wh..opq")) {
		r = tree_remove(dirfd, mark);
	} else {
		opaque = RETRY_EINTR(openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		r = opaque < 0 ? -errno : tree_empty(opaque);
	}
	return r < 0 ? failed(en, r, e) : 0;
}

/* The part after ".wh." in the last component, or NULL. */
static const char *whiteout_mark(const char *name)
{
	const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;

	return str_has_prefix(base, ".wh.") ? base + 4 : NULL;
}

int unpack_archive(struct unpack *u, enum unpack_pass pass, tar_read_fn *read, void *read_arg,
		   struct err *e)
{
	_cleanup_free_ struct tar_entry *en = calloc(1, sizeof(*en));
	struct tar t = { .read = read, .arg = read_arg };
	uint64_t seen = 0;
	int r;

	if (!en)
		return err_oom(e);
	while ((r = tar_next(&t, en, e)) > 0) {
		const char *mark = pass == UNPACK_TAR ? NULL : whiteout_mark(en->name);

		if (++seen > IMAGE_ENTRIES_MAX || u->counts.entries >= IMAGE_ENTRIES_MAX)
			return err_set(e, -EINVAL, "more than %llu entries",
				       (unsigned long long)IMAGE_ENTRIES_MAX);
		r = 0;
		if (pass == UNPACK_WHITEOUTS)
			r = mark ? take_whiteout(u, en, mark, e) : 0;
		else if (!mark)
			r = take_entry(u, &t, en, e);
		if (r < 0)
			return r;
		u->counts.entries += pass != UNPACK_WHITEOUTS;
		if (u->tick)
			u->tick(u->arg, &u->counts);
	}
	return r;
}

int unpack_mount_points(int root, struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(mount_points); i++) {
		struct stat st;

		if (mkdirat(root, mount_points[i], 0755) < 0 && errno != EEXIST)
			return err_errno(e, "cannot create '/%s'", mount_points[i]);
		if (fstatat(root, mount_points[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			return err_errno(e, "cannot stat '/%s'", mount_points[i]);
		if (!S_ISDIR(st.st_mode))
			return err_set(e, -EINVAL, "'/%s' must be a directory: refused",
				       mount_points[i]);
	}
	return 0;
}
