/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the output of a command, and converts it to JSON strings. */
#include <string.h>

#include "base/str.h"
#include "mcp/mcp-inner.h"

enum {
	NOTE_MAX = 128,
	GROWTH = 3, /* bytes of U+FFFD, which can replace one byte */
};

void output_put(struct output *o, const char *data, size_t n)
{
	size_t room = MIN(n, sizeof(o->head) - o->head_len);

	memcpy(o->head + o->head_len, data, room);
	o->head_len += room;
	/* The tail is a ring: byte i after the head is at i modulo its size. */
	for (size_t i = room; i < n; i++)
		o->tail[(o->total + i - sizeof(o->head)) % sizeof(o->tail)] = data[i];
	o->total += n;
}

uint64_t output_cut(const struct output *o)
{
	return o->total > MCP_TEXT_MAX ? o->total - MCP_TEXT_MAX : 0;
}

/* Replaces invalid UTF-8, and also U+0000, which JSON readers treat differently. */
static void put_utf8(struct buf *b, const char *s, size_t n)
{
	for (size_t i = 0; i < n;) {
		uint32_t cp = 0;
		size_t len = utf8_decode(s + i, n - i, &cp);

		if (len == 0 || cp == 0)
			(void)buf_puts(b, "\xef\xbf\xbd");
		else
			(void)buf_put(b, s + i, len);
		i += len ? len : 1;
	}
}

static json_t *text_of(const struct buf *b)
{
	return b->err < 0 ? NULL : json_stringn(buf_text(b), b->len);
}

static void put_tail(struct buf *b, const struct output *o)
{
	uint64_t behind = o->total - o->head_len;
	size_t n = (size_t)MIN(behind, (uint64_t)sizeof(o->tail));
	char flat[sizeof(o->tail)];

	for (size_t i = 0; i < n; i++)
		flat[i] = o->tail[(behind - n + i) % sizeof(o->tail)];
	put_utf8(b, flat, n);
}

json_t *output_text(const struct output *o)
{
	_cleanup_buf_ struct buf b = BUF_INIT(GROWTH * MCP_TEXT_MAX + NOTE_MAX);

	/* Join an uncut stream first: a character may span head and tail. */
	if (output_cut(o) == 0) {
		char *all = malloc(MCP_TEXT_MAX + 1);

		if (!all)
			return NULL;
		memcpy(all, o->head, o->head_len);
		memcpy(all + o->head_len, o->tail, (size_t)o->total - o->head_len);
		put_utf8(&b, all, (size_t)o->total);
		free(all);
		return text_of(&b);
	}
	put_utf8(&b, o->head, o->head_len);
	(void)buf_printf(&b, "\n[hutch: %llu bytes left out here]\n",
			 (unsigned long long)output_cut(o));
	put_tail(&b, o);
	return text_of(&b);
}

json_t *output_bytes(const char *data, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(GROWTH * n + 1);

	put_utf8(&b, data, n);
	return text_of(&b);
}
