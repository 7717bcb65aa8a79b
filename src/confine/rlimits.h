/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on the resources of this process, see setrlimit(2). */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

struct limit {
	int resource; /* RLIMIT_* */
	uint64_t value;
};

/*
 * Lowers both the soft and the hard limit to `value`, or to the current hard limit if that is less,
 * one row after the other. The limit on address space is skipped under a sanitizer, whose shadow is
 * terabytes large. 0 or -errno.
 */
int rlimits_lower(const struct limit *limits, size_t n);
