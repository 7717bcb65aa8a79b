/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of the store: opens it, checks owner and mode, lists, locks, reads files. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/state-dir.h"
#include "base/str.h"
#include "secret/inner.h"

#define STORE_DIR "secrets"

static int check_dir(int fd, mode_t never, const char *path, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(e, "cannot stat '%s'", path);
	if (st.st_uid != geteuid())
		return err_set(e, -EPERM, "'%s' belongs to uid %u: run hutch as that user", path,
			       (unsigned int)st.st_uid);
	if (st.st_mode & never)
		return err_set(e, -EPERM, "others have access to '%s': change its mode to 0700",
			       path);
	return 0;
}

static int open_below(int at, const char *below, bool make, mode_t never, const char *path,
		      int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r = make ? path_mkdirs(at, below, 0700) : 0;

	if (r == 0)
		r = fd = path_open_nofollow(at, below, O_RDONLY | O_DIRECTORY, 0);
	if (r < 0)
		return err_set(e, r, "cannot open '%s': %s%s", path, strerror(-r),
			       r == -ELOOP ? " (a symbolic link)" : "");
	r = check_dir(fd, never, path, e);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

static int open_store(bool make, struct secret_store *s, struct err *e)
{
	_cleanup_close_ int top = -EBADF, own = -EBADF;
	char base[PATH_MAX], path[PATH_MAX];
	const char *prefix = NULL;
	int r = state_dir_path(path, sizeof(path), e), k;

	if (r < 0)
		return r;
	k = snprintf(s->path, sizeof(s->path), "%s/" STORE_DIR, path);
	if (k < 0 || (size_t)k >= sizeof(s->path))
		return err_set(e, -ENAMETOOLONG, "the path of the state directory is too long");
	r = state_dir_open(make, base, sizeof(base), &prefix, &top, e);
	if (r == 0)
		r = open_below(top, prefix[0] ? "hutch" : ".", make, S_IWGRP | S_IWOTH, path, &own,
			       e);
	if (r == 0)
		r = open_below(own, STORE_DIR, make, S_IRWXG | S_IRWXO, s->path, &s->dir, e);
	if (r == -ENOENT && !make) {
		*e = (struct err)ERR_INIT;
		r = 0;
	}
	return r;
}

int secret_store_open(bool make, struct secret_store *ret, struct err *e)
{
	struct secret_store s = SECRET_STORE_INIT;
	int r = open_store(make, &s, e);

	if (r < 0)
		return err_wrap(e, "cannot open the store of secrets");
	*ret = s;
	return 0;
}

void secret_store_close(struct secret_store *s)
{
	s->dir = fd_close(s->dir);
}

const char *secret_file_name(const char *name, const char *suffix,
			     char out[static SECRET_FILE_NAME])
{
	(void)snprintf(out, SECRET_FILE_NAME, "%s%s", name, suffix);
	return out;
}

static int check_file(int fd, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(e, "cannot stat it");
	if (!S_ISREG(st.st_mode))
		return err_set(e, -EINVAL, "not a regular file");
	if (st.st_uid != geteuid())
		return err_set(e, -EPERM, "belongs to uid %u, not to you", (unsigned int)st.st_uid);
	if (st.st_mode & (S_IRWXG | S_IRWXO))
		return err_set(e, -EPERM, "others have access to it: change its mode to 0600");
	return 0;
}

int secret_read_file(const struct secret_store *s, const char *file, struct buf *ret, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r;

	/* O_NONBLOCK: opening a FIFO must not block. */
	fd = RETRY_EINTR(
		openat(s->dir, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	r = fd < 0 ? err_errno(e, "cannot open it") : check_file(fd, e);
	if (r == 0) {
		r = fd_read_all(fd, ret);
		if (r < 0)
			r = err_set(e, r, "cannot read it: %s",
				    r == -EFBIG ? "too large" : strerror(-r));
	}
	return r < 0 ? err_wrap(e, "file '%s' of the store of secrets", file) : 0;
}

int secret_lock(const struct secret_store *s, bool wait, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = path_open_nofollow(s->dir, "lock", O_RDWR | O_CREAT, 0600);

	if (fd < 0)
		return err_set(e, fd, "cannot open the lock of '%s': %s", s->path, strerror(-fd));
	if (RETRY_EINTR(flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB))) < 0)
		return err_errno(e, "cannot lock '%s'", s->path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* ---- names ---- */

/* Returns whether `file` is NAME.value; then *ret is the name. */
static bool is_value(const char *file, secret_name *ret)
{
	size_t n = strlen(file);
	struct err ignored = ERR_INIT;

	if (!str_has_suffix(file, SECRET_VALUE_FILE) ||
	    n - STRLEN(SECRET_VALUE_FILE) > SECRET_NAME_MAX)
		return false;
	(void)snprintf(*ret, sizeof(*ret), "%.*s", (int)(n - STRLEN(SECRET_VALUE_FILE)), file);
	return secret_name_check(*ret, &ignored) == 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int read_names(DIR *d, secret_name *list, size_t *ret_n)
{
	struct dirent *entry;
	size_t n = 0;

	while (errno = 0, (entry = readdir(d))) {
		secret_name name;

		if (!is_value(entry->d_name, &name))
			continue;
		if (n == SECRET_STORE_MAX)
			return -E2BIG;
		memcpy(list[n++], name, sizeof(name));
	}
	*ret_n = n;
	return -errno;
}

int secret_names(const struct secret_store *s, secret_name **ret, size_t *ret_n, struct err *e)
{
	_cleanup_free_ secret_name *list = calloc(SECRET_STORE_MAX, sizeof(*list));
	size_t n = 0;
	DIR *d;
	int r = 0;

	if (!list)
		return err_oom(e);
	if (s->dir >= 0) {
		d = fd_list(s->dir);
		if (!d)
			return err_errno(e, "cannot list '%s'", s->path);
		r = read_names(d, list, &n);
		(void)closedir(d);
	}
	if (r < 0)
		return err_set(e, r, "cannot list '%s': %s", s->path,
			       r == -E2BIG ? "too many secrets" : strerror(-r));
	qsort(list, n, sizeof(list[0]), compare_names);
	*ret = TAKE_PTR(list);
	*ret_n = n;
	return 0;
}

int secret_missing(const struct secret_store *s, const char *name, struct err *e)
{
	_cleanup_free_ const char **words = calloc(SECRET_STORE_MAX + 1, sizeof(*words));
	_cleanup_free_ secret_name *list = NULL;
	struct err ignored = ERR_INIT;
	const char *close = NULL;
	size_t n = 0;

	if (words && secret_names(s, &list, &n, &ignored) == 0) {
		for (size_t i = 0; i < n; i++)
			words[i] = list[i];
		close = str_closest(name, words);
	}
	if (close)
		return err_set(e, -ENOENT, "no secret '%s'; did you mean '%s'?", name, close);
	return err_set(e, -ENOENT, "no secret '%s': set it with 'hutch secret set %s'", name, name);
}

int secret_has(const struct secret_store *s, const char *name, struct err *e)
{
	char file[SECRET_FILE_NAME];
	struct stat st;
	int r = secret_name_check(name, e);

	if (r < 0 || s->dir < 0)
		return r;
	if (fstatat(s->dir, secret_file_name(name, SECRET_VALUE_FILE, file), &st,
		    AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	return errno == ENOENT ? 0 : err_errno(e, "cannot look for secret '%s'", name);
}
