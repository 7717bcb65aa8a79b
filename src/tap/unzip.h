/* SPDX-License-Identifier: Apache-2.0 */
/* Decompresses the body of a call, to read the model in it; the server gets the body as it is. */
#pragma once

#include <stddef.h>

/*
 * Passes the text of `n` bytes of gzip to `take`, piece by piece. 0, -ENOMEM, -E2BIG: it has more
 * than `max` bytes, or -EBADMSG: broken, cut, or followed by more bytes, which servers could read
 * in different ways.
 */
int unzip(const char *data, size_t n, size_t max,
	  void (*take)(void *arg, const char *data, size_t n), void *arg);
