/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of hosts: one grammar, one canonical form. The policy compiler, the matcher and whatever
 *dials use this and nothing else, so that what was matched is byte for byte what is dialled.
 *
 *	name  = label 1*("." label)	at least two labels, at most 253 bytes
 *	label = 1 to 63 of [a-z0-9-], neither first nor last byte a hyphen
 *
 * Upper case is folded. The last label is not a number in any base, because resolvers read "0x7f.1"
 *and "2130706433" as addresses. Punycode (xn--) passes as what it is: ASCII. Everything else is
 *refused: NUL, space, underscore, percent, "@", a dot at the end, bytes above 0x7f.
 */
#pragma once

#include <stdint.h>

#include "err.h"

enum {
	NAME_TEXT_MAX = 253,
	NAME_LABEL_MAX = 63,
};

struct name {
	uint8_t len;
	char text[NAME_TEXT_MAX + 1];
};

/*
 * The same for what stands behind the first `skip` bytes of `s`; messages count bytes from `s` on.
 */
int name_parse_at(const char *s, size_t n, size_t skip, struct name *ret, struct err *e);

/* Reads exactly `n` bytes of `s`. 0, or -EINVAL with a message that says what is wrong and where.
 */
int name_parse(const char *s, size_t n, struct name *ret, struct err *e);
