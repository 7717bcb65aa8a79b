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

#include <stdint.h>

enum {
	PAGES_SIZE = 4096,
	PAGES_DIGEST = 32,
	PAGES_HEX = 2 * PAGES_DIGEST + 1,
};

/* Reads all of `fd`, which has `size` bytes. With `to` >= 0, writes the non-zero pages to the same
 * offsets there; the caller has set that file to `size` bytes of zeros. Resets the offset of `fd`
 * to 0. 0; -EBADMSG: the file is shorter; -errno. */
int pages_digest(int fd, uint64_t size, int to, char ret_hex[static PAGES_HEX]);
