/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gzip (RFC 1952), taken apart as it comes, with a bound for how much may come out of how little.
 * The caller pulls, as from a multipart.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct gunzip_limits {
	uint64_t free;	    /* so many bytes may come out of whatever */
	unsigned int ratio; /* and over that, so many for each that went in */
};

struct gunzip;

int gunzip_new(const struct gunzip_limits *limits, struct gunzip **ret);
struct gunzip *gunzip_free(struct gunzip *g);

/*
 * Takes from *data and *n and writes up to `size` bytes to `out`: how many, 0 when it needs more
 * input, or -EBADMSG (not gzip, or damaged), -EFBIG (over the limits), -ENOMEM. To be called until
 * it says 0, also with no input left.
 */
ssize_t gunzip_next(struct gunzip *g, const char **data, size_t *n, char *out, size_t size,
		    struct err *e);

/* After the last byte: was it whole? */
bool gunzip_whole(const struct gunzip *g);
