/* SPDX-License-Identifier: Apache-2.0 */
/* Reading JSON when memory is short; json_read() is the one who calls this. */
#pragma once

#include <jansson.h>

/*
 * json_loadb(), but without memory for any part it ends at once with NULL and ENOMEM in errno, and
 * nothing of it stays. jansson's own (2.14) goes on: a character that its buffer has no room for is
 * left out, and if that is the quote at the end of a text, it copies on behind it.
 */
json_t *json_memory_load(const char *text, size_t n, size_t flags, json_error_t *error);
