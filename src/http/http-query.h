/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes percent escapes without allocating. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/*
 * Decodes `n` bytes once into `out`, which has room for as many and a NUL; '+' is a space in a
 * form. Returns the length, or -EINVAL for a bad escape or a NUL.
 */
ssize_t http_unescape(const char *text, size_t n, bool form, char *out);
