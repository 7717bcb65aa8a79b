/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names are stored in the order of arrival; a name's index gives its address. An open-addressing
 * hash table with at least twice as many slots holds index + 1. Nothing is deleted, so a probe ends
 * at the first empty slot.
 */
#include "egress/pool.h"

#include <string.h>

struct entry {
	char *text;
	uint32_t hash;
	uint8_t len;
};

struct pool {
	uint8_t key[SIPHASH_KEY];
	struct entry *entries;
	uint32_t *slots;
	size_t n, max, mask;
};

struct pool *pool_free(struct pool *p)
{
	if (!p)
		return NULL;
	for (size_t i = 0; i < p->n; i++)
		free(p->entries[i].text);
	free(p->entries);
	free(p->slots);
	free(p);
	return NULL;
}

int pool_new(size_t max, const uint8_t key[static SIPHASH_KEY], struct pool **ret)
{
	_cleanup_pool_ struct pool *p = calloc(1, sizeof(*p));
	size_t slots = 2;

	assert(max > 0 && max <= POOL_MAX);
	while (slots < 2 * max)
		slots *= 2;
	if (!p)
		return -ENOMEM;
	memcpy(p->key, key, SIPHASH_KEY);
	p->max = max;
	p->mask = slots - 1;
	p->entries = calloc(max, sizeof(*p->entries));
	p->slots = calloc(slots, sizeof(*p->slots));
	if (!p->entries || !p->slots)
		return -ENOMEM;
	*ret = TAKE_PTR(p);
	return 0;
}

/* The slot of `name`, or the empty slot for it. */
static uint32_t *find_slot(const struct pool *p, const struct name *name, uint32_t hash)
{
	for (size_t i = hash & p->mask;; i = (i + 1) & p->mask) {
		const struct entry *en = &p->entries[p->slots[i] - 1];

		if (p->slots[i] == 0 || (en->hash == hash && en->len == name->len &&
					 memcmp(en->text, name->text, name->len) == 0))
			return &p->slots[i];
	}
}

int pool_add(struct pool *p, const struct name *name, uint32_t *ret)
{
	uint32_t hash = (uint32_t)siphash(p->key, name->text, name->len);
	uint32_t *slot = find_slot(p, name, hash);
	char *text;

	if (*slot == 0) {
		if (p->n == p->max)
			return -ENOSPC;
		text = strndup(name->text, name->len);
		if (!text)
			return -ENOMEM;
		p->entries[p->n] = (struct entry){ .text = text, .hash = hash, .len = name->len };
		*slot = (uint32_t)++p->n;
	}
	*ret = POOL_NET + POOL_FIRST + *slot - 1;
	return 0;
}

int pool_find(const struct pool *p, uint32_t addr, struct name *ret)
{
	size_t i = (size_t)addr - POOL_NET - POOL_FIRST;

	if (addr < POOL_NET + POOL_FIRST || i >= p->n)
		return -ENOENT;
	ret->len = p->entries[i].len;
	memcpy(ret->text, p->entries[i].text, p->entries[i].len + 1U);
	return 0;
}

bool pool_has(uint32_t addr)
{
	return addr >> (32 - POOL_PREFIX) == POOL_NET >> (32 - POOL_PREFIX);
}
