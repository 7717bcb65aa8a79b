/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streaming gzip (RFC 1952) decoder with a limit on the expansion ratio. The caller pulls output,
 * as from a multipart.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct gunzip_limits {
	uint64_t free;	    /* output bytes that are always allowed */
	unsigned int ratio; /* above that, output bytes per input byte */
};

struct gunzip;

int gunzip_new(const struct gunzip_limits *limits, struct gunzip **ret);
struct gunzip *gunzip_free(struct gunzip *g);

/*
 * Consumes *data and *n and writes up to `size` bytes to `out`. Returns their number, 0 if it needs
 * more input, -EBADMSG (not gzip, or damaged), -EFBIG (over the limits) or -ENOMEM. Call it until
 * it returns 0, also without input left.
 */
ssize_t gunzip_next(struct gunzip *g, const char **data, size_t *n, char *out, size_t size,
		    struct err *e);

/* After the last byte: whether the stream was complete. */
bool gunzip_whole(const struct gunzip *g);
