/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists and removes directory trees in a worker. Both walk with a stack of open directories and
 * never follow a symbolic link below the top. The stack is limited: listing stops at the requested
 * depth; removing moves deeper directories up to the top and finds them there again.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "base/str.h"
#include "guest/worker.h"

enum {
	DEPTH_MAX = 64,
	LIST_PATH_MAX = 4096,
};

struct level {
	DIR *dir;
	size_t path_len;	 /* list: length of the directory's path with its slash */
	char name[NAME_MAX + 1]; /* remove: its name in the parent directory */
};

struct walk {
	struct worker *w;
	struct level stack[DEPTH_MAX];
	size_t n;
	char path[LIST_PATH_MAX + 1];
	int err;       /* remove: why an entry could not be removed */
	bool progress; /* remove: an entry was removed */
	uint64_t moved;
};

/* Opens a directory and pushes it on the stack. 0 or -errno. */
static int push(struct walk *x, int dirfd, const char *name, int flags)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | flags);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (!dir) {
		int r = -errno;

		(void)fd_close(fd);
		return r;
	}
	x->stack[x->n++].dir = dir;
	return 0;
}

static void pop(struct walk *x)
{
	(void)closedir(x->stack[--x->n].dir);
}

/* The next entry of the topmost directory, or NULL. */
static const struct dirent *next(struct walk *x)
{
	const struct dirent *d;

	do
		d = readdir(x->stack[x->n - 1].dir);
	while (d && (str_eq(d->d_name, ".") || str_eq(d->d_name, "..")));
	return d;
}

/* ---- list ---- */

static int list_entry(struct walk *x, const char *name, size_t depth)
{
	const struct level *top = &x->stack[x->n - 1];
	size_t len = strlen(name), at = top->path_len;
	struct stat st;

	if (at + len > LIST_PATH_MAX ||
	    fstatat(dirfd(top->dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	memcpy(x->path + at, name, len + 1);
	if (worker_send(x->w, PACKET_ENTRY, dirfd(top->dir), name, x->path, &st) < 0)
		return -1;
	if (!S_ISDIR(st.st_mode) || x->n >= depth || at + len >= LIST_PATH_MAX ||
	    push(x, dirfd(top->dir), name, O_NOFOLLOW) < 0)
		return 0;
	x->path[at + len] = '/';
	x->stack[x->n - 1].path_len = at + len + 1;
	return 0;
}

int worker_list(struct worker *w)
{
	size_t depth = (size_t)fields_number(w->fields, TAG_DEPTH, 0);
	static struct walk x;
	int r;

	static_assert(DEPTH_MAX == 64, "as large as the largest depth that may be asked for");
	x.w = w;
	if (depth == 0)
		return fail_with(&w->fail, WIRE_INVALID, "a depth of 0 lists nothing");
	r = push(&x, AT_FDCWD, w->path, 0);
	if (r < 0)
		return fail_errno(&w->fail, -r, "list", w->path);
	if (worker_send(w, PACKET_ACCEPT, AT_FDCWD, NULL, NULL, NULL) < 0)
		return -1;
	while (x.n > 0) {
		const struct dirent *d = next(&x);

		if (!d)
			pop(&x);
		else if (list_entry(&x, d->d_name, depth) < 0)
			return -1;
	}
	return 0;
}

/* ---- remove ---- */

static bool gone(struct walk *x, int dirfd, const char *name, int flags)
{
	if (unlinkat(dirfd, name, flags) < 0 && errno != ENOENT) {
		x->err = errno;
		return false;
	}
	x->progress = true;
	return true;
}

/* Moves a directory from the lowest level of the stack to the top of the tree. */
static void lift(struct walk *x, int dirfd_, const char *name)
{
	char new[64];

	(void)snprintf(new, sizeof(new), ".hutch-remove-%d-%llu", (int)getpid(),
		       (unsigned long long)x->moved++);
	if (renameat(dirfd_, name, dirfd(x->stack[0].dir), new) == 0)
		x->progress = true;
	else
		x->err = errno;
}

static void remove_entry(struct walk *x, const struct dirent *d)
{
	int fd = dirfd(x->stack[x->n - 1].dir), r;

	if (d->d_type != DT_DIR && gone(x, fd, d->d_name, 0))
		return;
	if (d->d_type != DT_DIR && x->err != EISDIR && x->err != EPERM)
		return;
	if (gone(x, fd, d->d_name, AT_REMOVEDIR) || (x->err != ENOTEMPTY && x->err != EEXIST))
		return;
	if (x->n == DEPTH_MAX) {
		lift(x, fd, d->d_name);
		return;
	}
	r = push(x, fd, d->d_name, O_NOFOLLOW);
	if (r < 0)
		x->err = -r;
	else
		(void)snprintf(x->stack[x->n - 1].name, sizeof(x->stack[0].name), "%s", d->d_name);
}

/* Removes as much as possible below the directory w->path. */
static int remove_below(struct walk *x)
{
	int r = push(x, AT_FDCWD, x->w->path, O_NOFOLLOW);

	if (r < 0)
		return fail_errno(&x->w->fail, -r, "remove", x->w->path);
	while (x->n > 0) {
		const struct dirent *d = next(x);

		if (d) {
			remove_entry(x, d);
			continue;
		}
		pop(x);
		if (x->n > 0)
			(void)gone(x, dirfd(x->stack[x->n - 1].dir), x->stack[x->n].name,
				   AT_REMOVEDIR);
	}
	return 0;
}

int worker_remove(struct worker *w)
{
	static struct walk x;
	size_t n = strlen(w->path);
	struct stat st;

	while (n > 1 && w->path[n - 1] == '/')
		w->path[--n] = '\0';
	if (n == 1)
		return fail_with(&w->fail, WIRE_INVALID, "/ cannot be removed");
	if (lstat(w->path, &st) < 0)
		return worker_fail(w, "remove");
	if (!S_ISDIR(st.st_mode)) {
		if (unlink(w->path) < 0)
			return worker_fail(w, "remove");
		return worker_send(w, PACKET_ACCEPT, AT_FDCWD, NULL, NULL, NULL);
	}
	x.w = w;
	while (rmdir(w->path) < 0) {
		if (errno != ENOTEMPTY && errno != EEXIST)
			return worker_fail(w, "remove");
		x.progress = false;
		x.err = ENOTEMPTY;
		if (remove_below(&x) < 0)
			return -1;
		if (!x.progress)
			return fail_errno(&w->fail, x.err, "remove all of", w->path);
	}
	return worker_send(w, PACKET_ACCEPT, AT_FDCWD, NULL, NULL, NULL);
}
