/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory allocation for jansson. Every block has a header that links it into one list, newest
 * first. If an allocation fails while a text is parsed, longjmp(3) leaves jansson's frames, which
 * own nothing but such blocks; all blocks newer than the parse are then freed. One list is enough
 * because there are no threads.
 */
#include "base/json-memory.h"

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

struct block {
	struct block *next, *prev;
};

static_assert(sizeof(struct block) % _Alignof(max_align_t) == 0, "the memory after it is aligned");

static struct block blocks = { &blocks, &blocks };
static jmp_buf *way_out; /* exit from the current parse, or NULL */
static bool wipes;

static void *take(size_t n)
{
	struct block *b = n > SIZE_MAX - sizeof(*b) ? NULL : malloc(sizeof(*b) + n);

	if (!b && way_out)
		longjmp(*way_out, 1);
	if (!b)
		return NULL;
	*b = (struct block){ blocks.next, &blocks };
	b->next->prev = b;
	blocks.next = b;
	return b + 1;
}

static void give_back(void *p)
{
	struct block *b = p;

	if (!b)
		return;
	b--;
	b->next->prev = b->prev;
	b->prev->next = b->next;
	if (wipes)
		explicit_bzero(b, malloc_usable_size(b));
	free(b);
}

void json_memory_wipe(void)
{
	wipes = true;
}

__attribute__((constructor)) static void use(void)
{
	json_set_alloc_funcs(take, give_back);
}

json_t *json_memory_load(const char *text, size_t n, size_t flags, json_error_t *error)
{
	struct block *const before = blocks.next;
	jmp_buf here;
	json_t *j;

	assert(!way_out);
	way_out = &here;
	if (setjmp(here) != 0) {
		way_out = NULL;
		while (blocks.next != before)
			give_back(blocks.next + 1);
		errno = ENOMEM;
		return NULL;
	}
	errno = 0;
	j = json_loadb(text, n, flags, error);
	way_out = NULL;
	return j;
}
