/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash-2-4: a keyed hash; without the key, an attacker cannot find collisions. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
	SIPHASH_KEY = 16
};

uint64_t siphash(const uint8_t key[static SIPHASH_KEY], const void *data, size_t n);
