/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are mostly zeros: the memory of a machine, its disk. Only pages that are not zero are
 * read (holes are skipped), hashed and copied, so a file of many GiB costs what is in it.
 *
 * The digest is BLAKE2b-256 of: the size (8 bytes, little endian), then for each page of 4 KiB that
 * is not zero, in their order, its offset (8 bytes) and its bytes, the last one filled up with
 * zeros. It says all about the contents and nothing about where the file has holes, which another
 * file system may see differently.
 */
#pragma once

#include <stdint.h>

enum {
	PAGES_SIZE = 4096,
	PAGES_DIGEST = 32,
	PAGES_HEX = 2 * PAGES_DIGEST + 1,
};

/* Reads all of `fd`, which has `size` bytes. With `to` >= 0 what is not zero is written there, at
 * the same places; the caller has made that file `size` bytes of zeros. The offset of `fd` is 0
 * afterwards. 0; -EBADMSG: it is shorter than that; -errno. */
int pages_digest(int fd, uint64_t size, int to, char ret_hex[static PAGES_HEX]);
