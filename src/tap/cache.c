/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/cache.h"

#include <string.h>

#include "base/clock.h"
#include "base/str.h"

/* FNV-1a. The keys are names that the policy allows, so no program can make them collide. */
static struct cache_entry *set_of(struct cache *c, const char *key)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *key; key++)
		h = (h ^ (uint8_t)*key) * UINT64_C(0x100000001b3);
	return c->sets[(h ^ h >> 32) % CACHE_SETS];
}

static void drop(struct cache *c, struct cache_entry *e)
{
	if (e->value)
		c->drop(e->value);
	e->value = NULL;
}

void *cache_get(struct cache *c, const char *key, uint64_t max_ns)
{
	struct cache_entry *set = set_of(c, key);

	for (size_t i = 0; i < CACHE_WAYS; i++) {
		struct cache_entry *e = &set[i];

		if (!e->value || !str_eq(e->key, key))
			continue;
		if (clock_mono() - e->made_ns > max_ns) {
			drop(c, e);
			return NULL;
		}
		e->used = ++c->turn;
		return e->value;
	}
	return NULL;
}

static struct cache_entry *place_for(struct cache *c, const char *key)
{
	struct cache_entry *set = set_of(c, key), *best = &set[0];

	for (size_t i = 0; i < CACHE_WAYS; i++) {
		if (set[i].value && str_eq(set[i].key, key))
			return &set[i];
		if (best->value && (!set[i].value || set[i].used < best->used))
			best = &set[i];
	}
	return best;
}

void cache_put(struct cache *c, const char *key, void *value)
{
	struct cache_entry *e = place_for(c, key);

	if (strlen(key) >= CACHE_KEY_MAX) {
		c->drop(value);
		return;
	}
	drop(c, e);
	(void)snprintf(e->key, sizeof(e->key), "%s", key);
	e->value = value;
	e->made_ns = clock_mono();
	e->used = ++c->turn;
}

void cache_clear(struct cache *c)
{
	for (size_t i = 0; i < CACHE_SETS; i++)
		for (size_t k = 0; k < CACHE_WAYS; k++)
			drop(c, &c->sets[i][k]);
}
