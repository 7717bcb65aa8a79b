/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648): written in one way, read in those that protobuf's JSON allows. */
#pragma once

#include "base/buf.h"

/* Appends the standard alphabet, padded. */
int base64_put(struct buf *b, const void *data, size_t n);

/*
 * Reads exactly `n` characters of the standard or the URL-safe alphabet, with all of its padding
 * or none. -EINVAL for everything else, also for bits that belong to no byte; -ENOMEM. The caller
 * frees the bytes, which have a NUL behind them.
 */
int base64_decode(const char *text, size_t n, char **ret, size_t *ret_n);
