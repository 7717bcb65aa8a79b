/* SPDX-License-Identifier: Apache-2.0 */
/* Moves, finds and removes kept sandboxes. */
#include "state/kept.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "state/kept-inner.h"

enum {
	LINE_MAX_BYTES = 160,
	DEPTH_MAX = 16, /* nested directories; only a damaged sandbox has any */
	REMOVE_TRIES = 8,
	NAME_BYTES = SPEC_ID + sizeof(KEPT_GONE),
};

static const char file[] = "kept";

/* ---- the file `kept` ---- */

/*
 * Computes the size on disk. `tidy`: also removes sockets and empty files, such as the lock and
 * unused records.
 */
static int weigh(int dir, bool tidy, uint64_t *ret)
{
	DIR *d = fd_list(dir);
	const struct dirent *entry;
	uint64_t sum = 0;
	struct stat st;

	if (!d)
		return -errno;
	while ((entry = readdir(d))) {
		if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, "..") ||
		    fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (tidy && (S_ISSOCK(st.st_mode) || (S_ISREG(st.st_mode) && st.st_size == 0)))
			(void)unlinkat(dir, entry->d_name, 0);
		else
			sum += (uint64_t)st.st_blocks * 512;
	}
	(void)closedir(d);
	*ret = sum;
	return 0;
}

/* Determines the values of `kept`. A damaged sandbox counts as ended at its last change. */
static int find_out(int dir, bool tidy, struct kept *ret)
{
	_cleanup_spec_ struct spec spec = { 0 };
	struct err ignored = ERR_INIT;
	struct kept k = { 0 };
	struct end end = { 0 };
	struct stat st;
	int r = weigh(dir, tidy, &k.bytes);

	if (r < 0)
		return r;
	if (fstat(dir, &st) < 0)
		return -errno;
	k.time = end_read(dir, &end, &ignored) == 0
			 ? end.time
			 : (uint64_t)MAX(st.st_mtim.tv_sec, (time_t)0) * NSEC_PER_SEC;
	if (spec_read(dir, &spec, &ignored) < 0 || spec_owner(&spec, k.owner, &ignored) < 0)
		k.owner[0] = '\0';
	*ret = k;
	return 0;
}

static int parse(char *line, struct kept *ret)
{
	const char *time = strsep(&line, " "), *bytes = strsep(&line, " "),
		   *whole = strsep(&line, " "), *owner = line;
	struct kept k = { 0 };

	if (!time || !bytes || !whole || !owner || strlen(owner) > SPEC_OWNER_MAX ||
	    str_to_u64(time, strlen(time), UINT64_MAX, &k.time) < 0 ||
	    str_to_u64(bytes, strlen(bytes), UINT64_MAX, &k.bytes) < 0)
		return -EINVAL;
	k.cut = str_eq(whole, "cut");
	if (!k.cut && !str_eq(whole, "whole"))
		return -EINVAL;
	memcpy(k.owner, owner, strlen(owner) + 1);
	*ret = k;
	return 0;
}

static int write_line(int dir, const struct kept *k, struct err *e)
{
	char line[LINE_MAX_BYTES];
	int n = snprintf(line, sizeof(line), "%llu %llu %s %s\n", (unsigned long long)k->time,
			 (unsigned long long)k->bytes, k->cut ? "cut" : "whole", k->owner);

	assert(n > 0 && (size_t)n < sizeof(line));
	return state_write(dir, file, line, (size_t)n, e);
}

/* -EINVAL: the file exists and is invalid. */
static int read_line(int dir, struct kept *ret)
{
	char line[LINE_MAX_BYTES];
	int r = fd_read_line(dir, file, line, sizeof(line));

	return r < 0 ? r : parse(line, ret);
}

int kept_read(int dir, struct kept *ret, struct err *e)
{
	struct err ignored = ERR_INIT;
	struct kept k = { 0 };
	int r = read_line(dir, &k);

	if (r < 0) {
		r = find_out(dir, false, &k);
		if (r < 0)
			return err_set(e, r, "cannot read the kept sandbox: %s", strerror(-r));
		(void)write_line(dir, &k, &ignored);
	}
	*ret = k;
	return 0;
}

bool kept_is_cut(int dir)
{
	struct kept k = { 0 };

	return read_line(dir, &k) == 0 && k.cut;
}

/* ---- adding ---- */

/* Counts a new sandbox for kept_is_due(): the file grows by a byte, and a byte per MiB. */
static void count(const struct state_root *r, uint64_t bytes)
{
	static const char units[KEPT_DUE];
	_cleanup_close_ int fd =
		RETRY_EINTR(openat(r->ended, KEPT_SINCE,
				   O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));

	if (fd >= 0)
		(void)fd_write_all(fd, units, MIN(sizeof(units), (size_t)(1 + (bytes >> 20))));
}

/* Is `dir` still sandboxes/ID, or has another process moved or removed it? */
static bool is_in_place(const struct state_root *r, const char *id, int dir)
{
	struct stat a, b;

	return fstatat(r->dir, id, &a, AT_SYMLINK_NOFOLLOW) == 0 && fstat(dir, &b) == 0 &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int kept_move(const struct state_root *r, const char *id, int dir, struct err *e)
{
	struct err ignored = ERR_INIT;
	struct kept k = { 0 };
	int n;

	if (!is_in_place(r, id, dir))
		return 0;
	/* If the write fails, kept_read() determines the values later. */
	if (find_out(dir, true, &k) == 0)
		(void)write_line(dir, &k, &ignored);
	n = FAULT("kept-weighed");
	if (n == 0 && renameat(r->dir, id, r->ended, id) < 0)
		n = -errno;
	if (n == -ENOTEMPTY || n == -EEXIST || n == -ENOTDIR) {
		/* Ids are never reused: the existing entry is garbage. */
		n = kept_remove(r, id);
		if (n == 0 && renameat(r->dir, id, r->ended, id) < 0)
			n = -errno;
	}
	if (n == -ENOENT)
		return 0;
	if (n < 0)
		return err_set(e, n, "cannot keep the directory of sandbox %s: %s", id,
			       strerror(-n));
	(void)FAULT("kept-moved");
	count(r, k.bytes);
	return 0;
}

/* ---- finding ---- */

int kept_open(const struct state_root *r, const char *id)
{
	int fd = RETRY_EINTR(openat(r->ended, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));

	return fd < 0 ? -errno : fd;
}

int kept_list(const struct state_root *r, char (**ret)[SPEC_ID + 1], size_t *ret_n, struct err *e)
{
	char what[sizeof(r->path) + 16];

	(void)snprintf(what, sizeof(what), "%s/ended", r->path);
	return state_list_in(r->ended, what, ret, ret_n, e);
}

int kept_find(const struct state_root *r, const char *prefix, char ret_id[static SPEC_ID + 1],
	      int *ret_dir, struct err *e)
{
	char what[sizeof(r->path) + 16];
	int n;

	(void)snprintf(what, sizeof(what), "%s/ended", r->path);
	n = state_find_in(r->ended, what, prefix, ret_id, ret_dir, e);
	return n == -ELOOP || n == -ENOTDIR
		       ? err_set(e, n, "the kept sandbox %s is damaged: hutch rm %s", ret_id,
				 ret_id)
		       : n;
}

/* ---- removing ---- */

static int remove_all(int top, const char *name, unsigned int depth);

static int empty(int dir, unsigned int depth)
{
	DIR *d = fd_list(dir);
	const struct dirent *entry;
	int r = 0;

	if (!d)
		return -errno;
	while (r == 0 && (entry = readdir(d)))
		if (!str_eq(entry->d_name, ".") && !str_eq(entry->d_name, ".."))
			r = remove_all(dir, entry->d_name, depth);
	(void)closedir(d);
	return r;
}

/* Removes a file, a link itself or a directory tree. Retries, because a concurrent kept_read() may
 * write `kept` again. */
static int remove_all(int top, const char *name, unsigned int depth)
{
	_cleanup_close_ int dir = -EBADF;
	int r;

	if (unlinkat(top, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	dir = RETRY_EINTR(openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (dir < 0)
		return errno == ENOENT ? 0 : -errno;
	r = -ENOTEMPTY;
	for (int i = 0; r == -ENOTEMPTY && i < REMOVE_TRIES; i++) {
		r = depth > 0 ? empty(dir, depth - 1) : -ELOOP;
		if (r == 0 && unlinkat(top, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			r = -errno;
	}
	return r;
}

/* Renames first, so that no other process finds a half-removed sandbox. */
int kept_remove(const struct state_root *r, const char *id)
{
	char gone[NAME_BYTES];
	int n = snprintf(gone, sizeof(gone), "%s" KEPT_GONE, id);

	assert(n > 0 && (size_t)n < sizeof(gone));
	n = remove_all(r->ended, gone, DEPTH_MAX); /* from an interrupted removal */
	if (n == 0 && renameat(r->ended, id, r->ended, gone) < 0 && errno != ENOENT)
		n = -errno;
	if (n == 0)
		n = FAULT("kept-gone");
	return n < 0 ? n : remove_all(r->ended, gone, DEPTH_MAX);
}

int kept_remove_gone(const struct state_root *r)
{
	DIR *d = fd_list(r->ended);
	const struct dirent *entry;
	int n = 0, first = 0;

	if (!d)
		return -errno;
	while ((entry = readdir(d))) {
		if (str_has_suffix(entry->d_name, KEPT_GONE))
			n = remove_all(r->ended, entry->d_name, DEPTH_MAX);
		if (first == 0)
			first = n;
	}
	(void)closedir(d);
	return first;
}

/* Removes only the records: spec, end and receipt stay. */
int kept_cut(const struct state_root *r, const char *id, struct kept *k)
{
	_cleanup_close_ int dir = kept_open(r, id);
	DIR *d = dir < 0 ? NULL : fd_list(dir);
	struct err ignored = ERR_INIT;
	const struct dirent *entry;
	int n = 0;

	if (!d)
		return dir < 0 ? dir : -errno;
	k->cut = true;
	n = write_line(dir, k, &ignored);
	while (n == 0 && (entry = readdir(d)))
		if (str_has_prefix(entry->d_name, "cmd-"))
			n = remove_all(dir, entry->d_name, 0);
	(void)closedir(d);
	if (n == 0)
		n = weigh(dir, false, &k->bytes);
	return n < 0 ? n : write_line(dir, k, &ignored);
}
