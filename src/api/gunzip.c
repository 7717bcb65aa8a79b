/* SPDX-License-Identifier: Apache-2.0 */
#include "api/gunzip.h"

#include <limits.h>
#include <zlib.h>

enum {
	GZIP_ONLY = 16, /* added to the window bits; see inflateInit2() */
};

struct gunzip {
	z_stream z;
	struct gunzip_limits limits;
	uint64_t in, out;
	bool between; /* a member has ended, and another may follow */
};

/* Tests make calloc() fail, so zlib must use it too. */
static void *allocate(void *arg, unsigned int n, unsigned int size)
{
	return calloc(n, size);
}

static void release(void *arg, void *p)
{
	free(p);
}

int gunzip_new(const struct gunzip_limits *limits, struct gunzip **ret)
{
	struct gunzip *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->limits = *limits;
	g->z = (z_stream){ .zalloc = allocate, .zfree = release };
	if (inflateInit2(&g->z, MAX_WBITS + GZIP_ONLY) != Z_OK) {
		free(g);
		return -ENOMEM;
	}
	*ret = g;
	return 0;
}

struct gunzip *gunzip_free(struct gunzip *g)
{
	if (g)
		(void)inflateEnd(&g->z);
	free(g);
	return NULL;
}

static bool over(const struct gunzip *g)
{
	return g->out > g->limits.free && g->out / g->limits.ratio > g->in;
}

/* Calls inflate() once; returns the number of output bytes. */
static ssize_t inflate_once(struct gunzip *g, const char **data, size_t *n, char *out, size_t size,
			    struct err *e)
{
	unsigned int have = (unsigned int)MIN(*n, (size_t)UINT_MAX), used;
	int r;

	g->z.next_in = (Bytef *)*data;
	g->z.avail_in = have;
	g->z.next_out = (Bytef *)out;
	g->z.avail_out = (unsigned int)MIN(size, (size_t)UINT_MAX);
	size = g->z.avail_out;
	r = inflate(&g->z, Z_NO_FLUSH);
	used = have - g->z.avail_in;
	if (used > 0) /* data may be NULL if there is no input */
		*data += used;
	*n -= used;
	g->in += used;
	g->out += size - g->z.avail_out;
	if (r == Z_MEM_ERROR)
		return err_oom(e);
	if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
		return err_set(e, -EBADMSG, "the body is not gzip, or is damaged");
	if (over(g))
		return err_set(e, -EFBIG, "the body unpacks to more than %u times its size",
			       g->limits.ratio);
	g->between = r == Z_STREAM_END;
	return (ssize_t)(size - g->z.avail_out);
}

ssize_t gunzip_next(struct gunzip *g, const char **data, size_t *n, char *out, size_t size,
		    struct err *e)
{
	for (;;) {
		ssize_t k;
		size_t before = *n;

		if (g->between && *n == 0)
			return 0;
		if (g->between && inflateReset(&g->z) != Z_OK)
			return err_set(e, -EBADMSG, "the body cannot be unpacked");
		k = inflate_once(g, data, n, out, size, e);
		if (k != 0)
			return k;
		if (*n == 0 || *n == before)
			return 0;
	}
}

bool gunzip_whole(const struct gunzip *g)
{
	return g->between;
}
