/* SPDX-License-Identifier: Apache-2.0 */
/* Do the first bytes of a client ask for what it was allowed to reach? Only looks. */
#pragma once

#include <stddef.h>

#include "rule.h"

enum {
	PEEK_MAX = 20 * 1024, /* a ClientHello or a head, with room for the records around it */
	PEEK_DETAIL_MAX = 96,
};

enum peek_result {
	PEEK_MORE,   /* too few bytes to say */
	PEEK_PASS,   /* they may go out */
	PEEK_REFUSE, /* and why is in the detail */
};

/*
 * Looks at the `n` bytes that came first; `eof`: no more will come. `detail` is text that may hold
 * bytes of the client, to be escaped.
 */
enum peek_result peek(enum rule_proto proto, const struct target *t, const void *data, size_t n,
		      bool eof, char detail[static PEEK_DETAIL_MAX]);
