/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/body.h"

void body_start(struct body *b, enum body_kind kind, uint64_t length, bool trailers)
{
	*b = (struct body){
		.kind = kind,
		.left = length,
		.chunk.trailers = trailers,
		.done = kind == BODY_NONE || (kind == BODY_LENGTH && length == 0),
	};
}

ssize_t body_feed(struct body *b, const char *data, size_t n, const char **ret, size_t *ret_n)
{
	size_t used;

	*ret = data;
	*ret_n = 0;
	if (b->done)
		return 0;
	switch (b->kind) {
	case BODY_CHUNKED:
		used = http_chunk_feed(&b->chunk, data, n, ret, ret_n);
		b->done = b->chunk.state == HTTP_CHUNK_DONE;
		return b->chunk.state == HTTP_CHUNK_BAD ? -EBADMSG : (ssize_t)used;
	case BODY_LENGTH:
		*ret_n = (size_t)MIN((uint64_t)n, b->left);
		b->left -= *ret_n;
		b->done = b->left == 0;
		return (ssize_t)*ret_n;
	case BODY_UNTIL_CLOSE:
		*ret_n = n;
		return (ssize_t)n;
	case BODY_NONE:
		break;
	}
	return 0;
}

void body_write(struct buf *out, enum body_kind kind, const char *data, size_t n)
{
	if (n == 0)
		return;
	if (kind == BODY_CHUNKED)
		(void)buf_printf(out, "%zx\r\n", n);
	(void)buf_put(out, data, n);
	if (kind == BODY_CHUNKED)
		(void)buf_puts(out, "\r\n");
}

void body_end(struct buf *out, enum body_kind kind)
{
	if (kind == BODY_CHUNKED)
		(void)buf_puts(out, "0\r\n\r\n");
}
