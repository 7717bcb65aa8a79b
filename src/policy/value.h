/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single values as text: sizes, durations, fractions. 0, -EINVAL, or -ERANGE; and what was probably
 * meant.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "util.h"

enum {
	VALUE_HINT_MAX = 64
};

int value_size(const char *s, uint64_t *ret_bytes);
int value_duration(const char *s, uint64_t *ret_ms);
int value_thousandths(const char *s, uint64_t *ret);

/* "512MB" gives "512MiB", "10min" gives "10m"; false where nothing comes to mind. */
bool value_size_hint(const char *s, char out[static VALUE_HINT_MAX]);
bool value_duration_hint(const char *s, char out[static VALUE_HINT_MAX]);

/* The value in its largest exact unit, as it would be written. */
const char *value_format_size(uint64_t bytes, char out[static VALUE_HINT_MAX]);
const char *value_format_duration(uint64_t ms, char out[static VALUE_HINT_MAX]);
