/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included by every unit test: cmocka with the headers it needs, tests that register themselves,
 * and a temporary directory.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/*
 * TEST(name) { ... } defines a test with the parameter `void **state` and registers it. A program
 * runs its tests in source order; setup and teardown are cmocka's. A program without its own main()
 * gets that of main.c.
 */
#define TEST_WITH(name, setup, teardown)                                                    \
	static void name(void **state);                                                     \
	__attribute__((constructor)) static void unit_add_##name(void)                      \
	{                                                                                   \
		unit_add(__LINE__,                                                          \
			 &(const struct CMUnitTest){ #name, name, setup, teardown, NULL }); \
	}                                                                                   \
	static void name(void **state)

#define TEST(name)	  TEST_WITH(name, NULL, NULL)
#define TEST_IN_DIR(name) TEST_WITH(name, unit_dir_setup, unit_dir_teardown)

void unit_add(int line, const struct CMUnitTest *test);

/* Runs the registered tests with setup and teardown of the group; returns the exit status. */
int unit_run(CMFixtureFunction setup, CMFixtureFunction teardown);

/* The same as root; otherwise reports that the program is skipped because `why`. */
int unit_run_as_root(const char *why, CMFixtureFunction setup, CMFixtureFunction teardown);

enum {
	UNIT_PATH_MAX = 64,
	UNIT_TESTS_MAX = 64
};

/* A row of a table: an input, and the expected result. */
struct unit_row {
	const char *given, *wanted;
};

/* A fresh directory below /tmp, as setup and teardown of a cmocka test or group. */
struct unit_dir {
	int fd;
	char path[UNIT_PATH_MAX];
};

int unit_dir_setup(void **state);    /* *state becomes a struct unit_dir */
int unit_dir_teardown(void **state); /* removes it with everything in it */

/* Number of its entries. */
size_t unit_dir_entries(const struct unit_dir *d);

/* Writes a file below the directory; the test fails if it cannot. */
void unit_dir_write(const struct unit_dir *d, const char *name, const void *data, size_t n);

/* A copy of `n` bytes without a NUL after them, so that the sanitizer detects overreads. */
char *unit_copy(const void *data, size_t n);
