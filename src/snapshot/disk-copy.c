/* SPDX-License-Identifier: Apache-2.0 */
/* Copies disks. Most of a disk is a hole, and so is most of its copy. */
#include "snapshot/disk-copy.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/util.h"

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
