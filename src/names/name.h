/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host names: one grammar, one canonical form. The policy compiler, the matcher and the dialer all
 * use it, so that the keeper dials byte for byte the name that was matched.
 *
 *	name  = label 1*("." label)	at least two labels, at most 253 bytes
 *	label = 1 to 63 of [a-z0-9-], neither first nor last byte a hyphen
 *
 * Upper case is folded. The last label must not be a number in any base, because resolvers read
 * "0x7f.1" and "2130706433" as addresses. Punycode (xn--) is plain ASCII. Everything else is
 * rejected: NUL, space, underscore, percent, "@", a dot at the end, bytes above 0x7f.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

enum {
	NAME_TEXT_MAX = 253,
	NAME_LABEL_MAX = 63,
};

struct name {
	uint8_t len;
	char text[NAME_TEXT_MAX + 1];
};

/* Parses the `n` bytes of `s` without the first `skip`; messages count bytes from `s`. */
int name_parse_at(const char *s, size_t n, size_t skip, struct name *ret, struct err *e);

/* Parses exactly `n` bytes of `s`. Returns 0, or -EINVAL with the problem and its position. */
int name_parse(const char *s, size_t n, struct name *ret, struct err *e);
