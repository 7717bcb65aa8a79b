/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "egress/pool.h"
#include "fail.h"

static const uint8_t key[SIPHASH_KEY] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

static struct name named(const char *text)
{
	struct err e = ERR_INIT;
	struct name name;

	assert_int_equal(name_parse(text, strlen(text), &name, &e), 0);
	return name;
}

/* Test vectors of the SipHash paper and its reference implementation. */
TEST(siphash_is_siphash)
{
	static const uint8_t input[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 };

	assert_true(siphash(key, input, sizeof(input)) == UINT64_C(0xa129ca6149be45e5));
	assert_true(siphash(key, input, 0) == UINT64_C(0x726fdb47dd0e0e31));
	assert_true(siphash(key, input, 8) == UINT64_C(0x93f5f5799a932462));
}

TEST(a_name_keeps_its_address)
{
	_cleanup_pool_ struct pool *p = NULL;
	struct name a = named("a.example.com"), b = named("b.example.com"), back;
	uint32_t first, second, again;

	assert_int_equal(pool_new(2, key, &p), 0);
	assert_int_equal(pool_add(p, &a, &first), 0);
	assert_int_equal(pool_add(p, &b, &second), 0);
	assert_int_equal(pool_add(p, &a, &again), 0);
	assert_true(first == again && first != second);
	assert_true(first == POOL_NET + POOL_FIRST);
	assert_int_equal(pool_find(p, second, &back), 0);
	assert_string_equal(back.text, "b.example.com");
	assert_int_equal(back.len, b.len);
}

TEST(others_stand_for_nothing)
{
	static const uint32_t others[] = { 0,
					   POOL_NET,
					   POOL_NET + 1,
					   POOL_NET + POOL_FIRST - 1,
					   POOL_NET + POOL_FIRST + 1,
					   UINT32_MAX };
	_cleanup_pool_ struct pool *p = NULL;
	struct name a = named("a.example.com"), back;
	uint32_t addr;

	assert_int_equal(pool_new(1, key, &p), 0);
	assert_int_equal(pool_add(p, &a, &addr), 0);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_int_equal(pool_find(p, others[i], &back), -ENOENT);
	assert_true(pool_has(POOL_NET) && pool_has(POOL_NET + (1 << 17) - 1));
	assert_false(pool_has(POOL_NET - 1) || pool_has(POOL_NET + (1 << 17)));
}

/* Exactly the whole range is used. */
TEST(a_full_pool_is_full)
{
	_cleanup_pool_ struct pool *p = NULL;
	struct name back;
	char text[32];
	uint32_t addr = 0;

	assert_int_equal(pool_new(POOL_MAX, key, &p), 0);
	for (size_t i = 0; i <= POOL_MAX; i++) {
		struct name name;

		(void)snprintf(text, sizeof(text), "n%zu.example", i);
		name = named(text);
		assert_int_equal(pool_add(p, &name, &addr), i < POOL_MAX ? 0 : -ENOSPC);
		assert_true(pool_has(addr));
	}
	assert_int_equal(pool_find(p, addr, &back), 0);
	assert_string_equal(back.text, "n130815.example");
	back = named("n7.example");
	assert_int_equal(pool_add(p, &back, &addr), 0); /* existing */
	assert_true(addr == POOL_NET + POOL_FIRST + 7);
}

static int add_two(void)
{
	_cleanup_pool_ struct pool *p = NULL;
	struct name a = named("a.example.com"), b = named("b.example.com");
	uint32_t addr;
	int r = pool_new(2, key, &p);

	if (r == 0)
		r = pool_add(p, &a, &addr);
	if (r == 0)
		r = pool_add(p, &b, &addr);
	return r;
}

TEST(memory_may_fail)
{
	FAIL_SWEEP(add_two());
}
