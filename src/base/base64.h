/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648): writes one form, reads every form that protobuf's JSON allows. */
#pragma once

#include "base/buf.h"

/* Appends the standard alphabet, padded. */
int base64_put(struct buf *b, const void *data, size_t n);

/*
 * Decodes exactly `n` characters of the standard or the URL-safe alphabet, with full padding or
 * none. -EINVAL for any other input, including leftover bits; -ENOMEM. The caller frees the bytes,
 * which are followed by a NUL.
 */
int base64_decode(const char *text, size_t n, char **ret, size_t *ret_n);
