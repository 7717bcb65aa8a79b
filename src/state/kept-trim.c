/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes room among kept sandboxes. A trim reads a small file of each, so it does not run at every
 * end of a sandbox: kept_is_due() decides, with two syscalls.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "state/kept-inner.h"

enum {
	SOON_S = 60,
	SELDOM_S = 3600,
	PART_OF_DISK = 4, /* use at most a quarter: the run directory is usually in memory */
};

bool kept_is_due(const struct state_root *r)
{
	struct stat since, trimmed;
	uint64_t now = clock_wall() / NSEC_PER_SEC, age;

	if (fstatat(r->ended, KEPT_SINCE, &since, AT_SYMLINK_NOFOLLOW) < 0)
		since.st_size = 0;
	if (fstatat(r->ended, KEPT_TRIMMED, &trimmed, AT_SYMLINK_NOFOLLOW) < 0)
		return since.st_size > 0;
	/* If the clock was set back, trim at once. */
	age = now >= (uint64_t)trimmed.st_mtim.tv_sec ? now - (uint64_t)trimmed.st_mtim.tv_sec
						      : SELDOM_S;
	return since.st_size >= KEPT_DUE || age >= SELDOM_S || (age >= SOON_S && since.st_size > 0);
}

struct entry {
	char id[SPEC_ID + 1];
	bool gone;
	struct kept k;
};

/* The entries of one owner are adjacent, the oldest first. */
struct owner {
	size_t next, end; /* remaining entries */
	uint64_t bytes;
};

struct trim {
	const struct state_root *root;
	struct kept_limits limits;
	void (*took)(void *arg, const char *id);
	void *arg;
	struct entry *v;
	struct owner *owners;
	size_t n, left, n_owners;
	uint64_t bytes;
	int first; /* first error */
};

static int by_owner_and_time(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int c = strcmp(x->k.owner, y->k.owner);

	if (c != 0)
		return c;
	return x->k.time == y->k.time ? strcmp(x->id, y->id) : x->k.time > y->k.time ? 1 : -1;
}

static void drop(struct trim *t, struct entry *x)
{
	int r = kept_remove(t->root, x->id);

	x->gone = true;
	if (r < 0) {
		if (t->first == 0)
			t->first = r;
		return;
	}
	if (t->took)
		t->took(t->arg, x->id);
}

/* Reads all entries. A damaged one has no owner and no size, and counts as ended now. */
static int load(struct trim *t, uint64_t now, struct err *e)
{
	_cleanup_free_ char(*ids)[SPEC_ID + 1] = NULL;
	size_t n = 0;
	int r = kept_list(t->root, &ids, &n, e);

	if (r < 0)
		return r;
	t->v = calloc(n + 1, sizeof(*t->v));
	t->owners = calloc(n + 1, sizeof(*t->owners));
	if (!t->v || !t->owners)
		return err_oom(e);
	for (size_t i = 0; i < n; i++) {
		_cleanup_close_ int dir = kept_open(t->root, ids[i]);
		struct entry *x = &t->v[t->n];
		struct err ignored = ERR_INIT;

		if (dir == -ENOENT)
			continue;
		memcpy(x->id, ids[i], sizeof(x->id));
		x->k = (struct kept){ .time = now };
		if (dir >= 0)
			(void)kept_read(dir, &x->k, &ignored);
		t->n++;
	}
	return 0;
}

/* With a time limit of 0, all go: also damaged ones, and those with a time in the future. */
static void drop_old(struct trim *t, uint64_t now)
{
	for (size_t i = 0; i < t->n; i++) {
		uint64_t time = t->v[i].k.time;

		if (t->limits.time == 0 || (time < now && now - time >= t->limits.time))
			drop(t, &t->v[i]);
	}
}

/* Groups the remaining entries by owner. */
static void share_out(struct trim *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		if (!t->v[i].gone)
			t->v[n++] = t->v[i];
	t->n = t->left = n;
	if (n > 0)
		qsort(t->v, n, sizeof(*t->v), by_owner_and_time);
	for (size_t i = 0; i < n; i++) {
		struct owner *o;

		if (i == 0 || !str_eq(t->v[i].k.owner, t->v[i - 1].k.owner))
			t->owners[t->n_owners++] = (struct owner){ .next = i };
		o = &t->owners[t->n_owners - 1];
		o->end = i + 1;
		o->bytes += t->v[i].k.bytes;
		t->bytes += t->v[i].k.bytes;
	}
}

static void subtract(struct trim *t, struct owner *o, uint64_t bytes)
{
	o->bytes -= bytes;
	t->bytes -= bytes;
}

/* Removes the records of sandboxes larger than their owner's share, and keeps the rest of them. */
static void cut_large(struct trim *t)
{
	uint64_t share = t->n_owners > 0 ? t->limits.space / t->n_owners : 0;

	for (size_t i = 0; t->bytes > t->limits.space && i < t->n_owners; i++)
		for (size_t k = t->owners[i].next; k < t->owners[i].end; k++) {
			uint64_t was = t->v[k].k.bytes;
			int r = 0;

			if (was > share && !t->v[k].k.cut)
				r = kept_cut(t->root, t->v[k].id, &t->v[k].k);
			if (r < 0 && r != -ENOENT && t->first == 0)
				t->first = r;
			if (r == 0 && t->v[k].k.bytes < was)
				subtract(t, &t->owners[i], was - t->v[k].k.bytes);
		}
}

/* Returns the owner with the most bytes or the most entries. */
static struct owner *largest(const struct trim *t, bool by_bytes)
{
	struct owner *most = NULL;

	for (size_t i = 0; i < t->n_owners; i++) {
		struct owner *o = &t->owners[i];

		if (o->next == o->end)
			continue;
		if (!most ||
		    (by_bytes ? o->bytes > most->bytes : o->end - o->next > most->end - most->next))
			most = o;
	}
	return most;
}

static void make_room(struct trim *t)
{
	while (t->left > 0 && (t->bytes > t->limits.space || t->left > t->limits.number)) {
		struct owner *o = largest(t, t->bytes > t->limits.space);
		struct entry *x = &t->v[o->next++];

		t->left--;
		subtract(t, o, x->k.bytes);
		drop(t, x);
	}
}

/* Limits the allowed space to a part of the file system. */
static uint64_t space_of(const struct state_root *r, uint64_t allowed)
{
	struct statvfs s;

	if (fstatvfs(r->ended, &s) < 0)
		return allowed;
	return MIN(allowed, (uint64_t)s.f_blocks * s.f_frsize / PART_OF_DISK);
}

/* Takes the lock. -EBUSY: another process trims and `wait` is false. *ret_size: size of `since`. */
static int begin(const struct state_root *r, bool wait, int *ret_lock, off_t *ret_size,
		 struct err *e)
{
	_cleanup_close_ int fd = RETRY_EINTR(
		openat(r->ended, KEPT_SINCE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
	struct stat st;

	if (fd < 0)
		return err_errno(e, "cannot open '%s/ended/" KEPT_SINCE "'", r->path);
	if (RETRY_EINTR(flock(fd, wait ? LOCK_EX : LOCK_EX | LOCK_NB)) < 0)
		return errno == EWOULDBLOCK ? -EBUSY
					    : err_errno(e, "cannot lock '%s/ended'", r->path);
	if (fstat(fd, &st) < 0)
		return err_errno(e, "cannot stat '%s/ended/" KEPT_SINCE "'", r->path);
	*ret_lock = TAKE_FD(fd);
	*ret_size = st.st_size;
	return 0;
}

/*
 * Records the trim. Sandboxes that arrived after begin() count for the next one. This comes last
 * because a full file system has no room for a file before. If the write still fails, the next trim
 * stays due, which is no error.
 */
static void finish(struct trim *t, int since, off_t size)
{
	struct err ignored = ERR_INIT;
	struct stat st;

	if (state_write(t->root->ended, KEPT_TRIMMED, "", 0, &ignored) < 0)
		return;
	if ((fstat(since, &st) < 0 || ftruncate(since, MAX(st.st_size - size, (off_t)0)) < 0) &&
	    t->first == 0)
		t->first = -errno;
}

int kept_trim(const struct state_root *r, const struct kept_limits *limits, bool wait,
	      void (*took)(void *arg, const char *id), void *arg, struct err *e)
{
	struct trim t = { .root = r, .limits = *limits, .took = took, .arg = arg };
	_cleanup_close_ int lock = -EBADF;
	off_t size = 0;
	int n = begin(r, wait, &lock, &size, e);
	uint64_t now = clock_wall();

	if (n < 0)
		return n == -EBUSY ? 0 : n;
	t.limits.space = space_of(r, limits->space);
	if (limits->number == 0)
		t.limits.number = KEPT_NUMBER;
	t.first = kept_remove_gone(r);
	n = load(&t, now, e);
	if (n == 0) {
		drop_old(&t, now);
		share_out(&t);
		cut_large(&t);
		make_room(&t);
		finish(&t, lock, size);
	}
	free(t.v);
	free(t.owners);
	if (n == 0 && t.first < 0)
		n = err_set(e, t.first, "cannot make room in '%s/ended': %s", r->path,
			    strerror(-t.first));
	return n;
}
