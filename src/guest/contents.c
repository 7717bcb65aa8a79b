/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes files in a worker. A write goes to a temporary file beside its target; a rename
 * makes the complete file visible at once.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "guest/worker.h"

enum {
	LINKS_MAX = 40, /* the kernel's limit, see path_resolution(7) */
	BUFFER = 64 * 1024,
};

static char buffer[BUFFER];

static int not_regular(struct worker *w, mode_t mode)
{
	if (S_ISDIR(mode))
		return fail_with(&w->fail, WIRE_IS_DIRECTORY, "'%.180s' is a directory", w->path);
	return fail_with(&w->fail, WIRE_INVALID, "'%.180s' is not a regular file", w->path);
}

/* Checks the type before it opens the file, because opening a device may have effects, and again
 * afterwards, because the file may have been replaced. */
static int open_regular(struct worker *w, int *ret_fd, struct stat *ret)
{
	_cleanup_close_ int fd = -EBADF;
	struct stat st;

	if (stat(w->path, &st) < 0)
		return worker_fail(w, "read");
	if (!S_ISREG(st.st_mode))
		return not_regular(w, st.st_mode);
	fd = open(w->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return worker_fail(w, "read");
	if (!S_ISREG(st.st_mode))
		return not_regular(w, st.st_mode);
	*ret_fd = TAKE_FD(fd);
	*ret = st;
	return 0;
}

int worker_read(struct worker *w)
{
	uint64_t left = fields_number(w->fields, TAG_LENGTH, UINT64_MAX);
	off_t offset = (off_t)fields_number(w->fields, TAG_OFFSET, 0);
	_cleanup_close_ int fd = -EBADF;
	struct stat st;

	if (open_regular(w, &fd, &st) < 0)
		return -1;
	if (offset > 0 && lseek(fd, offset, SEEK_SET) < 0)
		return worker_fail(w, "read");
	if (worker_send(w, PACKET_ACCEPT, AT_FDCWD, w->path, w->path, &st) < 0)
		return -1;
	while (left > 0) {
		ssize_t k = RETRY_EINTR(read(fd, buffer, MIN(left, (uint64_t)sizeof(buffer))));

		if (k < 0)
			return worker_fail(w, "read");
		if (k == 0)
			break;
		if (fd_write_all(w->pipe, buffer, (size_t)k) < 0)
			return fail_with(&w->fail, WIRE_IO, "the reader is gone");
		left -= (uint64_t)k;
	}
	return 0;
}

/* Follows symbolic links at the end of w->path, also dangling ones, into w->target. */
static int follow(struct worker *w)
{
	char link[WORKER_PATH_MAX], joined[WORKER_PATH_MAX];

	memcpy(w->target, w->path, sizeof(w->target));
	for (unsigned int i = 0; i < LINKS_MAX; i++) {
		ssize_t k = readlink(w->target, link, sizeof(link) - 1);
		const char *slash = strrchr(w->target, '/');
		int n;

		if (k < 0)
			return 0;
		link[k] = '\0';
		n = snprintf(joined, sizeof(joined), "%.*s%s",
			     link[0] == '/' ? 0 : (int)(slash + 1 - w->target), w->target, link);
		if (n < 0 || (size_t)n >= sizeof(joined)) {
			errno = ENAMETOOLONG;
			return worker_fail(w, "write");
		}
		memcpy(w->target, joined, sizeof(joined));
	}
	errno = ELOOP;
	return worker_fail(w, "write");
}

/* Checks the old file at w->target: it must be a regular file that the user may write. */
static int look(struct worker *w, bool *ret_there, mode_t *ret_mode)
{
	struct stat st;

	*ret_there = false;
	*ret_mode = 0644;
	if (w->target[strlen(w->target) - 1] == '/')
		return not_regular(w, S_IFDIR);
	if (stat(w->target, &st) < 0)
		return errno == ENOENT ? 0 : worker_fail(w, "write");
	if (!S_ISREG(st.st_mode))
		return not_regular(w, st.st_mode);
	if (faccessat(AT_FDCWD, w->target, W_OK, AT_EACCESS) < 0)
		return worker_fail(w, "write");
	*ret_there = true;
	*ret_mode = st.st_mode & 07777;
	return 0;
}

static int make_temp(struct worker *w, bool there, char out[static WORKER_PATH_MAX], int *ret_fd)
{
	int dir = (int)(strrchr(w->target, '/') - w->target), n, fd;
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return worker_fail(w, "write");
	n = snprintf(out, WORKER_PATH_MAX, "%.*s/%s%016llx", dir, w->target,
		     there ? TEMP_OLD : TEMP_NEW, (unsigned long long)random);
	if (n < 0 || n >= WORKER_PATH_MAX) {
		errno = ENAMETOOLONG;
		return worker_fail(w, "write");
	}
	fd = open(out, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return worker_fail(w, "write");
	*ret_fd = fd;
	return 0;
}

/* Sets the metadata of a new file. Call it before the file's mode can lock out its own user. */
static int put_meta(struct worker *w, int fd)
{
	const char *value;
	size_t pos = 0, n;

	while (fields_next(w->fields, TAG_META, &pos, &value, &n)) {
		size_t key = (size_t)((const char *)memchr(value, '=', n) - value);
		char name[sizeof(META_PREFIX) + WIRE_META_KEY_MAX];

		(void)snprintf(name, sizeof(name), META_PREFIX "%.*s", (int)key, value);
		if (fsetxattr(fd, name, value + key + 1, n - key - 1, XATTR_CREATE) == 0)
			continue;
		if (errno != EEXIST)
			return worker_fail(w, "keep metadata with");
		return fail_with(&w->fail, WIRE_INVALID, "metadata has the key '%.*s' twice",
				 (int)key, value);
	}
	return 0;
}

/* Receives the contents. They are incomplete if the pipe ends without a byte on the socket. */
static int receive(struct worker *w, int fd)
{
	char word;

	for (;;) {
		ssize_t k = RETRY_EINTR(read(w->pipe, buffer, sizeof(buffer)));
		int r;

		if (k < 0)
			return worker_fail(w, "write");
		if (k == 0)
			break;
		r = fd_write_all(fd, buffer, (size_t)k);
		if (r < 0) {
			errno = -r;
			return worker_fail(w, "write");
		}
	}
	if (RETRY_EINTR(recv(w->control, &word, 1, 0)) != 1)
		return fail_with(&w->fail, WIRE_IO, "the contents were cut off");
	return 0;
}

static int fill(struct worker *w, const char *temp, int fd, mode_t mode)
{
	struct stat st;

	/* The final mode is set after the last write, because a write clears set-user-ID bits. */
	if (fchmod(fd, mode & 0777) < 0 || fstat(fd, &st) < 0)
		return worker_fail(w, "write");
	if (worker_send(w, PACKET_ACCEPT, AT_FDCWD, w->path, w->path, &st) < 0 ||
	    receive(w, fd) < 0)
		return -1;
	if (fchmod(fd, mode) < 0 || rename(temp, w->target) < 0 || fstat(fd, &st) < 0)
		return worker_fail(w, "write");
	return worker_send(w, PACKET_ENTRY, AT_FDCWD, w->path, w->path, &st);
}

int worker_write(struct worker *w)
{
	_cleanup_close_ int fd = -EBADF;
	char temp[WORKER_PATH_MAX];
	bool there;
	mode_t mode;

	if (follow(w) < 0)
		return -1;
	if (fields_has(w->fields, TAG_PARENTS) && worker_make_parents(w->target) < 0)
		return worker_fail(w, "make the directories above");
	if (look(w, &there, &mode) < 0)
		return -1;
	mode = (mode_t)fields_number(w->fields, TAG_MODE, mode);
	if (make_temp(w, there, temp, &fd) < 0)
		return -1;
	if (put_meta(w, fd) < 0 || fill(w, temp, fd, mode) < 0) {
		(void)unlink(temp);
		return -1;
	}
	return 0;
}
