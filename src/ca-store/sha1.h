/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-1 (RFC 3174), only for the checksum of Java's JKS files, whose password everyone knows. Never
 * use it where an attacker matters.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
	SHA1_BYTES = 20,
	SHA1_BLOCK = 64,
};

struct sha1 {
	uint32_t h[5];
	uint64_t n; /* bytes so far */
	uint8_t block[SHA1_BLOCK];
};

void sha1_init(struct sha1 *s);
void sha1_put(struct sha1 *s, const void *data, size_t n);
void sha1_end(struct sha1 *s, uint8_t ret[static SHA1_BYTES]);
