/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of recipes. The sender's hash covers the copied files and not the archive's bytes, so
 * it cannot be checked here. It is therefore valid within one template only: a client cannot plant
 * a file under a hash that another template uses.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "template/template-inner.h"

static const char new_prefix[] = ".new-";

static int file_name(const char *template, const char *hash,
		     char out[static TEMPLATE_ID + TEMPLATE_HASH + 2], struct err *e)
{
	if (!template_id_valid(template))
		return err_set(e, -EINVAL, "'%.80s' is not the id of a template", template);
	if (strlen(hash) != TEMPLATE_HASH || strspn(hash, "0123456789abcdef") != TEMPLATE_HASH)
		return err_set(e, -EINVAL, "'%.80s' is not a hash", hash);
	(void)snprintf(out, TEMPLATE_ID + TEMPLATE_HASH + 2, "%s-%s", template, hash);
	return 0;
}

int template_file_open(const struct template_store *s, const char *template, const char *hash,
		       int *ret_fd, struct err *e)
{
	char name[TEMPLATE_ID + TEMPLATE_HASH + 2];
	int fd, r = file_name(template, hash, name, e);

	if (r < 0)
		return r;
	fd = RETRY_EINTR(openat(s->files, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
	if (fd < 0)
		return err_errno(e, "cannot open the file '%s' of a recipe", hash);
	(void)futimens(fd, NULL); /* mtime is the time of last use */
	*ret_fd = fd;
	return 0;
}

/* ---- uploads in progress ---- */

/* Removes the file of an interrupted upload; false if the upload is still running. */
static bool remove_left(const struct template_store *s, const char *name)
{
	_cleanup_close_ int fd =
		RETRY_EINTR(openat(s->files, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));

	if (fd < 0)
		return errno == ENOENT;
	return flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(s->files, name, 0) == 0;
}

/* Uploads are created under a lock of the directory, so that remove_left() cannot remove one
 * before its own lock is taken. The lock is held briefly; callers do not wait for it. */
static int lock_files(const struct template_store *s, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd =
		RETRY_EINTR(openat(s->files, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
		*ret_fd = TAKE_FD(fd);
		return 0;
	}
	if (fd >= 0 && errno == EWOULDBLOCK)
		return err_set(e, -EAGAIN, "another upload is starting: try again");
	return err_errno(e, "cannot lock '%s/files'", s->path);
}

/* Counts running uploads, and removes interrupted ones. */
static int count_new(const struct template_store *s, size_t *ret, struct err *e)
{
	DIR *d = fd_list(s->files);
	const struct dirent *entry;
	size_t n = 0;

	if (!d)
		return err_errno(e, "cannot list '%s/files'", s->path);
	while ((entry = readdir(d)))
		n += str_has_prefix(entry->d_name, new_prefix) && !remove_left(s, entry->d_name);
	(void)closedir(d);
	*ret = n;
	return 0;
}

static int make_new(struct template_upload *u, struct err *e)
{
	char id[TEMPLATE_ID + 1];

	if (template_random(id, TEMPLATE_ID) < 0)
		return err_set(e, -EIO, "no random numbers");
	(void)snprintf(u->temp, sizeof(u->temp), "%s%s", new_prefix, id);
	u->fd = RETRY_EINTR(openat(u->store->files, u->temp,
				   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (u->fd >= 0 && flock(u->fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	(void)err_errno(e, "cannot make a file in '%s/files'", u->store->path);
	template_upload_drop(u);
	return e->num;
}

static int too_large(struct err *e)
{
	return err_set(e, -EFBIG, "a file of a recipe has at most %llu bytes",
		       (unsigned long long)TEMPLATE_FILE_BYTES);
}

int template_upload_begin(const struct template_store *s, const char *template, const char *hash,
			  uint64_t expected, struct template_upload *ret, struct err *e)
{
	struct template_upload u = TEMPLATE_UPLOAD_INIT;
	_cleanup_close_ int lock = -EBADF;
	size_t n = 0;
	int r = expected > TEMPLATE_FILE_BYTES ? too_large(e)
					       : file_name(template, hash, u.name, e);

	u.store = s;
	if (r == 0)
		r = lock_files(s, &lock, e);
	if (r == 0)
		r = count_new(s, &n, e);
	if (r == 0 && n >= TEMPLATE_UPLOADS_MAX)
		r = err_set(e, -EBUSY, "too many uploads at once: try again");
	if (r == 0)
		r = make_new(&u, e);
	if (r == 0)
		*ret = u;
	return r;
}

int template_upload_write(struct template_upload *u, const void *data, size_t n, struct err *e)
{
	int r;

	if (n > TEMPLATE_FILE_BYTES - u->size)
		return too_large(e);
	r = fd_write_all(u->fd, data, n);
	if (r < 0)
		return err_set(e, r, "cannot write a file of a recipe: %s", strerror(-r));
	u->size += n;
	return 0;
}

void template_upload_drop(struct template_upload *u)
{
	if (u->fd >= 0)
		(void)unlinkat(u->store->files, u->temp, 0);
	u->fd = fd_close(u->fd);
}

/* ---- space ---- */

struct census {
	uint64_t bytes;
	size_t n;
	char oldest[TEMPLATE_ID + TEMPLATE_HASH + 2];
	struct timespec used; /* last use of `oldest` */
};

static bool before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* Counts all complete files except `but`. */
static int take_census(const struct template_store *s, const char *but, struct census *ret,
		       struct err *e)
{
	DIR *d = fd_list(s->files);
	const struct dirent *entry;
	struct stat st;

	*ret = (struct census){ 0 };
	if (!d)
		return err_errno(e, "cannot list '%s/files'", s->path);
	while ((entry = readdir(d))) {
		if (entry->d_name[0] == '.' || str_eq(entry->d_name, but) ||
		    strlen(entry->d_name) >= sizeof(ret->oldest) ||
		    fstatat(s->files, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		ret->bytes += (uint64_t)st.st_size;
		if (ret->n++ == 0 || before(&st.st_mtim, &ret->used)) {
			ret->used = st.st_mtim;
			memcpy(ret->oldest, entry->d_name, strlen(entry->d_name) + 1);
		}
	}
	(void)closedir(d);
	return 0;
}

/* Removes the least recently used files. A process that has one open can still read it. */
static int make_room(const struct template_store *s, const struct template_upload *u, struct err *e)
{
	struct census c;
	int r = take_census(s, u->name, &c, e);

	while (r == 0 && c.n > 0 &&
	       (c.n >= TEMPLATE_FILES_MAX || c.bytes + u->size > TEMPLATE_FILES_BYTES)) {
		if (unlinkat(s->files, c.oldest, 0) < 0)
			return err_errno(e, "cannot remove '%s/files/%s'", s->path, c.oldest);
		r = take_census(s, u->name, &c, e);
	}
	return r;
}

/* Opens the file itself: a child that ends the upload does not have the sender's descriptor. */
static int sync_new(const struct template_store *s, const struct template_upload *u, struct err *e)
{
	_cleanup_close_ int fd =
		RETRY_EINTR(openat(s->files, u->temp, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));

	if (fd < 0 || RETRY_EINTR(fsync(fd)) < 0)
		return err_errno(e, "cannot write a file of a recipe to disk");
	return 0;
}

int template_upload_end(const struct template_store *s, const struct template_upload *u,
			struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	int r = sync_new(s, u, e);

	if (r == 0)
		r = template_lock(s, &lock, e);
	if (r == 0)
		r = make_room(s, u, e);
	if (r == 0)
		r = FAULT_ERR("template-file", e);
	if (r == 0 && renameat(s->files, u->temp, s->files, u->name) < 0)
		r = err_errno(e, "cannot keep a file of a recipe");
	if (r < 0)
		return r;
	r = RETRY_EINTR(fsync(s->files));
	return r < 0 ? err_errno(e, "cannot sync '%s/files'", s->path) : 0;
}
