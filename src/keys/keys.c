/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the key file, checks its owner and mode, detects changes, and checks keys against it. */
#include "keys/keys.h"

#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/state-dir.h"
#include "base/str.h"

#define LOOK_EVERY (500 * NSEC_PER_MSEC)

static int check_dir(int fd, const char *path, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(e, "cannot stat the directory of '%s'", path);
	if (st.st_uid != geteuid())
		return err_set(e, -EPERM,
			       "the directory of '%s' belongs to uid %u: run hutch as that user",
			       path, (unsigned int)st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return err_set(e, -EPERM,
			       "others can write to the directory of '%s': change its mode to 0700",
			       path);
	return 0;
}

int keys_open(struct keys *k, bool make, struct err *e)
{
	char base[KEYS_PATH_MAX - STRLEN("/hutch/" KEYS_FILE)];
	_cleanup_close_ int at = -EBADF, fd = -EBADF;
	const char *prefix = NULL, *below;
	int r = state_dir_open(make, base, sizeof(base), &prefix, &at, e);

	*k = (struct keys)KEYS_INIT;
	if (r < 0)
		return r;
	below = prefix[0] ? "hutch" : ".";
	(void)snprintf(k->path, sizeof(k->path), "%s/%s" KEYS_FILE, base, prefix);
	r = make ? path_mkdirs(at, below, 0700) : 0;
	if (r == 0)
		r = fd = path_open_nofollow(at, below, O_RDONLY | O_DIRECTORY, 0);
	if (r < 0)
		return err_set(e, r, "cannot open the directory of '%s': %s", k->path,
			       strerror(-r));
	r = check_dir(fd, k->path, e);
	if (r == 0)
		k->dir = TAKE_FD(fd);
	return r;
}

static void forget(struct keys *k)
{
	free(k->list);
	k->list = NULL;
	k->n = 0;
	memset(&k->stamp, 0, sizeof(k->stamp));
}

void keys_close(struct keys *k)
{
	k->dir = fd_close(k->dir);
	forget(k);
}

static int check_file(const struct stat *st, struct err *e)
{
	if (!S_ISREG(st->st_mode))
		return err_set(e, -EINVAL, "not a regular file");
	if (st->st_uid != geteuid())
		return err_set(e, -EPERM, "belongs to uid %u, not to you",
			       (unsigned int)st->st_uid);
	if (st->st_mode & (S_IRWXG | S_IRWXO))
		return err_set(e, -EPERM, "others have access to it: change its mode to 0600");
	return 0;
}

/* Reads the file, unless its stamp shows that it is unchanged. */
static int refresh(struct keys *k, int fd, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(KEYS_FILE_MAX);
	__typeof__(k->stamp) now = { 0 };
	struct key_entry *list = NULL;
	struct stat st;
	size_t n = 0;
	int r;

	if (fstat(fd, &st) < 0)
		return err_errno(e, "cannot stat it");
	r = check_file(&st, e);
	if (r < 0)
		return r;
	now.dev = st.st_dev;
	now.ino = st.st_ino;
	now.size = (uint64_t)st.st_size;
	now.mtime = clock_of(st.st_mtim);
	now.ctime = clock_of(st.st_ctim);
	if (memcmp(&now, &k->stamp, sizeof(now)) == 0)
		return 0;
	r = fd_read_all(fd, &b);
	if (r < 0)
		return err_set(e, r, "%s",
			       r == -EFBIG ? "too large for a list of keys" : strerror(-r));
	r = keys_read_text(buf_text(&b), b.len, &list, &n, e);
	if (r < 0)
		return r;
	forget(k);
	k->list = list;
	k->n = n;
	k->stamp = now;
	return 0;
}

int keys_load(struct keys *k, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r = 0;

	k->looked = clock_mono();
	k->trouble = (struct err)ERR_INIT;
	/* O_NONBLOCK: opening a FIFO must not block. */
	fd = RETRY_EINTR(openat(k->dir, KEYS_FILE,
				O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
	if (fd < 0 && errno == ENOENT) {
		forget(k);
		return 0;
	}
	r = fd < 0 ? err_errno(e, "cannot open it") : refresh(k, fd, e);
	if (r == 0)
		return 0;
	(void)err_wrap(e, "%s", k->path);
	k->trouble = *e;
	forget(k);
	return r;
}

bool keys_trouble(struct keys *k, struct err *ret)
{
	bool new = k->trouble.num && !str_eq(k->trouble.msg, k->told.msg);

	k->told = k->trouble;
	if (new)
		*ret = k->trouble;
	return new;
}

/* Returns 1 + the index of `hash`, or 0. Compares all entries in full: the time reveals nothing. */
static size_t place_of(const struct keys *k, const uint8_t hash[static KEY_HASH])
{
	size_t at = 0;

	for (size_t i = 0; i < k->n; i++) {
		size_t same = sodium_memcmp(k->list[i].hash, hash, KEY_HASH) == 0;

		at |= (0 - same) & (i + 1);
	}
	return at;
}

int keys_check(struct keys *k, const char *text, size_t n, struct key_info *ret)
{
	struct err ignored = ERR_INIT; /* k->trouble keeps the error */
	uint8_t hash[KEY_HASH];
	size_t at;

	if (k->looked == 0 || clock_mono() - k->looked >= LOOK_EVERY)
		(void)keys_load(k, &ignored);
	if (k->trouble.num)
		return -EIO;
	if (!key_text_valid(text, n))
		return -ENOKEY;
	key_hash(text, n, hash);
	at = place_of(k, hash);
	/* The key may be new. An unchanged file is not read again. */
	if (at == 0 && keys_load(k, &ignored) == 0)
		at = place_of(k, hash);
	if (at == 0 || !k->list)
		return -ENOKEY;
	if (k->list[at - 1].info.expires && clock_wall() >= k->list[at - 1].info.expires)
		return -EKEYEXPIRED;
	*ret = k->list[at - 1].info;
	return 0;
}
