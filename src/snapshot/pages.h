/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles files that are mostly zeros: a VM's memory or disk. Reads, hashes and copies only
 * non-zero pages (holes are skipped), so the cost depends on the data, not on the file size.
 *
 * The digest is BLAKE2b-256 of the size (8 bytes, little endian), then for each non-zero page of 4
 * KiB, in order, its offset (8 bytes) and its bytes, the last page padded with zeros. It covers all
 * contents and does not depend on the position of holes, which differs between file systems.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
	PAGES_SIZE = 4096,
	PAGES_DIGEST = 32,
	PAGES_HEX = 2 * PAGES_DIGEST + 1,
};

/* Reads all of `fd`, which has `size` bytes. Resets the offset of `fd` to 0. 0; -EBADMSG: the file
 * is shorter; -errno. */
int pages_digest(int fd, uint64_t size, char ret_hex[static PAGES_HEX]);

/* Where pages come from. */
struct pages_from {
	/* Finds the next data from `*pos` on, in whole pages; all else is zeros. 1; 0: there is
	 * none; -errno. */
	int (*next)(void *arg, uint64_t *pos, uint64_t *ret_end);
	/* Reads `n` bytes inside the range that was found last. 0 or -errno. */
	int (*read)(void *arg, uint64_t offset, char *to, size_t n);
	void *arg;
};

/* Writes the non-zero pages to the same offsets of `to`, an empty file, and sets its size. Short
 * runs of zero pages between others are written too, so that the file has few pieces. */
int pages_copy(const struct pages_from *from, uint64_t size, int to,
	       char ret_hex[static PAGES_HEX]);

/* Reads `n` bytes at `offset`. -EBADMSG: the file ends before. */
int pages_read(int fd, uint64_t offset, char *to, size_t n);

/* Finds the next data of a file, as above; `size`: of the file. */
int pages_next_data(int fd, uint64_t size, uint64_t *pos, uint64_t *ret_end);
