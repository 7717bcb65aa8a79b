/* SPDX-License-Identifier: Apache-2.0 */
#include "ca-store/ca-file.h"

#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"

#define TEMPORARY ".hutch-ca.tmp"

enum {
	LINKS_MAX = 8,
};

bool ca_file_missing(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -EXDEV;
}

int ca_file_dir(int root, const char *path, int *ret)
{
	int fd = path_open_in_mount(root, path, O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return fd;
	*ret = fd;
	return 0;
}

/* ---- changing a directory ---- */

/*
 * PID 1 has no right to ignore modes. The directory's owner may change the mode anyway, so make the
 * directory writable; the caller restores the mode that this function returns, if it is not 0.
 */
static mode_t unlock(int dir)
{
	struct stat st;

	if (fstat(dir, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & S_IWUSR))
		return 0;
	return fchmod(dir, (st.st_mode & 07777) | S_IWUSR) == 0 ? st.st_mode : 0;
}

static void lock(int dir, mode_t mode)
{
	if (mode != 0)
		(void)!fchmod(dir, mode & 07777);
}

static int fill(int fd, const struct stat *as, const char *data, size_t n)
{
	int r = fd_write_all(fd, data, n);

	if (r == 0 && fchmod(fd, as->st_mode & 0777) < 0)
		r = -errno;
	/* The owner of the old file may have no number here. Readable is good enough. */
	if (r == 0 && (as->st_uid != geteuid() || as->st_gid != getegid()))
		(void)!fchown(fd, as->st_uid, as->st_gid);
	return r;
}

static int drop_temporary(int dir)
{
	return unlinkat(dir, TEMPORARY, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int put_in_place(int dir, const char *name, int r)
{
	if (r == 0 && renameat(dir, TEMPORARY, dir, name) < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(dir, TEMPORARY, 0);
	return r;
}

int ca_file_replace(int dir, const char *name, const struct stat *as, const char *data, size_t n)
{
	const mode_t mode = unlock(dir);
	_cleanup_close_ int fd = -EBADF;
	int r = drop_temporary(dir);

	if (r == 0) {
		fd = RETRY_EINTR(openat(dir, TEMPORARY,
					O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
					0600));
		r = fd < 0 ? -errno : put_in_place(dir, name, fill(fd, as, data, n));
	}
	lock(dir, mode);
	return r;
}

static bool is_link_to(int dir, const char *name, const char *target)
{
	char old[PATH_MAX];
	ssize_t k = readlinkat(dir, name, old, sizeof(old));

	return k >= 0 && (size_t)k == strlen(target) && memcmp(old, target, (size_t)k) == 0;
}

int ca_file_link(int dir, const char *name, const char *target)
{
	mode_t mode;
	int r;

	if (is_link_to(dir, name, target))
		return 0;
	mode = unlock(dir);
	r = drop_temporary(dir);
	if (r == 0)
		r = symlinkat(target, dir, TEMPORARY) < 0 ? -errno : put_in_place(dir, name, 0);
	lock(dir, mode);
	return r;
}

/* ---- files ---- */

struct stat ca_file_new(void)
{
	return (struct stat){ .st_mode = 0644, .st_uid = geteuid(), .st_gid = getegid() };
}

int ca_file_read(int dir, const char *name, struct buf *b, struct stat *ret)
{
	_cleanup_close_ int fd = -EBADF;

	/* Opening a device may have effects, so look first. */
	if (fstatat(dir, name, ret, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(ret->st_mode))
		return -ENOENT;
	fd = path_open_in_mount(dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW, 0);
	if (fd < 0)
		return fd;
	if (fstat(fd, ret) < 0)
		return -errno;
	return S_ISREG(ret->st_mode) ? fd_read_all(fd, b) : -ENOENT;
}

int ca_file_put(int dir, const char *name, const char *data, size_t n)
{
	_cleanup_buf_ struct buf old = BUF_INIT(n);
	const struct stat as = ca_file_new();
	struct stat st;

	if (ca_file_read(dir, name, &old, &st) == 0 && old.len == n &&
	    memcmp(buf_text(&old), data, n) == 0 && (st.st_mode & 0777) == as.st_mode)
		return 0;
	return ca_file_replace(dir, name, &as, data, n);
}

/* ---- places ---- */

void ca_place_done(struct ca_place *p)
{
	p->dir = fd_close(p->dir);
}

/* Opens the directory of `path`. */
static int open_parent(int root, const char *path, struct ca_place *p)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	char parent[PATH_MAX];

	if (!*name || str_eq(name, ".") || str_eq(name, "..") || strlen(name) > NAME_MAX)
		return -ENOENT;
	(void)snprintf(parent, sizeof(parent), "%.*s", (int)(name - path), path);
	memcpy(p->name, name, strlen(name) + 1);
	return ca_file_dir(root, slash ? parent : ".", &p->dir);
}

int ca_place_find(int root, const char *path, struct ca_place *ret)
{
	char at[PATH_MAX], link[PATH_MAX], next[PATH_MAX];

	ret->dir = -EBADF;
	(void)snprintf(at, sizeof(at), "%s", path);
	for (int i = 0; i < LINKS_MAX; i++) {
		const char *slash;
		ssize_t k;
		int r, n;

		ca_place_done(ret);
		r = open_parent(root, at, ret);
		if (r < 0)
			return r;
		k = readlinkat(ret->dir, ret->name, link, sizeof(link) - 1);
		if (k < 0)
			return errno == EINVAL ? 0 : -errno;
		link[k] = '\0';
		slash = strrchr(at, '/');
		n = snprintf(next, sizeof(next), "%.*s%s",
			     link[0] == '/' || !slash ? 0 : (int)(slash + 1 - at), at, link);
		if (n < 0 || (size_t)n >= sizeof(next))
			return -ENOENT;
		memcpy(at, next, sizeof(at));
	}
	return -ELOOP;
}
