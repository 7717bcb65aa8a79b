/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the run directory; creates, finds, lists and removes the directories of sandboxes. */
#include "state/state.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"

enum {
	NEW_TRIES = 16,
	PREFIX_MIN = 2,
	LIST_MAX = 65536, /* sandboxes */
	FILE_NAME = 64,
};

static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

/* ---- the root ---- */

/*
 * Determines the run directory: `below` is its name in the existing directory `base`. `below` is ""
 * if `base` is the run directory itself, which may be missing.
 */
static int place(struct state_root *r, char *base, size_t n, char *below, size_t n_below,
		 struct err *e)
{
	const char *own = getenv("HUTCH_RUN_DIR"), *xdg = getenv("XDG_RUNTIME_DIR");
	int k;

	if (own && own[0] && own[0] != '/')
		return err_set(e, -EINVAL, "HUTCH_RUN_DIR is not an absolute path: '%.80s'", own);
	(void)snprintf(below, n_below, "hutch");
	if (own && own[0]) {
		below[0] = '\0';
		k = snprintf(base, n, "%s", own);
	} else if (geteuid() == 0) {
		k = snprintf(base, n, "/run");
	} else if (xdg && xdg[0] == '/') {
		k = snprintf(base, n, "%s", xdg);
	} else {
		k = snprintf(base, n, "/tmp");
		(void)snprintf(below, n_below, "hutch-%u", (unsigned int)geteuid());
	}
	if (k < 0 || (size_t)k >= n)
		return err_set(e, -ENAMETOOLONG, "the path of the run directory is too long");
	(void)snprintf(r->path, sizeof(r->path), "%s%s%s", base, below[0] ? "/" : "", below);
	return 0;
}

static int check_ours(int fd, const char *what, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(e, "cannot stat '%s'", what);
	if (st.st_uid != geteuid())
		return err_set(e, -EPERM, "'%s' belongs to uid %u: refused", what,
			       (unsigned int)st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return err_set(e, -EPERM, "others can write in '%s': refused", what);
	return 0;
}

/* Follows links in the path: they belong to the administrator or to the user. */
static int open_base(const char *path, bool make, int *ret_fd, struct err *e)
{
	_cleanup_close_ int top = -EBADF;
	int fd = RETRY_EINTR(openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)), r;

	if (fd < 0 && errno == ENOENT && make) {
		top = RETRY_EINTR(openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC));
		r = top < 0 ? -errno : path_mkdirs(top, path + strspn(path, "/"), 0700);
		if (r < 0)
			return err_set(e, r, "cannot make '%s': %s", path, strerror(-r));
		fd = RETRY_EINTR(openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	}
	if (fd < 0)
		return err_errno(e, "cannot open '%s'", path);
	*ret_fd = fd;
	return 0;
}

static int open_below(int at, const char *name, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r = path_mkdirs(at, name, 0700);

	if (r == 0)
		r = fd = path_open_nofollow(at, name, O_RDONLY | O_DIRECTORY, 0);
	if (r < 0)
		return err_set(e, r, "cannot open '%s': %s", name, strerror(-r));
	r = check_ours(fd, name, e);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

/* Identifies the directory by device and inode: paths can change, and contents can be copied. */
static int set_tag(struct state_root *r, struct err *e)
{
	struct stat st;

	if (fstat(r->dir, &st) < 0)
		return err_errno(e, "cannot stat 'sandboxes'");
	(void)snprintf(r->tag, sizeof(r->tag), "d%llxi%llx", (unsigned long long)st.st_dev,
		       (unsigned long long)st.st_ino);
	return 0;
}

const char *state_group(const struct state_root *r, const char *id,
			char out[static STATE_GROUP_MAX])
{
	int k = snprintf(out, STATE_GROUP_MAX, "%s-%s", id, r->tag);

	assert(k > 0 && k < STATE_GROUP_MAX);
	return out;
}

int state_root_path(char *out, size_t n, struct err *e)
{
	struct state_root root = STATE_ROOT_INIT;
	char base[sizeof(root.path) - FILE_NAME], below[FILE_NAME];
	int r = place(&root, base, sizeof(base), below, sizeof(below), e);

	if (r < 0)
		return r;
	if (strlen(root.path) >= n)
		return err_set(e, -ENAMETOOLONG, "the path of the run directory is too long");
	(void)snprintf(out, n, "%s", root.path);
	return 0;
}

int state_root_open(struct state_root *ret, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_close_ int base_fd = -EBADF, top = -EBADF;
	char base[sizeof(root.path) - FILE_NAME], below[FILE_NAME];
	int r = place(&root, base, sizeof(base), below, sizeof(below), e);

	if (r == 0)
		r = open_base(base, !below[0], &base_fd, e);
	if (r < 0)
		return r;
	if (below[0])
		r = open_below(base_fd, below, &top, e);
	else if ((r = check_ours(base_fd, base, e)) == 0)
		top = TAKE_FD(base_fd);
	if (r == 0)
		r = open_below(top, "sandboxes", &root.dir, e);
	if (r == 0)
		r = open_below(top, "ended", &root.ended, e);
	if (r == 0)
		r = open_below(top, "ids", &root.ids, e);
	if (r == 0)
		r = set_tag(&root, e);
	if (r < 0)
		return err_wrap(e, "%s", root.path);
	*ret = root;
	root = (struct state_root)STATE_ROOT_INIT;
	return 0;
}

void state_root_close(struct state_root *r)
{
	r->dir = fd_close(r->dir);
	r->ended = fd_close(r->ended);
	r->ids = fd_close(r->ids);
}

/* ---- files ---- */

static int write_new(int dir, const char *name, const void *data, size_t n)
{
	_cleanup_close_ int fd = RETRY_EINTR(
		openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));

	return fd < 0 ? -errno : fd_write_all(fd, data, n);
}

int state_read(int dir, const char *name, size_t max,
	       int (*read)(const json_t *j, void *ret, struct err *e), void *ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(max);
	_cleanup_json_ json_t *j = NULL;
	int r = fd_read_file(dir, name, &b, e);

	if (r < 0)
		return r;
	r = json_read(buf_text(&b), b.len, &j, e);
	if (r == 0)
		r = read(j, ret, e);
	/* A missing key must not look like a missing file. */
	if (r < 0) {
		e->num = r == -ENOENT ? -EINVAL : r;
		return err_wrap(e, "%s", name);
	}
	return 0;
}

int state_write(int dir, const char *name, const void *data, size_t n, struct err *e)
{
	char tmp[FILE_NAME];
	uint64_t nonce = 0;
	int r;

	if (RETRY_EINTR(getrandom(&nonce, sizeof(nonce), 0)) != (ssize_t)sizeof(nonce))
		return err_errno(e, "cannot write '%s'", name);
	r = snprintf(tmp, sizeof(tmp), "%s.%016llx", name, (unsigned long long)nonce);
	assert(r > 0 && (size_t)r < sizeof(tmp));
	r = FAULT("state-write");
	if (r == 0)
		r = write_new(dir, tmp, data, n);
	if (r == 0)
		r = FAULT("state-written");
	if (r == 0 && renameat(dir, tmp, dir, name) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(dir, tmp, 0);
		return err_set(e, r, "cannot write '%s': %s", name, strerror(-r));
	}
	return 0;
}

/* ---- sandboxes ---- */

/* Draws uniformly: rejects bytes that would favour some characters. */
int state_draw_id(char id[static SPEC_ID + 1])
{
	size_t n = 0;

	while (n < SPEC_ID) {
		const unsigned int range = n == 0 ? 26 : 36;
		unsigned char bytes[2 * SPEC_ID] = { 0 };

		if (RETRY_EINTR(getrandom(bytes, sizeof(bytes), 0)) != (ssize_t)sizeof(bytes))
			return -EIO;
		for (size_t i = 0; i < sizeof(bytes) && n < (range == 26 ? 1 : SPEC_ID); i++)
			if (bytes[i] < 256 / range * range)
				id[n++] = letters[bytes[i] % range];
	}
	id[SPEC_ID] = '\0';
	return 0;
}

static int open_dir(int top, const char *id)
{
	int fd = RETRY_EINTR(openat(top, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));

	return fd < 0 ? -errno : fd;
}

/* -EAGAIN: the id is in use, or a sweep removed the directory before it was locked. */
static int make_dir(const struct state_root *r, const char *id, int *ret_dir)
{
	_cleanup_close_ int fd = -EBADF;
	struct stat st;

	if (mkdirat(r->dir, id, 0700) < 0)
		return errno == EEXIST ? -EAGAIN : -errno;
	(void)FAULT("state-made");
	fd = open_dir(r->dir, id);
	if (fd < 0)
		return fd == -ENOENT ? -EAGAIN : fd;
	if (flock(fd, LOCK_SH | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_nlink == 0)
		return -EAGAIN;
	*ret_dir = TAKE_FD(fd);
	return 0;
}

int state_make(const struct state_root *r, const char *id, int *ret_dir)
{
	return make_dir(r, id, ret_dir);
}

int state_new(const struct state_root *r, char ret_id[static SPEC_ID + 1], int *ret_dir,
	      struct err *e)
{
	int k = -EAGAIN;

	for (int i = 0; k == -EAGAIN && i < NEW_TRIES; i++) {
		k = state_draw_id(ret_id);
		if (k == 0)
			k = make_dir(r, ret_id, ret_dir);
	}
	if (k < 0)
		return err_set(e, k, "cannot make a directory in '%s/sandboxes': %s", r->path,
			       strerror(-k));
	return 0;
}

/* Is this a well-formed id or prefix of one? */
static bool could_be_id(const char *s)
{
	size_t n = strlen(s);

	return n >= PREFIX_MIN && n <= SPEC_ID && ascii_is_lower(s[0]) && strspn(s, letters) == n;
}

bool state_group_is_ours(const struct state_root *r, const char *group,
			 char ret_id[static SPEC_ID + 1])
{
	char id[SPEC_ID + 1];

	if (strlen(group) <= SPEC_ID || group[SPEC_ID] != '-' ||
	    !str_eq(group + SPEC_ID + 1, r->tag))
		return false;
	memcpy(id, group, SPEC_ID);
	id[SPEC_ID] = '\0';
	if (!spec_id_valid(id))
		return false;
	memcpy(ret_id, id, sizeof(id));
	return true;
}

/* Calls `fn` with every id until it returns nonzero. */
static int each_id(int top, int (*fn)(const char *id, void *arg), void *arg)
{
	DIR *d = fd_list(top);
	struct dirent *entry;
	int k = 0;

	if (!d)
		return -errno;
	while (k == 0 && (errno = 0, entry = readdir(d)))
		if (spec_id_valid(entry->d_name))
			k = fn(entry->d_name, arg);
	if (k == 0 && !entry)
		k = -errno;
	(void)closedir(d);
	return k;
}

struct search {
	const char *prefix;
	char id[SPEC_ID + 1];
	size_t n;
};

static int match_id(const char *id, void *arg)
{
	struct search *s = arg;

	if (!str_has_prefix(id, s->prefix))
		return 0;
	memcpy(s->id, id, SPEC_ID + 1);
	s->n++;
	return 0;
}

int state_find_in(int top, const char *what, const char *prefix, char ret_id[static SPEC_ID + 1],
		  int *ret_dir, struct err *e)
{
	struct search s = { .prefix = prefix };
	int k, fd;

	if (!could_be_id(prefix))
		return err_set(e, -EINVAL,
			       "'%.80s' is not the id of a sandbox: %d to %d letters and digits",
			       prefix, PREFIX_MIN, SPEC_ID);
	k = each_id(top, match_id, &s);
	if (k < 0)
		return err_set(e, k, "cannot list '%s': %s", what, strerror(-k));
	if (s.n > 1)
		return err_set(e, -ENOTUNIQ, "%zu sandboxes begin with '%s': give more letters",
			       s.n, prefix);
	memcpy(ret_id, s.id, SPEC_ID + 1);
	fd = s.n == 1 ? open_dir(top, s.id) : -ENOENT;
	if (fd == -ENOENT)
		return err_set(e, fd, "no sandbox '%s': see 'hutch ps -a'", prefix);
	if (fd < 0)
		return err_set(e, fd, "cannot open the state of '%s': %s", s.id, strerror(-fd));
	*ret_dir = fd;
	return 0;
}

int state_find(const struct state_root *r, const char *prefix, char ret_id[static SPEC_ID + 1],
	       int *ret_dir, struct err *e)
{
	char what[sizeof(r->path) + FILE_NAME];

	(void)snprintf(what, sizeof(what), "%s/sandboxes", r->path);
	return state_find_in(r->dir, what, prefix, ret_id, ret_dir, e);
}

struct id_array {
	char (*v)[SPEC_ID + 1];
	size_t n, cap;
};

static int add_id(const char *id, void *arg)
{
	struct id_array *a = arg;

	if (a->n == LIST_MAX)
		return -E2BIG;
	if (a->n == a->cap) {
		size_t cap = MAX((size_t)16, 2 * a->cap);
		char(*v)[SPEC_ID + 1] = realloc(a->v, cap * sizeof(v[0]));

		if (!v)
			return -ENOMEM;
		a->v = v;
		a->cap = cap;
	}
	memcpy(a->v[a->n++], id, SPEC_ID + 1);
	return 0;
}

static int compare_ids(const void *a, const void *b)
{
	return strcmp(a, b);
}

int state_list_in(int top, const char *what, char (**ret)[SPEC_ID + 1], size_t *ret_n,
		  struct err *e)
{
	struct id_array a = { 0 };
	int k = each_id(top, add_id, &a);

	if (k < 0) {
		free(a.v);
		return err_set(e, k, "cannot list '%s': %s", what, strerror(-k));
	}
	if (a.n > 0)
		qsort(a.v, a.n, sizeof(a.v[0]), compare_ids);
	*ret = a.v;
	*ret_n = a.n;
	return 0;
}

int state_list(const struct state_root *r, char (**ret)[SPEC_ID + 1], size_t *ret_n, struct err *e)
{
	char what[sizeof(r->path) + FILE_NAME];

	(void)snprintf(what, sizeof(what), "%s/sandboxes", r->path);
	return state_list_in(r->dir, what, ret, ret_n, e);
}

static int empty_dir(int dir)
{
	DIR *d = fd_list(dir);
	struct dirent *entry;
	int k = 0;

	if (!d)
		return -errno;
	while (k == 0 && (entry = readdir(d))) {
		if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, ".."))
			continue;
		if (unlinkat(dir, entry->d_name, 0) < 0 && errno != ENOENT)
			k = -errno;
	}
	(void)closedir(d);
	return k;
}

int state_remove(const struct state_root *r, const char *id)
{
	_cleanup_close_ int dir = open_dir(r->dir, id);
	int k = dir < 0 ? dir : empty_dir(dir);

	if (k == 0)
		k = FAULT("state-emptied");
	if (k == 0 && unlinkat(r->dir, id, AT_REMOVEDIR) < 0)
		k = -errno;
	return k == -ENOENT ? 0 : k; /* another process has removed it */
}
