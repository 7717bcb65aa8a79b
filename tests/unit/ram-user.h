/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshot of test-ram.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ram/ram.h"

enum {
	PAGE = 4096,
	PAGES = 4096, /* 16 MiB */
	SIZE = PAGES * PAGE,
	/* Data: pages FIRST to FIRST + DATA, and the last one. */
	FIRST = 100,
	DATA = 300,
};

static inline bool has_data(size_t page)
{
	return (page >= FIRST && page < FIRST + DATA) || page == PAGES - 1;
}
