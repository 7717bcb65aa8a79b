/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum of a record's header: FNV-1a over 64-bit words. Detects torn writes, not tampering.
 */
#pragma once

#include <string.h>

#include "state/record.h"

static inline uint64_t record_sum(const void *data, size_t n)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325), word;

	assert(n % sizeof(word) == 0);
	for (size_t i = 0; i < n; i += sizeof(word)) {
		memcpy(&word, (const char *)data + i, sizeof(word));
		h = (h ^ word) * UINT64_C(0x100000001b3);
		h ^= h >> 32;
	}
	return h;
}
