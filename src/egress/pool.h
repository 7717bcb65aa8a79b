/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps names to the addresses that stand for them inside a sandbox, one of 198.18.0.0/15 each. A
 * name gets its address at the first query and keeps it. Both directions take constant time. The
 * guest chooses the names, so the hash is keyed.
 */
#pragma once

#include <stdbool.h>

#include "egress/siphash.h"
#include "names/name.h"

#define POOL_NET UINT32_C(0xc6120000) /* 198.18.0.0 */

enum {
	POOL_PREFIX = 15,
	POOL_FIRST = 256,		   /* lower addresses are reserved for us */
	POOL_MAX = (1 << 17) - POOL_FIRST, /* names */
};

struct pool;

/* For at most `max` names, 1 to POOL_MAX. 0 or -ENOMEM. */
int pool_new(size_t max, const uint8_t key[static SIPHASH_KEY], struct pool **ret);
struct pool *pool_free(struct pool *p);

/* The address of `name`, in the host's byte order. -ENOSPC: the pool is full; -ENOMEM. */
int pool_add(struct pool *p, const struct name *name, uint32_t *ret);

/* The name of an address; -ENOENT for an unassigned one. */
int pool_find(const struct pool *p, uint32_t addr, struct name *ret);

/* True for an address of 198.18.0.0/15, in the host's byte order. */
bool pool_has(uint32_t addr);

static inline void cleanup_pool(struct pool **p)
{
	(void)pool_free(*p);
}

#define _cleanup_pool_ _cleanup_(cleanup_pool)
