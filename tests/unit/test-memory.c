/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "base/memory.h"
#include "base/str.h"

enum {
	BLOCKS = 4096,
	TABLE = 1024 * 1024,
	BLOCK = 1024, /* small: allocated from the heap, not by mmap */
};

/* The value of `key` in /proc/self/status, in kilobytes. */
static unsigned long status(const char *key)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long kib = 0;
	char line[256];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (str_has_prefix(line, key))
			kib = strtoul(line + strlen(key), NULL, 10);
	(void)fclose(f);
	return kib;
}

TEST(test_heap)
{
	static char *blocks[BLOCKS];
	unsigned long full, settled;

	if (SANITIZED) /* a sanitizer has its own heap and keeps freed memory */
		return;
	for (size_t i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(BLOCK);
		assert_non_null(blocks[i]);
		memset(blocks[i], 1, BLOCK);
	}
	full = status("RssAnon:");
	/* All but the last block, which keeps free(3) from lowering the end of the heap. */
	for (size_t i = 0; i + 1 < BLOCKS; i++)
		free(blocks[i]);
	memory_settle();
	settled = status("RssAnon:");
	free(blocks[BLOCKS - 1]);
	assert_true(full > BLOCKS * BLOCK / 1024);
	assert_true(settled < full - BLOCKS * BLOCK / 1024 / 2);
}

/* Pages that the program never writes are dropped; written pages stay. */
TEST(test_constants)
{
	static const char table[TABLE] = { 'a' };
	static int changed = 1;
	const volatile char *p = table;
	unsigned long before, after;

	changed = 2;
	for (size_t i = 0; i < TABLE; i += BLOCK)
		(void)p[i];
	before = status("RssFile:");
	memory_settle();
	after = status("RssFile:");
	assert_true(after + TABLE / 1024 / 2 < before);
	assert_int_equal(p[0], 'a');
	assert_int_equal(changed, 2);
}
