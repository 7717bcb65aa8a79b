/* SPDX-License-Identifier: Apache-2.0 */
#include "tar/extract.h"

#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"

enum {
	MODE_FILE = 0777,
	MODE_DIR = 01777,
	TEMP_MAX = sizeof(EXTRACT_TEMP_NEW) + 16,
	DIRECT_MIN = 64 * 1024, /* larger reads bypass the buffer */
};

static int refuse(const struct extract *x, const char *why, struct err *e)
{
	return err_set(e, -EINVAL, "'%.120s': %s", x->entry.name, why);
}

static int failed(const struct extract *x, int r, struct err *e)
{
	if (r == -ELOOP)
		return refuse(x, "lies behind a symbolic link", e);
	if (r == -ENOTDIR)
		return refuse(x, "lies below something that is not a directory", e);
	return err_set(e, r, "cannot write '%.120s': %s", x->entry.name, strerror(-r));
}

/* ---- the archive's bytes ---- */

static int64_t fetch(struct extract *x, void *buf, size_t n, struct err *e)
{
	int64_t k = x->read(x->arg, buf, n, e);

	if (k <= 0)
		return k;
	x->raw += (uint64_t)k;
	if (x->raw > x->max_bytes)
		return err_set(e, -EFBIG, "the archive is larger than %llu bytes",
			       (unsigned long long)x->max_bytes);
	if (x->tick)
		x->tick(x);
	return k;
}

static int64_t read_archive(void *arg, void *buf, size_t n, struct err *e)
{
	struct extract *x = arg;
	size_t k;

	if (x->taken == x->have) {
		int64_t got;

		if (n >= DIRECT_MIN)
			return fetch(x, buf, n, e);
		got = fetch(x, x->buffer, sizeof(x->buffer), e);
		if (got <= 0)
			return got;
		x->have = (size_t)got;
		x->taken = 0;
	}
	k = MIN(n, x->have - x->taken);
	memcpy(buf, x->buffer + x->taken, k);
	x->taken += k;
	return (int64_t)k;
}

/* ---- names ---- */

/* Returns the part of an archive's name below the top-level entry; NULL if it is not below it. */
static const char *below_top(struct extract *x, const char *name)
{
	size_t n = strcspn(name, "/");

	if (x->first[0] == '\0')
		memcpy(x->first, name, n); /* the rest is zero */
	if (str_eq(x->first, "."))
		return str_eq(name, ".") ? "" : name;
	if (strncmp(name, x->first, n) != 0 || x->first[n] != '\0')
		return NULL;
	return name[n] == '/' ? name + n + 1 : "";
}

/* Converts a name of the archive to a name below the root. */
static int map_name(struct extract *x, const char *name, char out[static TAR_NAME_MAX + 1],
		    struct err *e)
{
	const char *rest = x->top ? below_top(x, name) : name;
	bool whole = !x->top || str_eq(x->top, ".");
	int len;

	if (!rest)
		return refuse(x, "lies outside of the requested path", e);
	len = snprintf(out, TAR_NAME_MAX + 1, "%s%s%s", whole ? "" : x->top,
		       whole || rest[0] == '\0' ? "" : "/", rest);
	if (len == 0)
		memcpy(out, ".", 2);
	return len < 0 || len > TAR_NAME_MAX ? refuse(x, "the name is too long", e) : 0;
}

/* ---- entries ---- */

/*
 * Splices data from the pipe to the file without copying it. Where splice(2) does not work, and for
 * the rest, copy_data() continues.
 */
static int move_data(struct extract *x, int fd, struct err *e)
{
	while (x->pipe >= 0 && x->taken == x->have && x->tar.left >= DIRECT_MIN) {
		ssize_t k = RETRY_EINTR(splice(x->pipe, NULL, fd, NULL, (size_t)x->tar.left, 0));

		if (k < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO))
			return failed(x, -errno, e);
		if (k <= 0)
			break;
		x->tar.left -= (uint64_t)k;
		x->raw += (uint64_t)k;
		x->bytes += (uint64_t)k;
	}
	return 0;
}

static int copy_data(struct extract *x, int fd, struct err *e)
{
	int64_t k;

	while ((k = tar_read(&x->tar, x->chunk, sizeof(x->chunk), e)) > 0) {
		int r = fd_write_all(fd, x->chunk, (size_t)k);

		if (r < 0)
			return failed(x, r, e);
		x->bytes += (uint64_t)k;
		r = move_data(x, fd, e);
		if (r < 0)
			return r;
	}
	return (int)k;
}

/* Does the entry's name exist already? A directory is an error: it is never replaced. */
static int look(const struct extract *x, int dirfd, const char *base, bool *ret_there,
		struct err *e)
{
	struct stat st;

	*ret_there = fstatat(dirfd, base, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!*ret_there)
		return errno == ENOENT ? 0 : failed(x, -errno, e);
	return S_ISDIR(st.st_mode) ? refuse(x, "a directory of that name exists", e) : 0;
}

static void temp_name(struct extract *x, bool there, char out[static TEMP_MAX])
{
	(void)snprintf(out, TEMP_MAX, "%s%016llx", there ? EXTRACT_TEMP_OLD : EXTRACT_TEMP_NEW,
		       (unsigned long long)x->temp++);
}

static int fill_file(struct extract *x, int fd, struct err *e)
{
	const struct timespec t[2] = { { .tv_nsec = UTIME_NOW },
				       { .tv_sec = (time_t)x->entry.mtime } };
	int r = copy_data(x, fd, e);

	return r == 0 && futimens(fd, t) < 0 ? failed(x, -errno, e) : r;
}

static int put_file(struct extract *x, int dirfd, const char *base, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	char temp[TEMP_MAX];
	bool there;
	int r;

	if (x->entry.size > x->max_bytes - x->raw)
		return refuse(x, "makes the archive larger than allowed", e);
	r = look(x, dirfd, base, &there, e);
	if (r < 0)
		return r;
	temp_name(x, there, temp);
	fd = RETRY_EINTR(openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
				x->entry.mode & MODE_FILE));
	if (fd < 0)
		return failed(x, -errno, e);
	r = fill_file(x, fd, e);
	if (r == 0 && renameat(dirfd, temp, dirfd, base) < 0)
		r = failed(x, -errno, e);
	if (r < 0)
		(void)unlinkat(dirfd, temp, 0);
	return r;
}

static int put_symlink(struct extract *x, int dirfd, const char *base, struct err *e)
{
	const struct timespec t[2] = { { .tv_nsec = UTIME_NOW },
				       { .tv_sec = (time_t)x->entry.mtime } };
	bool there;
	int r = look(x, dirfd, base, &there, e);

	if (r < 0)
		return r;
	if (there && unlinkat(dirfd, base, 0) < 0)
		return failed(x, -errno, e);
	if (symlinkat(x->entry.link, dirfd, base) < 0 ||
	    utimensat(dirfd, base, t, AT_SYMLINK_NOFOLLOW) < 0)
		return failed(x, -errno, e);
	return 0;
}

static int put_hardlink(struct extract *x, int dirfd, const char *base, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	char parent[TAR_NAME_MAX + 1];
	const char *slash, *target;
	struct stat st;
	bool there;
	int r = map_name(x, x->entry.link, x->target, e);

	if (r < 0)
		return r;
	if (str_eq(x->name, x->target))
		return refuse(x, "a hard link to itself", e);
	slash = strrchr(x->target, '/');
	target = slash ? slash + 1 : x->target;
	if (path_parent(x->target, parent, sizeof(parent)) == 0)
		fd = path_open_nofollow(x->root, parent, O_PATH | O_DIRECTORY, 0);
	if (fd < 0 || fstatat(fd, target, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return refuse(x, "a hard link to a missing file", e);
	if (!S_ISREG(st.st_mode))
		return refuse(x, "a hard link whose target is not a file", e);
	r = look(x, dirfd, base, &there, e);
	if (r == 0 && there && unlinkat(dirfd, base, 0) < 0)
		r = failed(x, -errno, e);
	if (r == 0 && linkat(fd, target, dirfd, base, 0) < 0)
		r = failed(x, -errno, e);
	return r;
}

static int put_dir(struct extract *x, struct err *e)
{
	int r = extract_enter(x, x->name, x->entry.mode & MODE_DIR, x->entry.mtime);

	if (r == -ENOTDIR)
		return refuse(x, "exists and is not a directory", e);
	return r < 0 ? failed(x, r, e) : 0;
}

static int put_entry(struct extract *x, struct err *e)
{
	const char *base;
	int dirfd = extract_parent(x, x->name, &base);

	if (dirfd < 0)
		return failed(x, dirfd, e);
	switch (x->entry.type) {
	case TAR_FILE:
		return put_file(x, dirfd, base, e);
	case TAR_SYMLINK:
		return put_symlink(x, dirfd, base, e);
	case TAR_HARDLINK:
		return put_hardlink(x, dirfd, base, e);
	case TAR_DIR:
		return put_dir(x, e);
	case TAR_DEVICE:
		return refuse(x, "devices are not accepted", e);
	case TAR_FIFO:
		return refuse(x, "FIFOs are not accepted", e);
	}
	return refuse(x, "unknown type", e);
}

static int take_entry(struct extract *x, struct err *e)
{
	const struct tar_entry *en = &x->entry;
	int r;

	if (x->entries >= x->max_entries)
		return err_set(e, -EFBIG, "'%.100s': more than %llu entries", en->name,
			       (unsigned long long)x->max_entries);
	if (en->type != TAR_SYMLINK && (en->mode & (S_ISUID | S_ISGID)))
		return refuse(x, "set-ID bits are not accepted", e);
	r = map_name(x, en->name, x->name, e);
	if (r < 0)
		return r;
	if (x->directory && x->entries == 0 && en->type != TAR_DIR)
		return refuse(x, "is not a directory", e);
	if (str_eq(x->name, "."))
		r = en->type == TAR_DIR ? 0 : refuse(x, "is not a directory", e);
	else
		r = put_entry(x, e);
	x->entries += r == 0;
	return r;
}

static int start(struct extract *x, struct err *e)
{
	int fd = fcntl(x->root, F_DUPFD_CLOEXEC, 3);

	if (fd < 0 || getrandom(&x->temp, sizeof(x->temp), 0) != (ssize_t)sizeof(x->temp))
		return fd_close(fd), err_errno(e, "cannot start to unpack");
	x->tar = (struct tar){ .read = read_archive, .arg = x, .relative = true };
	x->levels[0] = (struct extract_level){ .fd = fd };
	x->n_levels = 1;
	(void)umask(0);
	return 0;
}

int extract_archive(struct extract *x, struct err *e)
{
	int r = start(x, e), left;

	if (r < 0)
		return r;
	while ((r = tar_next(&x->tar, &x->entry, e)) > 0) {
		r = take_entry(x, e);
		if (r < 0)
			break;
	}
	left = extract_leave(x, 0);
	if (r == 0 && left < 0)
		r = err_set(e, left, "cannot set modes and times of directories: %s",
			    strerror(-left));
	return r;
}
