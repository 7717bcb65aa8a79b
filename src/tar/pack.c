/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The archive is built in one buffer, into which files are read directly. The buffer is flushed
 * when the next header or READ_MIN bytes may not fit. The walk is recursive, to at most
 * TAR_DEPTH_MAX levels, each of which holds one open directory.
 */
#include "tar/pack.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"

enum {
	MOVE_MIN = 256 * 1024,
	READ_MIN = 64 * 1024, /* free buffer space ensured before each read */
	OPEN_FLAGS = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
};

static int pack_one(struct pack *p, int dirfd, const char *path, size_t len, unsigned int depth);

/* ---- the buffer ---- */

static int flush(struct pack *p)
{
	int r = p->used > 0 ? p->write(p->arg, p->out, p->used) : 0;

	p->used = 0;
	if (r == 0 && p->tick)
		p->tick(p);
	return r;
}

static int room(struct pack *p, size_t n)
{
	return sizeof(p->out) - p->used < n ? flush(p) : 0;
}

static int zeros(struct pack *p, uint64_t n)
{
	int r = 0;

	while (r == 0 && n > 0) {
		size_t part = (size_t)MIN(n, (uint64_t)READ_MIN);

		r = room(p, part);
		if (r == 0)
			memset(p->out + p->used, 0, part);
		p->used += r == 0 ? part : 0;
		n -= part;
	}
	return r;
}

/* ---- one entry ---- */

static int failed(struct pack *p, const char *why)
{
	if (p->failed++ == 0)
		(void)snprintf(p->first, sizeof(p->first), "'%.150s': %s", p->name, why);
	return 0;
}

/* Counts the error in errno. A root tree is in use, so its files may vanish. */
static int unreadable(struct pack *p)
{
	return p->owners && errno == ENOENT ? 0 : failed(p, strerror(errno));
}

static uint64_t mtime_of(const struct stat *st)
{
	return st->st_mtim.tv_sec > 0 ? (uint64_t)st->st_mtim.tv_sec : 0;
}

static int header(struct pack *p, const struct stat *st, enum tar_type type, const char *link)
{
	struct tar_item item = { .type = type,
				 .name = p->name,
				 .link = link,
				 .mode = st->st_mode & 01777,
				 .size = type == TAR_FILE ? (uint64_t)st->st_size : 0,
				 .uid = p->owners ? st->st_uid : 0,
				 .gid = p->owners ? st->st_gid : 0,
				 .mtime = mtime_of(st) };
	int r = room(p, TAR_HEADER_MAX);
	size_t n;

	if (r < 0)
		return r;
	if (item.uid > PACK_ID_MAX || item.gid > PACK_ID_MAX)
		return failed(p, "an image has no such owner");
	n = tar_write_header(&item, p->out + p->used);
	if (n == 0)
		return failed(p, "the name is too long");
	p->used += n;
	p->entries++;
	p->setids += type != TAR_SYMLINK && (st->st_mode & (S_ISUID | S_ISGID)) != 0;
	return 1;
}

/* Splices a large file to the pipe without copying it; *left is reduced, contents() does the rest.
 */
static int move(struct pack *p, int fd, uint64_t *left)
{
	int r = p->pipe >= 0 && *left >= MOVE_MIN ? flush(p) : 0;

	while (r == 0 && p->pipe >= 0 && *left >= MOVE_MIN) {
		ssize_t k = RETRY_EINTR(splice(fd, NULL, p->pipe, NULL, (size_t)*left, 0));

		if (k <= 0) /* end of file, reader gone or not supported: see contents() */
			break;
		p->bytes += (uint64_t)k;
		*left -= (uint64_t)k;
	}
	return r;
}

/* Writes exactly the header's `size` bytes, even if the file changes: pads with zeros. */
static int contents(struct pack *p, int fd, uint64_t size)
{
	uint64_t left = size;
	int r = move(p, fd, &left);

	while (r == 0 && left > 0) {
		ssize_t k;

		r = room(p, MIN(left, (uint64_t)READ_MIN));
		if (r < 0)
			return r;
		k = RETRY_EINTR(read(fd, p->out + p->used,
				     MIN(left, (uint64_t)(sizeof(p->out) - p->used))));
		if (k <= 0) {
			(void)failed(p,
				     k < 0 ? strerror(errno) : "became shorter while it was read");
			break;
		}
		p->used += (size_t)k;
		p->bytes += (uint64_t)k;
		left -= (uint64_t)k;
	}
	if (r == 0)
		r = zeros(p, left);
	return r < 0 ? r : zeros(p, tar_padding(size));
}

static int special(struct pack *p)
{
	p->special++;
	return 0;
}

static int pack_file(struct pack *p, int dirfd, const char *path)
{
	_cleanup_close_ int fd = RETRY_EINTR(openat(dirfd, path, OPEN_FLAGS));
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return unreadable(p);
	if (!S_ISREG(st.st_mode)) /* replaced since fstatat() */
		return special(p);
	if (p->blank && str_eq(p->name, p->blank))
		st.st_size = 0;
	r = header(p, &st, TAR_FILE, NULL);
	return r <= 0 ? r : contents(p, fd, (uint64_t)st.st_size);
}

static int pack_link(struct pack *p, int dirfd, const char *path, const struct stat *st)
{
	ssize_t n = readlinkat(dirfd, path, p->link, sizeof(p->link));
	int r;

	if (n < 0)
		return unreadable(p);
	if ((size_t)n >= sizeof(p->link))
		return failed(p, "the target is too long");
	p->link[n] = '\0';
	r = header(p, st, TAR_SYMLINK, p->link);
	return MIN(r, 0);
}

/* ---- directories ---- */

static int pack_child(struct pack *p, DIR *d, const char *name, size_t len, unsigned int depth)
{
	size_t n = strlen(name), slash = len > 0 ? 1 : 0;
	int r;

	if (str_eq(name, ".") || str_eq(name, ".."))
		return 0;
	if (len + slash + n > TAR_NAME_MAX || depth >= TAR_DEPTH_MAX)
		return failed(p, "names in it are too long, or too deep");
	if (slash)
		p->name[len] = '/';
	memcpy(p->name + len + slash, name, n + 1);
	r = pack_one(p, dirfd(d), name, len + slash + n, depth + 1);
	p->name[len] = '\0';
	return r;
}

/* `len`: length of the directory's own name; 0 for "." */
static int pack_dir(struct pack *p, int dirfd_, const char *path, size_t len, unsigned int depth)
{
	int fd = RETRY_EINTR(openat(dirfd_, path, OPEN_FLAGS | O_DIRECTORY));
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	struct stat st;
	int r;

	if (!d || fstat(fd, &st) < 0) {
		r = unreadable(p);
		(void)(d ? closedir(d) : fd_close(fd));
		return r;
	}
	r = header(p, &st, TAR_DIR, NULL);
	if (len == 0)
		p->name[0] = '\0';
	for (errno = 0; r > 0 && (entry = readdir(d)); errno = 0)
		r = pack_child(p, d, entry->d_name, len, depth) < 0 ? -EPIPE : 1;
	if (r > 0 && errno != 0)
		r = failed(p, strerror(errno));
	(void)closedir(d);
	return MIN(r, 0);
}

/* Is this a mount point? Kernels without STATX_ATTR_MOUNT_ROOT leave only is_passing(). */
static bool is_mount(int dirfd, const char *path)
{
	struct statx sx;

	return statx(dirfd, path, AT_SYMLINK_NOFOLLOW, 0, &sx) == 0 &&
	       (sx.stx_attributes & sx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* Does the directory of a root tree have contents that belong to a sandbox and not to the image? */
static bool is_passing(const char *name)
{
	static const char *const names[] = { "dev", "proc", "sys", "tmp" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_eq(name, names[i]))
			return true;
	return false;
}

/* Packs an empty directory. A mount hides the directory's own mode and owner: use defaults. */
static int pack_hollow(struct pack *p, const struct stat *st, bool mounted)
{
	struct stat plain = *st;

	if (mounted) {
		plain.st_mode = S_IFDIR | 0755;
		plain.st_uid = plain.st_gid = 0;
	}
	return MIN(header(p, &plain, TAR_DIR, NULL), 0);
}

static int pack_one(struct pack *p, int dirfd, const char *path, size_t len, unsigned int depth)
{
	bool mounted = p->owners && depth > 0 && is_mount(dirfd, path);
	struct stat st;

	if (fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return unreadable(p);
	if (p->owners && S_ISDIR(st.st_mode) && (mounted || (depth == 1 && is_passing(p->name))))
		return pack_hollow(p, &st, mounted);
	if (mounted)
		return special(p);
	/* Skip sockets and pid files, but keep directories: the image's programs expect them. */
	if (p->owners && !S_ISDIR(st.st_mode) && str_has_prefix(p->name, "run/"))
		return 0;
	if (S_ISREG(st.st_mode))
		return pack_file(p, dirfd, path);
	if (S_ISLNK(st.st_mode))
		return pack_link(p, dirfd, path, &st);
	return S_ISDIR(st.st_mode) ? pack_dir(p, dirfd, path, len, depth) : special(p);
}

int pack_tree(struct pack *p, int dirfd, const char *path, const char *top, struct err *e)
{
	size_t len = str_eq(top, ".") ? 0 : strlen(top);
	int r;

	if (len > TAR_NAME_MAX)
		return err_set(e, -ENAMETOOLONG, "'%.100s...': the name is too long", path);
	memcpy(p->name, top, strlen(top) + 1);
	r = pack_one(p, dirfd, path, len, len > 0 ? 1 : 0);
	if (r == 0 && p->entries == 0 && p->special > 0)
		return err_set(e, -EINVAL,
			       "'%.150s' is neither a file, nor a directory, nor a symbolic link",
			       path);
	if (r == 0 && p->entries == 0)
		return err_set(e, -EACCES, "cannot read %s", p->first);
	if (r == 0)
		r = zeros(p, TAR_END);
	if (r == 0)
		r = flush(p);
	return r < 0 ? err_set(e, r, "the receiver no longer accepts the archive") : 0;
}

void pack_note(const struct pack *p, char *out, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	if (p->failed > 0)
		(void)buf_printf(&b, "%llu could not be read (%s)", (unsigned long long)p->failed,
				 p->first);
	if (p->special > 0)
		(void)buf_printf(&b, "%s%llu left out (sockets, FIFOs, devices)",
				 b.len > 0 ? "; " : "", (unsigned long long)p->special);
	if (p->setids > 0)
		(void)buf_printf(&b, "%s%llu without their set-ID bits", b.len > 0 ? "; " : "",
				 (unsigned long long)p->setids);
	(void)snprintf(out, n, "%s", buf_text(&b));
}
