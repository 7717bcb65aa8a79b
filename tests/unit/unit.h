/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test includes: cmocka with the headers it wants before it, and a directory. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
	UNIT_PATH_MAX = 64
};

/* A fresh directory below /tmp, as setup and teardown of a cmocka test or group. */
struct unit_dir {
	int fd;
	char path[UNIT_PATH_MAX];
};

int unit_dir_setup(void **state);    /* *state becomes a struct unit_dir */
int unit_dir_teardown(void **state); /* removes it with everything in it */

/* How many entries it has. */
size_t unit_dir_entries(const struct unit_dir *d);

/* Writes a file below the directory; the test fails if it cannot. */
void unit_dir_write(const struct unit_dir *d, const char *name, const void *data, size_t n);

/* A copy of `n` bytes without a NUL behind them, so that the sanitizer sees who reads too far. */
char *unit_copy(const void *data, size_t n);
