/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/unzip.h"

#include <errno.h>
#include <limits.h>
#include <zlib.h>

#include "base/util.h"

enum {
	PIECE = 16 * 1024,
	GZIP_ONLY = MAX_WBITS + 16,
};

static int run(z_stream *z, size_t max, void (*take)(void *, const char *, size_t), void *arg)
{
	char piece[PIECE];
	size_t total = 0;
	int r = Z_OK;

	while (r == Z_OK) {
		z->next_out = (Bytef *)piece;
		z->avail_out = PIECE;
		r = inflate(z, Z_NO_FLUSH);
		total += PIECE - z->avail_out;
		if (total > max)
			return -E2BIG;
		if (r == Z_OK || r == Z_STREAM_END)
			take(arg, piece, PIECE - z->avail_out);
	}
	if (r == Z_MEM_ERROR)
		return -ENOMEM;
	return r == Z_STREAM_END && z->avail_in == 0 ? 0 : -EBADMSG;
}

int unzip(const char *data, size_t n, size_t max,
	  void (*take)(void *arg, const char *data, size_t n), void *arg)
{
	z_stream z = { .next_in = (Bytef *)data, .avail_in = (uInt)n };
	int r;

	assert(n <= UINT_MAX);
	if (inflateInit2(&z, GZIP_ONLY) != Z_OK)
		return -ENOMEM;
	r = run(&z, max, take, arg);
	(void)inflateEnd(&z);
	return r;
}
