/* SPDX-License-Identifier: Apache-2.0 */
/* Percent-encoding (RFC 3986). */
#pragma once

#include "base/buf.h"

/* Encodes every byte but letters, digits and "-._~"; hexadecimal digits in `digits`. */
void percent_put(struct buf *out, const char *s, size_t n, bool keep_slash);

/* The same with digits a to f in lower case. */
void percent_put_lower(struct buf *out, const char *s, size_t n, bool keep_slash);

/* Decodes; a malformed encoding stays as it is. `form`: "+" is a space. */
void percent_decode(struct buf *out, const char *s, size_t n, bool form);
