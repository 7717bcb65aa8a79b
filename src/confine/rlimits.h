/* SPDX-License-Identifier: Apache-2.0 */
/* Resource limits of this process, see setrlimit(2). */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

struct limit {
	int resource; /* RLIMIT_* */
	uint64_t value;
};

/*
 * Lowers both the soft and the hard limit to `value`, or to the current hard limit if that is
 * lower, in table order. Skips the address space limit under a sanitizer, whose shadow memory takes
 * terabytes. 0 or -errno.
 */
int rlimits_lower(const struct limit *limits, size_t n);
