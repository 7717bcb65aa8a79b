/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/ledger.h"

#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/state-dir.h"

#define LEDGER_DIR "ledger"
#define MAGIC	   0x3152474c48435448ULL /* a file of another version is not valid */

enum {
	SLOTS = 2,
	HASH = 32,
};

/* As it is in the file: every field has a fixed place, and the host reads its own files only. */
struct slot {
	uint64_t magic, change;
	struct ledger_counter counters[LEDGER_COUNTERS];
	uint8_t hash[HASH]; /* covers all fields before it */
};

static_assert(sizeof(struct slot) == 16 + LEDGER_COUNTERS * 24 + HASH, "a slot has no holes");
static_assert(HASH == crypto_hash_sha256_BYTES, "the hash is SHA-256");

static int open_dir(bool make, int *ret_fd, struct err *e)
{
	_cleanup_close_ int top = -EBADF;
	char base[PATH_MAX], below[64];
	const char *prefix = NULL;
	int r = state_dir_open(make, base, sizeof(base), &prefix, &top, e);

	if (r < 0)
		return r;
	(void)snprintf(below, sizeof(below), "%s" LEDGER_DIR, prefix);
	if (make)
		r = path_mkdirs(top, below, 0700);
	if (r == 0)
		r = path_open_nofollow(top, below, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (r < 0)
		return err_set(e, r, "cannot open '%s/%s': %s", base, below, strerror(-r));
	*ret_fd = r;
	return 0;
}

int ledger_open(const char *name, struct ledger *ret, struct err *e)
{
	struct ledger l = LEDGER_INIT;
	int r = open_dir(true, &l.dir, e);

	if (r < 0)
		return r;
	(void)snprintf(l.name, sizeof(l.name), "%s", name);
	*ret = l;
	return 0;
}

int ledger_open_all(int *ret_fd, struct err *e)
{
	return open_dir(false, ret_fd, e);
}

bool ledger_remove_unused(int all, const char *name)
{
	_cleanup_close_ int fd = path_open_nofollow(all, name, O_RDWR | O_CLOEXEC, 0);

	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(all, name, 0) == 0;
}

void ledger_close(struct ledger *l)
{
	l->dir = fd_close(l->dir);
	l->file = fd_close(l->file);
}

void ledger_remove(struct ledger *l)
{
	if (l->dir >= 0)
		(void)unlinkat(l->dir, l->name, 0);
}

/* ---- one change ---- */

/* Locks the file against ledger_remove_unused(), which may just remove it. */
static int try_open(struct ledger *l)
{
	_cleanup_close_ int fd = -EBADF;
	struct stat st;

	fd = path_open_nofollow(l->dir, l->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return fd;
	if (RETRY_EINTR(flock(fd, LOCK_SH)) < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_nlink == 0)
		return -EAGAIN;
	l->file = TAKE_FD(fd);
	return 0;
}

static int open_file(struct ledger *l, struct err *e)
{
	int r = l->file >= 0 ? 0 : -EAGAIN;

	while (r == -EAGAIN)
		r = try_open(l);
	return r < 0 ? err_set(e, r, "cannot open the ledger '%s': %s", l->name, strerror(-r)) : 0;
}

/* Locks of open file descriptions: other ones of this process exclude each other, too. */
static int lock(const struct ledger *l, short type)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };

	return RETRY_EINTR(fcntl(l->file, F_OFD_SETLKW, &lock)) < 0 ? -errno : 0;
}

static void hash_of(const struct slot *s, uint8_t out[static HASH])
{
	(void)crypto_hash_sha256(out, (const unsigned char *)s, offsetof(struct slot, hash));
}

static bool is_valid(const struct slot *s)
{
	uint8_t hash[HASH];

	hash_of(s, hash);
	return s->magic == MAGIC && memcmp(hash, s->hash, HASH) == 0;
}

/* Reads the newest valid slot; a new file has none. */
static int read_slots(const struct ledger *l, struct slot *ret, struct err *e)
{
	struct slot slots[SLOTS];
	ssize_t n;

	memset(slots, 0, sizeof(slots));
	memset(ret, 0, sizeof(*ret));
	ret->magic = MAGIC;
	n = RETRY_EINTR(pread(l->file, slots, sizeof(slots), 0));
	if (n < 0)
		return err_errno(e, "cannot read the ledger '%s'", l->name);
	if (n == 0)
		return 0;
	for (size_t i = 0; i < SLOTS; i++)
		if (is_valid(&slots[i]) && slots[i].change > ret->change)
			*ret = slots[i];
	if (ret->change == 0)
		return err_set(e, -EBADMSG,
			       "the ledger '%s' is damaged: no call is granted; remove the file to "
			       "begin with an unused budget",
			       l->name);
	return 0;
}

static int write_slot(const struct ledger *l, struct slot *s, struct err *e)
{
	off_t at;

	s->change++;
	at = (off_t)(s->change % SLOTS * sizeof(*s));
	hash_of(s, s->hash);
	if (RETRY_EINTR(pwrite(l->file, s, sizeof(*s), at)) != (ssize_t)sizeof(*s) ||
	    fdatasync(l->file) < 0)
		return err_errno(e, "cannot write the ledger '%s'", l->name);
	return 0;
}

int ledger_change(struct ledger *l, size_t i, int (*change)(struct ledger_counter *c, void *arg),
		  void *arg, struct err *e)
{
	struct slot s;
	int r = open_file(l, e), result = 0;

	assert(i < LEDGER_COUNTERS);
	if (r < 0)
		return r;
	r = lock(l, F_WRLCK);
	if (r < 0)
		return err_set(e, r, "cannot lock the ledger '%s': %s", l->name, strerror(-r));
	r = read_slots(l, &s, e);
	if (r == 0)
		r = result = change(&s.counters[i], arg);
	if (r >= 0)
		r = write_slot(l, &s, e);
	(void)lock(l, F_UNLCK);
	return r < 0 ? r : result;
}
