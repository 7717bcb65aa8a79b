/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <stdalign.h>
#include <string.h>

#include "base/arena.h"
#include "fail.h"

enum {
	MANY = 5000
};

TEST(memory_is_zeroed_aligned_and_apart)
{
	_cleanup_arena_ struct arena a = ARENA_INIT;
	unsigned char *p[MANY];

	for (size_t i = 0; i < MANY; i++) {
		size_t n = i % 41;

		p[i] = arena_alloc(&a, n);
		assert_non_null(p[i]);
		assert_int_equal((uintptr_t)p[i] % alignof(max_align_t), 0);
		for (size_t k = 0; k < n; k++)
			assert_int_equal(p[i][k], 0);
		memset(p[i], (int)(i & 0xff), n);
	}
	for (size_t i = 0; i < MANY; i++)
		for (size_t k = 0; k < i % 41; k++)
			assert_int_equal(p[i][k], i & 0xff);
}

TEST(one_larger_than_a_block)
{
	_cleanup_arena_ struct arena a = ARENA_INIT;
	char *big = arena_alloc(&a, 1000000), *small = arena_alloc(&a, 8);

	assert_non_null(big);
	assert_non_null(small);
	memset(big, 1, 1000000);
	assert_int_equal(small[0], 0);
}

TEST(impossible_sizes)
{
	_cleanup_arena_ struct arena a = ARENA_INIT;

	assert_null(arena_alloc(&a, SIZE_MAX));
	assert_null(arena_alloc(&a, PTRDIFF_MAX));
	assert_null(arena_calloc(&a, SIZE_MAX / 2, 3));
	assert_null(arena_calloc(&a, SIZE_MAX, SIZE_MAX));
	assert_null(arena_strndup(&a, "", SIZE_MAX));
	assert_non_null(arena_calloc(&a, 10, 10));
	assert_non_null(arena_calloc(&a, 0, 10));
}

TEST(copies_of_text)
{
	_cleanup_arena_ struct arena a = ARENA_INIT;
	_cleanup_free_ char *raw = unit_copy("abcdef", 6);

	assert_string_equal(arena_strdup(&a, "hutch"), "hutch");
	assert_string_equal(arena_strdup(&a, ""), "");
	assert_string_equal(arena_strndup(&a, raw, 6), "abcdef");
	assert_string_equal(arena_strndup(&a, raw, 2), "ab");
	assert_string_equal(arena_strndup(&a, NULL, 0), "");
}

TEST(done_twice)
{
	struct arena a = ARENA_INIT;

	assert_non_null(arena_alloc(&a, 1));
	arena_done(&a);
	arena_done(&a);
	assert_non_null(arena_alloc(&a, 1)); /* and usable again */
	arena_done(&a);
}

static int use(void)
{
	_cleanup_arena_ struct arena a = ARENA_INIT;

	for (int i = 0; i < 5; i++)
		if (!arena_strdup(&a, "x") || !arena_calloc(&a, 1000, 20))
			return -ENOMEM;
	return 0;
}

TEST(no_memory)
{
	FAIL_SWEEP(use());
}
