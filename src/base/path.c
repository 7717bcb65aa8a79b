/* SPDX-License-Identifier: Apache-2.0 */
#include "base/path.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fd.h"

enum {
	OPEN_TRIES = 128
};

static int open_how(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
	bool creates = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
	struct open_how how = {
		.flags = (uint64_t)(unsigned int)(flags | O_CLOEXEC),
		.mode = creates ? mode : 0,
		.resolve = resolve,
	};
	long fd = -1;

	/*
	 * EAGAIN: a rename or mount raced with the lookup of "..", and openat2(2) advises to retry.
	 * Limited, because a process that renames in a loop or holds a lease on the file could
	 * block us.
	 */
	errno = EAGAIN;
	for (int i = 0; fd < 0 && errno == EAGAIN && i < OPEN_TRIES; i++)
		fd = RETRY_EINTR(syscall(SYS_openat2, dirfd, path, &how, sizeof(how)));
	return fd < 0 ? -errno : (int)fd;
}

int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode)
{
	return open_how(dirfd, path, flags, mode, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
}

int path_open_in_root(int dirfd, const char *path, int flags, mode_t mode)
{
	return open_how(dirfd, path, flags, mode, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

int path_open_in_mount(int dirfd, const char *path, int flags, mode_t mode)
{
	return open_how(dirfd, path, flags, mode,
			RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV);
}

int path_open_nofollow(int dirfd, const char *path, int flags, mode_t mode)
{
	return open_how(dirfd, path, flags, mode, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
}

int path_mkdirs(int dirfd, const char *path, mode_t mode)
{
	_cleanup_close_ int at = -EBADF;
	char part[NAME_MAX + 1];

	if (path[0] == '/')
		return -EINVAL;
	at = path_open_nofollow(dirfd, ".", O_PATH | O_DIRECTORY, 0);
	while (at >= 0 && *path) {
		size_t len = strcspn(path, "/");
		int next;

		if (len > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(part, path, len);
		part[len] = '\0';
		path += len + strspn(path + len, "/");
		if (mkdirat(at, part, mode) < 0 && errno != EEXIST)
			return -errno;
		next = path_open_nofollow(at, part, O_PATH | O_DIRECTORY, 0);
		(void)fd_close(at);
		at = next;
	}
	return at < 0 ? at : 0;
}

int path_replace(int dirfd, const char *dir, const char *name, mode_t mode, const char *text,
		 size_t n)
{
	_cleanup_close_ int at = -EBADF, fd = -EBADF;
	int r = path_mkdirs(dirfd, dir, 0755);

	if (r < 0)
		return r;
	at = path_open_nofollow(dirfd, dir, O_RDONLY | O_DIRECTORY, 0);
	if (at < 0)
		return at;
	if (unlinkat(at, name, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	return fd < 0 ? -errno : fd_write_all(fd, text, n);
}
