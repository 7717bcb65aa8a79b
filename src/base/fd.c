/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/path.h"

enum {
	READ_CHUNK = 64 * 1024,
	LINE_MAX_BYTES = 4096
};

int fd_write_all(int fd, const void *data, size_t n)
{
	const char *p = data;

	while (n > 0) {
		ssize_t k = write(fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

int fd_read_all(int fd, struct buf *b)
{
	for (;;) {
		/* Once the buffer is full, one more byte distinguishes "full" from "too large". */
		size_t want = MIN((size_t)READ_CHUNK, b->max - b->len);
		char spare = 0, *p = want > 0 ? buf_reserve(b, want) : &spare;
		ssize_t k;

		if (!p)
			return b->err;
		k = read(fd, p, MAX(want, (size_t)1));
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			return 0;
		if (want == 0)
			return -EFBIG;
		buf_commit(b, (size_t)k);
	}
}

static int open_regular(int dirfd, const char *path, int *ret_fd)
{
	_cleanup_close_ int fd = -EBADF;
	struct stat st;

	/* O_NONBLOCK so that opening a FIFO does not wait for its other end. */
	fd = RETRY_EINTR(openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int fd_read_file(int dirfd, const char *path, struct buf *b, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r = open_regular(dirfd, path, &fd);

	if (r == -EINVAL)
		return err_set(e, r, "cannot read '%s': not a regular file", path);
	if (r == 0)
		r = fd_read_all(fd, b);
	if (r == -EFBIG)
		return err_set(e, r, "cannot read '%s': larger than %zu bytes", path, b->max);
	if (r < 0)
		return err_set(e, r, "cannot read '%s': %s", path, strerror(-r));
	return 0;
}

int fd_read_line(int dirfd, const char *path, char *out, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(LINE_MAX_BYTES);
	_cleanup_close_ int fd = -EBADF;
	size_t len;
	int r = open_regular(dirfd, path, &fd);

	if (r == 0)
		r = fd_read_all(fd, &b);
	if (r < 0)
		return r;
	len = strcspn(buf_text(&b), "\n");
	if (len >= n)
		return -EFBIG;
	memcpy(out, buf_text(&b), len);
	out[len] = '\0';
	return 0;
}

static int write_temporary(int dirfd, const char *tmp, mode_t mode, const void *data, size_t n)
{
	_cleanup_close_ int fd = -EBADF;
	int r;

	fd = RETRY_EINTR(
		openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
	if (fd < 0)
		return -errno;
	/* Set the requested mode despite the umask. */
	if (fchmod(fd, mode) < 0)
		return -errno;
	r = fd_write_all(fd, data, n);
	if (r < 0)
		return r;
	return RETRY_EINTR(fsync(fd)) < 0 ? -errno : 0;
}

static int sync_parent(int dirfd, const char *path)
{
	_cleanup_close_ int fd = -EBADF;
	char parent[PATH_MAX];
	int r = path_parent(path, parent, sizeof(parent));

	if (r < 0)
		return r;
	fd = RETRY_EINTR(openat(dirfd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0 || RETRY_EINTR(fsync(fd)) < 0)
		return -errno;
	return 0;
}

int fd_replace_file(int dirfd, const char *path, mode_t mode, const void *data, size_t n,
		    struct err *e)
{
	char tmp[PATH_MAX];
	uint64_t nonce = 0;
	int r;

	if (RETRY_EINTR(getrandom(&nonce, sizeof(nonce), 0)) != (ssize_t)sizeof(nonce))
		return err_errno(e, "cannot write '%s'", path);
	r = snprintf(tmp, sizeof(tmp), "%s.%016llx.tmp", path, (unsigned long long)nonce);
	if (r < 0 || (size_t)r >= sizeof(tmp))
		return err_set(e, -ENAMETOOLONG, "cannot write '%s': name too long", path);
	r = write_temporary(dirfd, tmp, mode, data, n);
	if (r == 0 && renameat(dirfd, tmp, dirfd, path) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(dirfd, tmp, 0);
		return err_set(e, r, "cannot write '%s': %s", path, strerror(-r));
	}
	r = sync_parent(dirfd, path);
	if (r < 0)
		return err_set(e, r, "cannot sync the directory of '%s': %s", path, strerror(-r));
	return 0;
}

static int compare_fds(const void *a, const void *b)
{
	const int *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int close_between(int first, int last)
{
	if (first > last)
		return 0;
	return syscall(SYS_close_range, (unsigned int)first, (unsigned int)last, 0) < 0 ? -errno
											: 0;
}

int fd_close_others(int first, int *kept, size_t n)
{
	int r = 0;

	qsort(kept, n, sizeof(kept[0]), compare_fds);
	for (size_t i = 0; i < n && r == 0; i++) {
		if (kept[i] < first)
			continue;
		r = close_between(first, kept[i] - 1);
		first = kept[i] + 1;
	}
	return r == 0 ? close_between(first, INT32_MAX) : r;
}

DIR *fd_list(int fd)
{
	int copy = RETRY_EINTR(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	DIR *d = copy < 0 ? NULL : fdopendir(copy);

	if (!d)
		(void)fd_close(copy);
	return d;
}

int fd_pipe(int flags, int *ret_from, int *ret_to)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC | flags) < 0)
		return -errno;
	*ret_from = fds[0];
	*ret_to = fds[1];
	return 0;
}

int fd_socket_pair(int type, int *ret_a, int *ret_b)
{
	int pair[2];

	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	*ret_a = pair[0];
	*ret_b = pair[1];
	return 0;
}
