/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is freed all at once, for objects with the same lifetime: the tree of one YAML file,
 * one compiled policy. No object in an arena is freed alone; arena_done() frees them all.
 */
#pragma once

#include "base/util.h"

struct arena_block;

struct arena {
	struct arena_block *blocks; /* newest first */
};

#define ARENA_INIT             \
	{                      \
		.blocks = NULL \
	}
#define _cleanup_arena_ _cleanup_(arena_done)

void arena_done(struct arena *a);

/* Returns zeroed memory, aligned for any type; NULL without memory. */
void *arena_alloc(struct arena *a, size_t size);

/* Same for `n` objects of `size` bytes; NULL if the product overflows. */
void *arena_calloc(struct arena *a, size_t n, size_t size);

/* A NUL-terminated copy of `n` bytes. */
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_strdup(struct arena *a, const char *s);
