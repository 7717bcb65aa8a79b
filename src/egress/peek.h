/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a client's first bytes name the allowed destination. Does not change them. */
#pragma once

#include <stddef.h>

#include "egress/http.h"
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
 * Inspects the first `n` bytes; `eof`: no further bytes follow. `rd` belongs to the stream and
 * starts zeroed. `detail` may hold bytes of the client: escape it.
 */
enum peek_result peek(enum rule_proto proto, const struct target *t, struct http_reading *rd,
		      const void *data, size_t n, bool eof, char detail[static PEEK_DETAIL_MAX]);

/* Does the host have a secret or a rule on requests? */
typedef bool peek_tapped_fn(void *arg, const struct name *name);

/*
 * The same for a stream without a check (/tcp) in a sandbox that has a hutch-tap: any protocol
 * passes, but not TLS or HTTP that asks for a tapped host, and so would lead around hutch-tap.
 */
enum peek_result peek_around(peek_tapped_fn *is_tapped, void *arg, const struct target *t,
			     struct http_reading *rd, const void *data, size_t n, bool eof,
			     char detail[static PEEK_DETAIL_MAX]);
