/* SPDX-License-Identifier: Apache-2.0 */
/* Time: nanoseconds in 64 bits. Deadlines use the monotonic clock, records the wall clock. */
#pragma once

#include <stdint.h>
#include <time.h>

#include "base/util.h"

#define NSEC_PER_MSEC UINT64_C(1000000)
#define NSEC_PER_SEC  UINT64_C(1000000000)

enum {
	CLOCK_RFC3339_MAX = 32
};

uint64_t clock_mono(void); /* CLOCK_MONOTONIC */
uint64_t clock_wall(void); /* CLOCK_REALTIME, since 1970 */

uint64_t clock_of(struct timespec t);

/* Formats as "2026-11-15T08:00:00.123456789Z"; clock_parse() returns the same time. */
const char *clock_format(uint64_t wall, char out[static CLOCK_RFC3339_MAX]);

/* Parses the format of clock_format(), with 0 to 9 digits after the point. 0 or -EINVAL. */
int clock_parse(const char *s, uint64_t *ret);
