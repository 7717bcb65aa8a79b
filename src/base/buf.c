/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdarg.h>
#include <string.h>

enum {
	BUF_FIRST = 128
};

void buf_done(struct buf *b)
{
	free(b->data);
	*b = (struct buf)BUF_INIT(b->max);
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->err = 0;
	if (b->data)
		b->data[0] = '\0';
}

char *buf_reserve(struct buf *b, size_t n)
{
	size_t want, cap;
	char *data;

	if (b->err)
		return NULL;
	/* malloc() never returns half the address space, and the limit keeps the sums below from
	 * wrapping. */
	if (n > b->max - b->len || n > PTRDIFF_MAX / 2) {
		b->err = -ENOBUFS;
		return NULL;
	}
	want = b->len + n + 1;
	if (want <= b->cap)
		return b->data + b->len;
	cap = MAX(b->cap + b->cap / 2, MAX(want, (size_t)BUF_FIRST));
	data = realloc(b->data, cap);
	if (!data) {
		b->err = -ENOMEM;
		return NULL;
	}
	b->data = data;
	b->cap = cap;
	b->data[b->len] = '\0';
	return b->data + b->len;
}

void buf_commit(struct buf *b, size_t n)
{
	assert(b->data && n < b->cap - b->len);
	b->len += n;
	b->data[b->len] = '\0';
}

int buf_put(struct buf *b, const void *data, size_t n)
{
	char *p = buf_reserve(b, n);

	if (!p)
		return b->err;
	if (n > 0)
		memcpy(p, data, n);
	buf_commit(b, n);
	return 0;
}

int buf_puts(struct buf *b, const char *s)
{
	return buf_put(b, s, strlen(s));
}

int buf_putc(struct buf *b, char c)
{
	return buf_put(b, &c, 1);
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	char *p;
	int n;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	assert(n >= 0);
	p = buf_reserve(b, (size_t)n);
	if (p) {
		(void)vsnprintf(p, (size_t)n + 1, fmt, again);
		buf_commit(b, (size_t)n);
	}
	va_end(again);
	return b->err;
}

int buf_put_be(struct buf *b, uint64_t value, unsigned int bytes)
{
	uint8_t out[8];

	assert(bytes >= 1 && bytes <= 8);
	assert(bytes == 8 || value >> (8 * bytes) == 0);
	for (unsigned int i = 0; i < bytes; i++)
		out[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
	return buf_put(b, out, bytes);
}

void buf_consume(struct buf *b, size_t n)
{
	assert(n <= b->len);
	if (n == 0)
		return;
	memmove(b->data, b->data + n, b->len - n + 1);
	b->len -= n;
}

const char *buf_text(const struct buf *b)
{
	return b->data ? b->data : "";
}

char *buf_take(struct buf *b)
{
	char *text;

	if (b->err || !buf_reserve(b, 0))
		return NULL;
	text = b->data;
	*b = (struct buf)BUF_INIT(b->max);
	return text;
}

struct reader reader_of(const void *data, size_t n)
{
	/* An empty input may be NULL; readers only check end == pos. */
	const uint8_t *p = data ? data : (const uint8_t *)"";

	return (struct reader){ .pos = p, .end = p + n };
}

const uint8_t *reader_bytes(struct reader *r, size_t n)
{
	const uint8_t *p = r->pos;

	if (r->err || n > reader_left(r)) {
		r->err = -EBADMSG;
		return NULL;
	}
	r->pos += n;
	return p;
}

uint64_t reader_be(struct reader *r, unsigned int bytes)
{
	const uint8_t *p;
	uint64_t value = 0;

	assert(bytes >= 1 && bytes <= 8);
	p = reader_bytes(r, bytes);
	for (unsigned int i = 0; p && i < bytes; i++)
		value = value << 8 | p[i];
	return value;
}

size_t reader_left(const struct reader *r)
{
	return (size_t)(r->end - r->pos);
}

int reader_finish(const struct reader *r)
{
	return r->err || reader_left(r) > 0 ? -EBADMSG : 0;
}
