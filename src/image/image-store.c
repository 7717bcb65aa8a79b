/* SPDX-License-Identifier: Apache-2.0 */
/* The store's directories, and the work directories in it. */
#include "image/image-store.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/str.h"
#include "image/job.h"
#include "image/tree.h"

int image_store_open(struct image_store *s, bool make, struct err *e)
{
	int r;

	*s = (struct image_store)IMAGE_STORE_INIT;
	r = image_home_open("images", make, s->path, &s->dir, e);
	if (r == 0)
		r = image_home_dir(s->dir, "trees", make, &s->trees, e);
	if (r == 0)
		r = image_home_dir(s->dir, "names", make, &s->names, e);
	if (r == 0)
		r = image_home_dir(s->dir, "tmp", make, &s->tmp, e);
	if (r == 0)
		r = image_home_dir(s->dir, "logs", make, &s->logs, e);
	return r < 0 && s->path[0] ? err_wrap(e, "%s", s->path) : r;
}

void image_store_close(struct image_store *s)
{
	s->dir = fd_close(s->dir);
	s->trees = fd_close(s->trees);
	s->names = fd_close(s->names);
	s->tmp = fd_close(s->tmp);
	s->logs = fd_close(s->logs);
}

int image_store_lock(const struct image_store *s, int *ret_fd, struct err *e)
{
	return image_home_lock(s->dir, s->path, ret_fd, e);
}

/* Writable for the worker, whose ids own nothing above it; tmp/ itself is closed to all others. */
static int make_work(const struct image_store *s, struct image_work *w, struct err *e)
{
	w->fd = -EBADF;
	if (mkdirat(s->tmp, w->name, 0700) == 0)
		w->fd = RETRY_EINTR(
			openat(s->tmp, w->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (w->fd < 0 || fchmod(w->fd, 0777) < 0 || flock(w->fd, LOCK_EX | LOCK_NB) < 0) {
		int r = err_errno(e, "cannot create a directory in '%s/tmp'", s->path);

		w->fd = fd_close(w->fd);
		return r;
	}
	return 0;
}

static int random_name(char name[static WORK_NAME + 1])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char bytes[WORK_NAME];

	if (RETRY_EINTR(getrandom(bytes, sizeof(bytes), 0)) != (ssize_t)sizeof(bytes))
		return -EIO;
	for (size_t i = 0; i < WORK_NAME; i++)
		name[i] = digits[bytes[i] & 15];
	name[WORK_NAME] = '\0';
	return 0;
}

int image_work_new(const struct image_store *s, struct image_work *ret, struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	int r = image_store_lock(s, &lock, e);

	if (r == 0 && random_name(ret->name) < 0)
		r = err_set(e, -EIO, "cannot get random numbers");
	return r < 0 ? r : make_work(s, ret, e);
}

/*
 * The tree's files belong to the worker's ids. Root removes them directly, even if the ranges in
 * /etc/subuid have changed.
 */
static int remove_work(const struct image_store *s, const char *name, int fd,
		       const struct id_ranges *ids, struct err *e)
{
	int r = 0;

	if (geteuid() != 0) {
		(void)fchmod(fd, 0777);
		r = job_empty(fd, ids, e);
	}
	if (r == 0)
		r = tree_remove(s->tmp, name);
	if (r < 0 && e->num == 0)
		return err_set(e, r, "cannot remove '%s/tmp/%s': %s", s->path, name, strerror(-r));
	return r;
}

int image_work_drop(const struct image_store *s, struct image_work *w, const struct id_ranges *ids,
		    struct err *e)
{
	int r = w->fd < 0 ? 0 : remove_work(s, w->name, w->fd, ids, e);

	w->fd = fd_close(w->fd);
	return r;
}

/* 1 if removed, 0 if another process is using it. */
static int clean_one(const struct image_store *s, const char *name, const struct id_ranges *ids,
		     struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r;

	fd = RETRY_EINTR(openat(s->tmp, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (fd < 0)
		return errno == ENOENT ? 0 : err_errno(e, "cannot open '%s/tmp/%s'", s->path, name);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK
			       ? 0
			       : err_errno(e, "cannot lock '%s/tmp/%s'", s->path, name);
	r = remove_work(s, name, fd, ids, e);
	return r < 0 ? r : 1;
}

int image_store_clean(const struct image_store *s, const struct id_ranges *ids,
		      void (*took)(const char *name, void *arg), void *arg, struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	int r = image_store_lock(s, &lock, e);
	struct dirent *entry;
	DIR *d;

	if (r < 0)
		return r;
	d = fd_list(s->tmp);
	if (!d)
		return err_errno(e, "cannot list '%s/tmp'", s->path);
	while (r >= 0 && (entry = readdir(d))) {
		if (entry->d_name[0] == '.')
			continue;
		r = clean_one(s, entry->d_name, ids, e);
		if (r > 0 && took)
			took(entry->d_name, arg);
	}
	(void)closedir(d);
	return r < 0 ? r : 0;
}
