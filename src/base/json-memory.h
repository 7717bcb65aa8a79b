/* SPDX-License-Identifier: Apache-2.0 */
/* Parses JSON safely when memory is short. Only json_read() calls json_memory_load(). */
#pragma once

#include <jansson.h>

/*
 * json_loadb() that, when an allocation fails, returns NULL with errno ENOMEM at once and leaks
 * nothing. jansson 2.14 itself continues: it omits a character that its buffer has no room for, and
 * if that is the closing quote of a string, it copies past the end.
 */
json_t *json_memory_load(const char *text, size_t n, size_t flags, json_error_t *error);

/* From now on all memory of JSON values and of their parsing is wiped when it is freed: for a
 * process whose JSON contains secrets. */
void json_memory_wipe(void);
