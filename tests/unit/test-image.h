/* SPDX-License-Identifier: Apache-2.0 */
/* Archives in memory, for the tests of images. */
#pragma once

#include <string.h>

#include "base/buf.h"
#include "tar/tar.h"

/* Puts the checksum into a header of 512 bytes. */
static inline void tar_sum(char *h)
{
	unsigned int sum = 0;

	memset(h + 148, ' ', 8);
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += (unsigned char)h[i];
	(void)snprintf(h + 148, 8, "%06o", sum);
}

static inline void tar_pad(struct buf *b)
{
	while (b->len % TAR_BLOCK != 0)
		(void)buf_putc(b, '\0');
}

/* An entry with `n` bytes of data; returns where its header begins. */
static inline size_t tar_put(struct buf *b, char type, const char *name, const char *link,
			     unsigned int mode, const void *data, size_t n)
{
	char h[TAR_BLOCK] = "";
	size_t at = b->len;

	memcpy(h, name, strnlen(name, 100));
	(void)snprintf(h + 100, 8, "%07o", mode);
	(void)snprintf(h + 108, 8, "%07o", 0);
	(void)snprintf(h + 116, 8, "%07o", 0);
	(void)snprintf(h + 124, 12, "%011zo", n);
	(void)snprintf(h + 136, 12, "%011o", 1700000000);
	h[156] = type;
	memcpy(h + 157, link, strnlen(link, 100));
	memcpy(h + 257,
	       "ustar\0"
	       "00",
	       8);
	tar_sum(h);
	(void)buf_put(b, h, sizeof(h));
	(void)buf_put(b, data, n);
	tar_pad(b);
	return at;
}

static inline void tar_end(struct buf *b)
{
	static const char zero[2 * TAR_BLOCK];

	(void)buf_put(b, zero, sizeof(zero));
}

struct memory {
	const char *data;
	size_t n, step; /* step: how much a read gives at most */
};

static inline int64_t memory_read(void *arg, void *buf, size_t n, struct err *e)
{
	struct memory *m = arg;
	size_t k = MIN(MIN(n, m->n), m->step);

	memcpy(buf, m->data, k);
	m->data += k;
	m->n -= k;
	return (int64_t)k;
}
