/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/aws-chunk.h"

#include <sodium.h>
#include <string.h>

#include "base/str.h"

enum {
	CHUNK_LINE_MAX = 1024,
	TRAILERS_MAX = 8 * 1024,
	SIZE_DIGITS_MAX = 8,
};

enum state {
	STATE_LINE, /* the size and signature of a chunk */
	STATE_DATA,
	STATE_DATA_END, /* CR LF */
	STATE_TRAILER,	/* a line after the last chunk */
	STATE_DONE,
};

struct aws_chunks {
	struct aws_chain chain;
	bool trailers;
	enum state state;
	struct buf line; /* so far, with CR LF */
	struct buf data; /* one chunk, or all trailers in the form that is signed */
	size_t size;	 /* data bytes of the chunk */
};

struct aws_chunks *aws_chunks_new(const struct aws_chain *c, bool trailers)
{
	struct aws_chunks *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->chain = *c;
	a->trailers = trailers;
	a->line = (struct buf)BUF_INIT(CHUNK_LINE_MAX);
	a->data = (struct buf)BUF_INIT(AWS_CHUNK_MAX);
	return a;
}

struct aws_chunks *aws_chunks_free(struct aws_chunks *a)
{
	if (!a)
		return NULL;
	sodium_memzero(&a->chain, sizeof(a->chain));
	buf_done(&a->line);
	buf_done(&a->data);
	free(a);
	return NULL;
}

/* Takes a prefix off the line. */
static bool take(struct http_text *t, const char *prefix)
{
	size_t n = strlen(prefix);

	if (t->n < n || strncasecmp(t->s, prefix, n) != 0)
		return false;
	t->s += n;
	t->n -= n;
	return true;
}

/* HEX-SIZE;chunk-signature=SIGNATURE */
static int read_size(struct aws_chunks *a, struct http_text line)
{
	size_t digits = 0;

	a->size = 0;
	for (; digits < line.n && digits <= SIZE_DIGITS_MAX; digits++) {
		char c = ascii_lower(line.s[digits]);

		if (ascii_is_digit(c))
			a->size = a->size << 4 | (size_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			a->size = a->size << 4 | (size_t)(c - 'a' + 10);
		else
			break;
	}
	if (digits == 0 || digits > SIZE_DIGITS_MAX)
		return -EBADMSG;
	line.s += digits;
	line.n -= digits;
	if (!take(&line, ";chunk-signature=") || line.n != AWS_HASH_LEN)
		return -EBADMSG;
	return a->size > AWS_CHUNK_MAX ? -E2BIG : 0;
}

/* The complete chunk: the received line with another signature, and the data. */
static void put_chunk(struct aws_chunks *a, struct buf *out)
{
	size_t before = a->line.len - AWS_HASH_LEN - STRLEN("\r\n");
	char hash[AWS_HASH_LEN + 1];

	aws_hash(buf_text(&a->data), a->data.len, hash);
	aws_chain_next(&a->chain, AWS_CHAIN_CHUNK, hash);
	(void)buf_put(out, a->line.data, before);
	(void)buf_puts(out, a->chain.signature);
	(void)buf_puts(out, "\r\n");
	(void)buf_put(out, buf_text(&a->data), a->data.len);
	buf_reset(&a->line);
	buf_reset(&a->data);
}

/* NAME:VALUE, the signature of the trailers, or the empty line at the end. */
static int read_trailer(struct aws_chunks *a, struct http_text line, struct buf *out)
{
	static const char name[] = "x-amz-trailer-signature:";
	char hash[AWS_HASH_LEN + 1];
	struct http_text value = line;

	if (line.n == 0) {
		a->state = STATE_DONE;
		return buf_puts(out, "\r\n");
	}
	if (!a->trailers || a->data.len > TRAILERS_MAX)
		return -EBADMSG;
	if (!take(&value, name)) {
		for (size_t i = 0; i < line.n; i++)
			if (line.s[i] != ' ')
				(void)buf_putc(&a->data, line.s[i]);
		(void)buf_putc(&a->data, '\n');
		(void)buf_put(out, line.s, line.n);
		return buf_puts(out, "\r\n");
	}
	if (value.n != AWS_HASH_LEN)
		return -EBADMSG;
	aws_hash(buf_text(&a->data), a->data.len, hash);
	aws_chain_next(&a->chain, AWS_CHAIN_TRAILER, hash);
	return buf_printf(out, "%s%s\r\n", name, a->chain.signature);
}

static int line_done(struct aws_chunks *a, struct buf *out)
{
	struct http_text line = { a->line.data, a->line.len - STRLEN("\r\n") };
	int r;

	switch (a->state) {
	case STATE_LINE:
		r = read_size(a, line);
		if (r < 0)
			return r;
		a->state = a->size > 0 ? STATE_DATA : STATE_TRAILER;
		if (a->size == 0)
			put_chunk(a, out);
		return 0;
	case STATE_DATA_END:
		a->state = STATE_LINE;
		r = line.n == 0 ? buf_puts(out, "\r\n") : -EBADMSG;
		break;
	case STATE_TRAILER:
		r = read_trailer(a, line, out);
		break;
	default:
		return -EBADMSG;
	}
	buf_reset(&a->line);
	return r;
}

/* Takes bytes up to the end of the line. */
static ssize_t feed_line(struct aws_chunks *a, const char *data, size_t n, struct buf *out)
{
	const char *lf = memchr(data, '\n', n);
	size_t used = lf ? (size_t)(lf - data) + 1 : n;
	int r;

	if (buf_put(&a->line, data, used) < 0)
		return a->line.err == -ENOBUFS ? -EBADMSG : -ENOMEM;
	if (!lf)
		return (ssize_t)used;
	if (a->line.len < 2 || a->line.data[a->line.len - 2] != '\r')
		return -EBADMSG;
	r = line_done(a, out);
	return r < 0 ? r : (ssize_t)used;
}

static ssize_t feed_data(struct aws_chunks *a, const char *data, size_t n, struct buf *out)
{
	size_t used = MIN(n, a->size - a->data.len);

	if (buf_put(&a->data, data, used) < 0)
		return -ENOMEM;
	if (a->data.len == a->size) {
		put_chunk(a, out);
		a->state = STATE_DATA_END;
	}
	return (ssize_t)used;
}

int aws_chunks_feed(struct aws_chunks *a, const char *data, size_t n, struct buf *out)
{
	ssize_t used;

	for (size_t at = 0; at < n; at += (size_t)used) {
		used = a->state == STATE_DATA ? feed_data(a, data + at, n - at, out)
					      : feed_line(a, data + at, n - at, out);
		if (used < 0)
			return (int)used;
	}
	return out->err;
}

bool aws_chunks_done(const struct aws_chunks *a)
{
	return a->state == STATE_DONE;
}
