/* SPDX-License-Identifier: Apache-2.0 */
/* Copies disks. Most of a disk is a hole, and so is most of its copy. */
#include "snapshot/disk-copy.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/path.h"
#include "base/util.h"

#define MIB UINT64_C(1048576)

enum {
	METADATA_SHARE = 64, /* more than the extents of a fragmented file take on ext4 */
	METADATA_MIB = 64,   /* at most */
};

static int copy_range(int from, int to, off_t at, off_t end)
{
	while (at < end) {
		off_t out = at;
		ssize_t k =
			RETRY_EINTR(copy_file_range(from, &at, to, &out, (size_t)(end - at), 0));

		if (k < 0)
			return -errno;
		if (k == 0)
			return -EIO; /* another process truncated it */
	}
	return 0;
}

/* Copies everything but holes. */
static int copy_data(int from, int to, off_t size)
{
	off_t at = 0, end;
	int r = 0;

	while (r == 0 && at < size) {
		at = lseek(from, at, SEEK_DATA);
		if (at < 0)
			return errno == ENXIO ? 0 : -errno; /* a hole up to the end */
		end = lseek(from, at, SEEK_HOLE);
		if (end < 0)
			return -errno;
		r = copy_range(from, to, at, end);
		at = end;
	}
	return r;
}

int disk_copy(int from, int to, struct err *e)
{
	struct stat st;
	int r = 0;

	if (ioctl(to, FICLONE, from) == 0) /* not every file system supports it */
		return 0;
	if (fstat(from, &st) < 0 || ftruncate(to, st.st_size) < 0)
		r = -errno;
	if (r == 0)
		r = copy_data(from, to, st.st_size);
	return r < 0 ? err_set(e, r, "cannot copy a disk: %s", strerror(-r)) : 0;
}

/* A reflinked copy shares its blocks with the original (xfs): writing one would need room. */
static int allocate(int disk, off_t size)
{
	int r = RETRY_EINTR(
		fallocate(disk, FALLOC_FL_KEEP_SIZE | FALLOC_FL_UNSHARE_RANGE, 0, size));

	if (r < 0 && errno == EOPNOTSUPP)
		r = RETRY_EINTR(fallocate(disk, FALLOC_FL_KEEP_SIZE, 0, size));
	return r < 0 ? -errno : 0;
}

static uint64_t free_room(const struct statvfs *fs)
{
	return (uint64_t)fs->f_bavail * fs->f_frsize;
}

static uint64_t headroom(const struct statvfs *fs)
{
	return MAX(DISK_HEADROOM, (uint64_t)fs->f_blocks * fs->f_frsize / DISK_HEADROOM_SHARE);
}

static int no_room(const char *where, uint64_t size, const struct statvfs *fs, uint64_t need,
		   struct err *e)
{
	const uint64_t free = free_room(fs), keep = headroom(fs);
	const uint64_t lack = need + keep - MIN(free, need + keep);

	return err_set(e, -ENOSPC,
		       "no room for a disk of %llu MiB in %.64s: %llu MiB are free, and %llu MiB "
		       "must stay free; free %llu MiB more, use a smaller --disk, or set "
		       "disk_overcommit: true in host.yaml",
		       (unsigned long long)(size / MIB), where, (unsigned long long)(free / MIB),
		       (unsigned long long)(keep / MIB),
		       (unsigned long long)((lack + MIB - 1) / MIB));
}

int disk_no_room(const char *where, uint64_t size, struct err *e)
{
	struct statvfs fs = { 0 };

	(void)statvfs(where, &fs);
	return no_room(where, size, &fs, size, e);
}

/* Looks again after the allocation: another process may have taken room since the first look. The
 * allocation itself takes some more than `need`: the file system describes the blocks. */
static int check_headroom(int disk, const struct statvfs *before, uint64_t need)
{
	struct statvfs fs;

	if (fstatvfs(disk, &fs) < 0)
		return -errno;
	return free_room(&fs) + MIN(need / METADATA_SHARE, METADATA_MIB * MIB) < headroom(before)
		       ? -ENOSPC
		       : 0;
}

int disk_reserve(int disk, const char *where, struct err *e)
{
	struct statvfs fs;
	struct stat st;
	uint64_t need;
	int r;

	if (fstat(disk, &st) < 0 || fstatvfs(disk, &fs) < 0)
		return err_errno(e, "cannot look at the sandbox's disk");
	need = (uint64_t)st.st_size - MIN((uint64_t)st.st_size, (uint64_t)st.st_blocks * 512);
	r = need + headroom(&fs) > free_room(&fs) ? -ENOSPC : allocate(disk, st.st_size);
	if (r == 0)
		r = check_headroom(disk, &fs, need);
	if (r == -ENOSPC)
		return no_room(where, (uint64_t)st.st_size, &fs, need, e);
	return r < 0 ? err_set(e, r,
			       "cannot reserve room for a disk in %.80s: %s; use another file "
			       "system, "
			       "or set disk_overcommit: true in host.yaml",
			       where, strerror(-r))
		     : 0;
}

int disk_new(int dir, int from, int *ret_fd, struct err *e)
{
	_cleanup_close_ int to =
		RETRY_EINTR(openat(dir, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
	int r = to < 0 ? err_errno(e, "cannot create the sandbox's disk") : disk_copy(from, to, e);

	if (r == 0)
		*ret_fd = TAKE_FD(to);
	return r;
}

int disk_new_from(int dir, const char *path, int *ret_fd, struct err *e)
{
	_cleanup_close_ int from = RETRY_EINTR(open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));

	return from < 0 ? err_errno(e, "cannot open '%.150s'", path)
			: disk_new(dir, from, ret_fd, e);
}

int disk_new_beside(const char *path, int *ret_fd, struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	char parent[PATH_MAX];

	if (path_parent(path, parent, sizeof(parent)) < 0)
		return err_set(e, -ENAMETOOLONG, "the path '%.150s' is too long", path);
	dir = RETRY_EINTR(open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	return dir < 0 ? err_errno(e, "cannot open '%.150s'", parent)
		       : disk_new_from(dir, path, ret_fd, e);
}
