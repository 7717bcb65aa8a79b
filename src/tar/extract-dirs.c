/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stack of open directories from the root to the current one. An entry in the current directory
 * needs no lookup, an entry elsewhere only the components that differ. Each step is one openat(2)
 * of one component with O_NOFOLLOW, so a link that another process creates in the path, at any
 * time, is rejected and never followed. A created directory gets its mode, which may forbid
 * writing, and its time when it is left.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "tar/extract.h"

static struct extract_level *top(struct extract *x)
{
	return &x->levels[x->n_levels - 1];
}

static int leave_one(struct extract_level *l)
{
	const struct timespec t[2] = { { .tv_nsec = UTIME_NOW }, { .tv_sec = (time_t)l->mtime } };
	int r = 0;

	if (l->fresh && fchmod(l->fd, l->mode) < 0)
		r = -errno;
	if (r == 0 && l->fresh && l->has_times && futimens(l->fd, t) < 0)
		r = -errno;
	l->fd = fd_close(l->fd);
	return r;
}

int extract_leave(struct extract *x, size_t n)
{
	int r = 0;

	while (x->n_levels > n) {
		int k = leave_one(top(x));

		x->n_levels--;
		r = r < 0 ? r : k;
	}
	if (x->n_levels > 0)
		x->dir[top(x)->len] = '\0';
	return r;
}

/* Number of levels, with the root, that are on the path of the first `len` bytes of `name`. */
static size_t common(const struct extract *x, const char *name, size_t len)
{
	size_t n = 1;

	while (n < x->n_levels) {
		size_t l = x->levels[n].len;

		if (l > len || memcmp(x->dir, name, l) != 0 || (l < len && name[l] != '/'))
			break;
		n++;
	}
	return n;
}

/* Error of a failed openat(): -ELOOP for a symbolic link, for which openat() gives ENOTDIR. */
static int not_entered(int fd, const char *part, int err)
{
	struct stat st;

	if (err == ENOTDIR && fstatat(fd, part, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISLNK(st.st_mode))
		return -ELOOP;
	return -err;
}

/* Enters `part`, the last component of the first `len` bytes of `name`; creates it if missing. */
static int descend(struct extract *x, const char *name, const char *part, size_t len)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	int above = top(x)->fd, fd = RETRY_EINTR(openat(above, part, flags));
	bool fresh = false;

	if (x->n_levels == EXTRACT_LEVELS)
		return -ENAMETOOLONG;
	if (fd < 0 && errno == ENOENT) {
		if (mkdirat(above, part, 0700) < 0)
			return -errno;
		fresh = true;
		fd = RETRY_EINTR(openat(above, part, flags));
	}
	if (fd < 0)
		return not_entered(above, part, errno);
	memcpy(x->dir, name, len);
	x->dir[len] = '\0';
	x->levels[x->n_levels++] =
		(struct extract_level){ .fd = fd, .len = len, .fresh = fresh, .mode = 0755 };
	return 0;
}

/* Makes the directory named by the first `len` bytes of `name` the current one. */
static int walk_to(struct extract *x, const char *name, size_t len)
{
	char part[TAR_PART_MAX + 1];
	int r = extract_leave(x, common(x, name, len));
	size_t at = top(x)->len;

	while (r == 0 && at < len) {
		const char *from = name + at + (at > 0 ? 1 : 0), *slash = strchr(from, '/');
		size_t n = slash && slash < name + len ? (size_t)(slash - from)
						       : (size_t)(name + len - from);

		memcpy(part, from, n);
		part[n] = '\0';
		at = (size_t)(from - name) + n;
		r = descend(x, name, part, at);
	}
	return r;
}

int extract_parent(struct extract *x, const char *name, const char **ret_base)
{
	const char *slash = strrchr(name, '/');
	int r = walk_to(x, name, slash ? (size_t)(slash - name) : 0);

	*ret_base = slash ? slash + 1 : name;
	return r < 0 ? r : top(x)->fd;
}

int extract_enter(struct extract *x, const char *name, mode_t mode, uint64_t mtime)
{
	int r = walk_to(x, name, strlen(name));

	if (r < 0)
		return r;
	top(x)->mode = mode;
	top(x)->mtime = mtime;
	top(x)->has_times = true;
	return 0;
}
