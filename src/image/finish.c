/* SPDX-License-Identifier: Apache-2.0 */
#include "image/finish.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "image/tree.h"
#include "image/unpack.h"

enum {
	ACCOUNTS_MAX = 1024 * 1024,
	LINE_BYTES = 512
};

static int failed(const char *name, int r, struct err *e)
{
	if (r == -ELOOP)
		return err_set(e, -EINVAL,
			       "'/%.120s' is behind a symbolic link: name the path it "
			       "points to",
			       name);
	if (r == -EISDIR || r == -ENOTEMPTY)
		return err_set(e, -EINVAL, "'/%.120s' is a directory", name);
	return err_set(e, r, "cannot write '/%.120s': %s", name, strerror(-r));
}

static int write_file(int root, const char *name, mode_t mode, const char *text, size_t n,
		      struct err *e)
{
	const struct timespec times[2] = { { .tv_sec = FINISH_TIME }, { .tv_sec = FINISH_TIME } };
	_cleanup_close_ int dirfd = -EBADF, fd = -EBADF;
	const char *base;
	int r;

	dirfd = unpack_open_parent(root, name, true, &base);
	if (dirfd < 0)
		return failed(name, dirfd, e);
	if (unlinkat(dirfd, base, 0) < 0 && errno != ENOENT)
		return failed(name, -errno, e);
	fd = RETRY_EINTR(
		openat(dirfd, base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
	if (fd < 0)
		return failed(name, -errno, e);
	r = fd_write_all(fd, text, n);
	if (r == 0 && (fchmod(fd, mode) < 0 || futimens(fd, times) < 0))
		r = -errno;
	return r < 0 ? failed(name, r, e) : 0;
}

static int make_dir(int root, const char *name, mode_t mode, unsigned int owner, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r = path_mkdirs(root, name, 0755);

	if (r == 0) {
		fd = path_open_nofollow(root, name, O_RDONLY | O_DIRECTORY, 0);
		r = fd < 0 ? fd : 0;
	}
	if (r == 0 && (fchown(fd, owner, owner) < 0 || fchmod(fd, mode) < 0))
		r = -errno;
	return r < 0 ? failed(name, r, e) : 0;
}

/* Does a line have this name, or this id as its third field? */
static bool has_account(const char *text, const char *name, unsigned int id)
{
	char number[16];
	size_t len = strlen(name);

	(void)snprintf(number, sizeof(number), ":%u:", id);
	for (const char *line = text; *line;) {
		size_t n = strcspn(line, "\n");
		const char *first = memchr(line, ':', n);
		const char *second =
			first ? memchr(first + 1, ':', (size_t)(line + n - first - 1)) : NULL;

		if (n > len && line[len] == ':' && memcmp(line, name, len) == 0)
			return true;
		if (second && strncmp(second, number, strlen(number)) == 0)
			return true;
		line += n + (line[n] == '\n');
	}
	return false;
}

int finish_add_account(struct buf *text, const char *name, unsigned int id, const char *line)
{
	if (has_account(buf_text(text), name, id))
		return text->err;
	if (text->len > 0 && text->data[text->len - 1] != '\n')
		(void)buf_putc(text, '\n');
	return buf_puts(text, line);
}

static int read_accounts(int root, const char *name, struct buf *b)
{
	_cleanup_close_ int fd = path_open_nofollow(root, name, O_RDONLY | O_NONBLOCK, 0);

	return fd == -ENOENT ? 0 : fd < 0 ? fd : fd_read_all(fd, b);
}

/* Adds root, if missing, and the user. */
static int add_account(int root, const char *name, mode_t mode, const char *user,
		       const char *root_line, const char *user_line, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(ACCOUNTS_MAX);
	int r = read_accounts(root, name, &b);

	if (r == 0)
		r = finish_add_account(&b, "root", 0, root_line);
	if (r == 0)
		r = finish_add_account(&b, user, FINISH_UID, user_line);
	if (r < 0)
		return failed(name, r, e);
	return write_file(root, name, mode, buf_text(&b), b.len, e);
}

static bool is_there(int root, const char *name)
{
	_cleanup_close_ int fd = path_open_beneath(root, name, O_PATH, 0);

	return fd >= 0;
}

static int add_user(int root, const char *user, struct err *e)
{
	char line[LINE_BYTES], group[LINE_BYTES], home[LINE_BYTES];
	const char *shell = is_there(root, "bin/bash") ? "/bin/bash" : "/bin/sh";
	int r;

	(void)snprintf(line, sizeof(line), "%s:x:%d:%d::/home/%s:%s\n", user, FINISH_UID,
		       FINISH_UID, user, shell);
	(void)snprintf(group, sizeof(group), "%s:x:%d:\n", user, FINISH_UID);
	(void)snprintf(home, sizeof(home), "home/%s", user);
	r = add_account(root, "etc/passwd", 0644, user, "root:x:0:0:root:/root:/bin/sh\n", line, e);
	if (r == 0)
		r = add_account(root, "etc/group", 0644, user, "root:x:0:\n", group, e);
	if (r == 0)
		r = make_dir(root, home, 0755, FINISH_UID, e);
	if (r == 0)
		r = make_dir(root, "workspace", 0755, FINISH_UID, e);
	if (r == 0)
		r = make_dir(root, "tmp", 01777, 0, e);
	return r < 0 ? r : make_dir(root, "root", 0700, 0, e);
}

/* Files that mmdebstrap copied from the host, or that must differ in each sandbox. */
static int write_defaults(int root, struct err *e)
{
	static const struct {
		const char *name;
		mode_t mode;
		const char *text;
	} files[] = {
		{ "etc/machine-id", 0444, "" },
		{ "etc/hostname", 0644, "sandbox\n" },
		{ "etc/hosts", 0644, "127.0.0.1 localhost sandbox\n::1 localhost\n" },
		{ "etc/resolv.conf", 0644, "nameserver 127.0.0.1\n" },
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(files); i++)
		r = write_file(root, files[i].name, files[i].mode, files[i].text,
			       strlen(files[i].text), e);
	return r;
}

int finish_tree(int root, const struct image_finish *f, struct err *e)
{
	int r = write_defaults(root, e);

	if (r == 0)
		r = add_user(root, f->user, e);
	for (size_t i = 0; r == 0 && i < f->files->n; i++) {
		const struct pair *file = &f->files->v[i];

		r = write_file(root, file->key + 1, str_has_prefix(file->value, "#!") ? 0755 : 0644,
			       file->value, strlen(file->value), e);
	}
	return r;
}
