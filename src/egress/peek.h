/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a client's first bytes name the allowed destination. Does not change them. */
#pragma once

#include <stddef.h>

#include "names/rule.h"

enum {
	PEEK_MAX = 20 * 1024, /* a ClientHello with its record headers, or an HTTP head */
	PEEK_DETAIL_MAX = 96,
};

enum peek_result {
	PEEK_MORE,   /* too few bytes to decide */
	PEEK_PASS,   /* may be sent */
	PEEK_REFUSE, /* the detail says why */
};

/*
 * Inspects the first `n` bytes; `eof`: no further bytes follow. `detail` may hold bytes of the
 * client: escape it.
 */
enum peek_result peek(enum rule_proto proto, const struct target *t, const void *data, size_t n,
		      bool eof, char detail[static PEEK_DETAIL_MAX]);
