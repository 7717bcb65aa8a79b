/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is given back all at once. For things that live and die together: the tree of one
 * YAML file, one compiled policy. Nothing in an arena is freed alone; arena_done() frees
 * everything.
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

/* Zeroed memory, aligned for anything; NULL when there is none. */
void *arena_alloc(struct arena *a, size_t size);

/* The same for `n` things of `size` bytes; a product that overflows is "no memory". */
void *arena_calloc(struct arena *a, size_t n, size_t size);

/* A NUL-terminated copy of `n` bytes. */
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_strdup(struct arena *a, const char *s);
