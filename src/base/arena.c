/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

enum {
	ARENA_BLOCK = 16 * 1024
};

struct arena_block {
	struct arena_block *next;
	size_t used;
	size_t size;
	alignas(max_align_t) unsigned char data[];
};

void arena_done(struct arena *a)
{
	while (a->blocks) {
		struct arena_block *b = a->blocks;

		a->blocks = b->next;
		free(b);
	}
}

static struct arena_block *block_new(size_t size)
{
	struct arena_block *b = calloc(1, sizeof(*b) + size);

	if (b)
		b->size = size;
	return b;
}

void *arena_alloc(struct arena *a, size_t size)
{
	struct arena_block *b = a->blocks;
	void *p;

	if (size > PTRDIFF_MAX / 2)
		return NULL;
	size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
	if (!b || size > b->size - b->used) {
		b = block_new(MAX(size, (size_t)ARENA_BLOCK));
		if (!b)
			return NULL;
		b->next = a->blocks;
		a->blocks = b;
	}
	p = b->data + b->used;
	b->used += size;
	return p;
}

void *arena_calloc(struct arena *a, size_t n, size_t size)
{
	size_t total;

	if (__builtin_mul_overflow(n, size, &total))
		return NULL;
	return arena_alloc(a, total);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
	char *p = n < SIZE_MAX ? arena_alloc(a, n + 1) : NULL;

	if (p && n > 0)
		memcpy(p, s, n);
	return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
	return arena_strndup(a, s, strlen(s));
}
