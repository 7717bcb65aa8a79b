/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/pages.h"

#include <endian.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#include "base/util.h"

enum {
	CHUNK = 1024 * 1024,
	GAP_MAX = 16 * PAGES_SIZE, /* zeros between data that are written, not left out */
};

static_assert(CHUNK % PAGES_SIZE == 0, "a chunk is whole pages");

struct pages {
	crypto_generichash_state hash;
	const struct pages_from *from;
	int to;
	uint64_t size;
	char *chunk;
};

static bool is_zero(const char *page)
{
	return page[0] == 0 && memcmp(page, page + 1, PAGES_SIZE - 1) == 0;
}

int pages_read(int fd, uint64_t offset, char *to, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = RETRY_EINTR(pread(fd, to + done, n - done, (off_t)(offset + done)));

		if (k <= 0)
			return k < 0 ? -errno : -EBADMSG;
		done += (size_t)k;
	}
	return 0;
}

static int write_whole(const struct pages *p, const char *data, uint64_t offset, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t k =
			RETRY_EINTR(pwrite(p->to, data + done, n - done, (off_t)(offset + done)));

		if (k < 0)
			return -errno;
		done += (size_t)k;
	}
	return 0;
}

static void hash_page(struct pages *p, const char *page, uint64_t offset)
{
	const uint64_t le = htole64(offset);

	(void)crypto_generichash_update(&p->hash, (const unsigned char *)&le, sizeof(le));
	(void)crypto_generichash_update(&p->hash, (const unsigned char *)page, PAGES_SIZE);
}

/* Handles `n` bytes at `offset`, at most a chunk: hashes non-zero pages and writes runs of them. */
static int take_chunk(struct pages *p, uint64_t offset, size_t n)
{
	size_t whole = (n + PAGES_SIZE - 1) / PAGES_SIZE * PAGES_SIZE, from = 0, end = 0;
	int r = p->from->read(p->from->arg, offset, p->chunk, n);

	memset(p->chunk + n, 0, whole - n);
	for (size_t at = 0; r == 0 && at < whole; at += PAGES_SIZE) {
		if (is_zero(p->chunk + at))
			continue;
		hash_page(p, p->chunk + at, offset + at);
		if (p->to >= 0 && at - end > GAP_MAX) {
			r = write_whole(p, p->chunk + from, offset + from, end - from);
			from = at;
		} else if (end == 0) {
			from = at;
		}
		end = at + PAGES_SIZE;
	}
	return r < 0 || p->to < 0
		       ? r
		       : write_whole(p, p->chunk + from, offset + from, MIN(end, n) - MIN(from, n));
}

static int take_all(struct pages *p)
{
	uint64_t pos = 0, end = 0;
	int r = 1;

	while (pos < p->size && (r = p->from->next(p->from->arg, &pos, &end)) > 0) {
		for (; r >= 0 && pos < end; pos += CHUNK)
			r = take_chunk(p, pos, MIN(end - pos, (uint64_t)CHUNK));
		if (r < 0)
			return r;
		pos = end;
	}
	return r < 0 ? r : 0;
}

static int take(const struct pages_from *from, uint64_t size, int to,
		char ret_hex[static PAGES_HEX])
{
	_cleanup_free_ char *chunk = malloc(CHUNK);
	struct pages p = { .from = from, .to = to, .size = size, .chunk = chunk };
	unsigned char digest[PAGES_DIGEST];
	const uint64_t le = htole64(size);
	int r;

	if (!chunk)
		return -ENOMEM;
	(void)crypto_generichash_init(&p.hash, NULL, 0, sizeof(digest));
	(void)crypto_generichash_update(&p.hash, (const unsigned char *)&le, sizeof(le));
	r = take_all(&p);
	if (r < 0)
		return r;
	(void)crypto_generichash_final(&p.hash, digest, sizeof(digest));
	(void)sodium_bin2hex(ret_hex, PAGES_HEX, digest, sizeof(digest));
	return 0;
}

int pages_copy(const struct pages_from *from, uint64_t size, int to, char ret_hex[static PAGES_HEX])
{
	return ftruncate(to, (off_t)size) < 0 ? -errno : take(from, size, to, ret_hex);
}

/* ---- files ---- */

int pages_next_data(int fd, uint64_t size, uint64_t *pos, uint64_t *ret_end)
{
	off_t data = lseek(fd, (off_t)*pos, SEEK_DATA), hole;

	if (data < 0)
		return errno == ENXIO ? 0 : -errno;
	hole = lseek(fd, data, SEEK_HOLE);
	if (hole < 0)
		return -errno;
	*pos = (uint64_t)data / PAGES_SIZE * PAGES_SIZE;
	*ret_end = MIN(((uint64_t)hole + PAGES_SIZE - 1) / PAGES_SIZE * PAGES_SIZE, size);
	return *pos < size;
}

struct file {
	int fd;
	uint64_t size;
};

static int next_of_file(void *arg, uint64_t *pos, uint64_t *ret_end)
{
	const struct file *f = arg;

	return pages_next_data(f->fd, f->size, pos, ret_end);
}

static int read_file(void *arg, uint64_t offset, char *to, size_t n)
{
	const struct file *f = arg;

	return pages_read(f->fd, offset, to, n);
}

int pages_digest(int fd, uint64_t size, char ret_hex[static PAGES_HEX])
{
	struct file f = { .fd = fd, .size = size };
	const struct pages_from from = { .next = next_of_file, .read = read_file, .arg = &f };
	int r = take(&from, size, -EBADF, ret_hex);

	return r == 0 && lseek(fd, 0, SEEK_SET) < 0 ? -errno : r;
}
