/* SPDX-License-Identifier: Apache-2.0 */
/* The proof of a GitHub App's identity: a JSON Web Token (RFC 7519), signed with RS256. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Appends the token of `issuer`, valid from a minute before `now` (seconds since 1970) for ten
 * minutes. -EINVAL if the key is not an RSA key of at least 2,048 bits. */
int jwt_make(const char *pem, const char *issuer, uint64_t now, struct buf *ret, struct err *e);
