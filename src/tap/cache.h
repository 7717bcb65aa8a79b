/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded table of texts and values; the entry that was not used longest makes room. */
#pragma once

#include <stdint.h>

#include "base/util.h"

enum {
	CACHE_SETS = 64,
	CACHE_WAYS = 4,
	CACHE_KEY_MAX = 264,
};

struct cache_entry {
	char key[CACHE_KEY_MAX];
	void *value;	  /* NULL: free */
	uint64_t made_ns; /* clock_mono() */
	uint64_t used;
};

struct cache {
	struct cache_entry sets[CACHE_SETS][CACHE_WAYS];
	void (*drop)(void *value);
	uint64_t turn;
};

/* NULL: none, or older than `max_ns`. The cache keeps the value. */
void *cache_get(struct cache *c, const char *key, uint64_t max_ns);

/* Takes the value; replaces one with this key. A key that is too long: drops it. */
void cache_put(struct cache *c, const char *key, void *value);

void cache_clear(struct cache *c);
