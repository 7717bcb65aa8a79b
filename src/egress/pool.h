/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and the addresses that stand for them inside a sandbox: one of 198.18.0.0/15 each, given at
 * the first question and never taken back. Both ways in constant time. The guest chooses the names,
 * so the hash has a key.
 */
#pragma once

#include <stdbool.h>

#include "name.h"
#include "siphash.h"

#define POOL_NET UINT32_C(0xc6120000) /* 198.18.0.0 */

enum {
	POOL_PREFIX = 15,
	POOL_FIRST = 256,		   /* those below are ours */
	POOL_MAX = (1 << 17) - POOL_FIRST, /* names */
};

struct pool;

/* For at most `max` names, 1 to POOL_MAX. 0 or -ENOMEM. */
int pool_new(size_t max, const uint8_t key[static SIPHASH_KEY], struct pool **ret);
struct pool *pool_free(struct pool *p);

/* The address of `name`, in the host's byte order. -ENOSPC: there are `max` others; -ENOMEM. */
int pool_add(struct pool *p, const struct name *name, uint32_t *ret);

/* The other way; -ENOENT for an address that stands for nothing. */
int pool_find(const struct pool *p, uint32_t addr, struct name *ret);

/* True for an address of 198.18.0.0/15, in the host's byte order. */
bool pool_has(uint32_t addr);

static inline void cleanup_pool(struct pool **p)
{
	(void)pool_free(*p);
}

#define _cleanup_pool_ _cleanup_(cleanup_pool)
