/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/pages.h"

#include <endian.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#include "base/util.h"

enum {
	CHUNK = 1024 * 1024,
};

static_assert(CHUNK % PAGES_SIZE == 0, "a chunk is whole pages");

struct pages {
	crypto_generichash_state hash;
	int from, to;
	uint64_t size;
	char *chunk;
};

static bool is_zero(const char *page)
{
	return page[0] == 0 && memcmp(page, page + 1, PAGES_SIZE - 1) == 0;
}

static int read_whole(const struct pages *p, uint64_t offset, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = RETRY_EINTR(
			pread(p->from, p->chunk + done, n - done, (off_t)(offset + done)));

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
	size_t whole = (n + PAGES_SIZE - 1) / PAGES_SIZE * PAGES_SIZE, from = 0;
	int r = read_whole(p, offset, n);

	memset(p->chunk + n, 0, whole - n);
	for (size_t at = 0; r == 0 && at <= whole; at += PAGES_SIZE) {
		if (at < whole && !is_zero(p->chunk + at)) {
			hash_page(p, p->chunk + at, offset + at);
			continue;
		}
		if (at > from && p->to >= 0)
			r = write_whole(p, p->chunk + from, offset + from, MIN(at, n) - from);
		from = at + PAGES_SIZE;
	}
	return r;
}

/* Finds the next data from `*pos` on, in whole pages. 1; 0: there is none. */
static int next_data(const struct pages *p, uint64_t *pos, uint64_t *ret_end)
{
	off_t data = lseek(p->from, (off_t)*pos, SEEK_DATA), hole;

	if (data < 0)
		return errno == ENXIO ? 0 : -errno;
	hole = lseek(p->from, data, SEEK_HOLE);
	if (hole < 0)
		return -errno;
	*pos = (uint64_t)data / PAGES_SIZE * PAGES_SIZE;
	*ret_end = MIN(((uint64_t)hole + PAGES_SIZE - 1) / PAGES_SIZE * PAGES_SIZE, p->size);
	return *pos < p->size;
}

static int take_all(struct pages *p)
{
	uint64_t pos = 0, end = 0;
	int r = 1;

	while (pos < p->size && (r = next_data(p, &pos, &end)) > 0) {
		for (; r >= 0 && pos < end; pos += CHUNK)
			r = take_chunk(p, pos, MIN(end - pos, (uint64_t)CHUNK));
		if (r < 0)
			return r;
		pos = end;
	}
	return r < 0 ? r : 0;
}

int pages_digest(int fd, uint64_t size, int to, char ret_hex[static PAGES_HEX])
{
	_cleanup_free_ char *chunk = malloc(CHUNK);
	struct pages p = { .from = fd, .to = to, .size = size, .chunk = chunk };
	unsigned char digest[PAGES_DIGEST];
	const uint64_t le = htole64(size);
	int r;

	if (!chunk)
		return -ENOMEM;
	(void)crypto_generichash_init(&p.hash, NULL, 0, sizeof(digest));
	(void)crypto_generichash_update(&p.hash, (const unsigned char *)&le, sizeof(le));
	r = take_all(&p);
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r < 0)
		return r;
	(void)crypto_generichash_final(&p.hash, digest, sizeof(digest));
	(void)sodium_bin2hex(ret_hex, PAGES_HEX, digest, sizeof(digest));
	return 0;
}
