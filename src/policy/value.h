/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses and formats sizes, durations and fractions, and suggests corrections. Parsers return 0,
 * -EINVAL or -ERANGE.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

enum {
	VALUE_HINT_MAX = 64
};

int value_size(const char *s, uint64_t *ret_bytes);
int value_duration(const char *s, uint64_t *ret_ms);
int value_thousandths(const char *s, uint64_t *ret);

/* Suggest "512MiB" for "512MB", "10m" for "10min"; false without a suggestion. */
bool value_size_hint(const char *s, char out[static VALUE_HINT_MAX]);
bool value_duration_hint(const char *s, char out[static VALUE_HINT_MAX]);

/* Format a value in its largest exact unit, as a file would contain it. */
const char *value_format_size(uint64_t bytes, char out[static VALUE_HINT_MAX]);
const char *value_format_duration(uint64_t ms, char out[static VALUE_HINT_MAX]);
