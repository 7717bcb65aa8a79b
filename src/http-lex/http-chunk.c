/* SPDX-License-Identifier: Apache-2.0 */
#include "http-lex/http-chunk.h"

#include "base/str.h"

static void size_byte(struct http_chunk *c, char b)
{
	char low = ascii_lower(b);
	bool letter = low >= 'a' && low <= 'f';

	if (b == '\r' && c->digits > 0) {
		c->state = HTTP_CHUNK_SIZE_LF;
	} else if ((ascii_is_digit(b) || letter) && c->digits < HTTP_CHUNK_DIGITS_MAX) {
		c->left = c->left << 4 | (uint64_t)(letter ? low - 'a' + 10 : b - '0');
		c->digits++;
	} else {
		c->state = HTTP_CHUNK_BAD;
	}
}

static void expect(struct http_chunk *c, bool met, enum http_chunk_state next)
{
	c->state = met ? next : HTTP_CHUNK_BAD;
}

/* The trailers end in an empty line. */
static void trailer_byte(struct http_chunk *c, char b)
{
	enum http_scanned r = http_scan_byte(&c->scan, b);

	if (r == HTTP_SCAN_HEAD)
		c->state = HTTP_CHUNK_DONE;
	else if (r == HTTP_SCAN_BAD_END || r == HTTP_SCAN_CONTROL ||
		 c->scan.pos == HTTP_CHUNK_TRAILERS_MAX)
		c->state = HTTP_CHUNK_BAD;
	else
		c->state = HTTP_CHUNK_TRAILERS;
}

/* Handles a framing byte. */
static void frame_byte(struct http_chunk *c, char b)
{
	switch (c->state) {
	case HTTP_CHUNK_SIZE:
		size_byte(c, b);
		break;
	case HTTP_CHUNK_SIZE_LF:
		expect(c, b == '\n', c->left > 0 ? HTTP_CHUNK_DATA : HTTP_CHUNK_LAST_CR);
		c->digits = 0;
		break;
	case HTTP_CHUNK_DATA_CR:
		expect(c, b == '\r', HTTP_CHUNK_DATA_LF);
		break;
	case HTTP_CHUNK_DATA_LF:
		expect(c, b == '\n', HTTP_CHUNK_SIZE);
		break;
	case HTTP_CHUNK_LAST_CR:
		if (c->trailers) {
			trailer_byte(c, b);
			break;
		}
		expect(c, b == '\r', HTTP_CHUNK_LAST_LF);
		break;
	case HTTP_CHUNK_LAST_LF:
		expect(c, b == '\n', HTTP_CHUNK_DONE);
		break;
	case HTTP_CHUNK_TRAILERS:
		trailer_byte(c, b);
		break;
	case HTTP_CHUNK_DATA:
	case HTTP_CHUNK_DONE:
	case HTTP_CHUNK_BAD:
		break;
	}
}

size_t http_chunk_feed(struct http_chunk *c, const char *data, size_t n, const char **ret_data,
		       size_t *ret_n)
{
	size_t i = 0;

	*ret_data = data;
	*ret_n = 0;
	while (i < n && c->state < HTTP_CHUNK_DONE && c->state != HTTP_CHUNK_DATA)
		frame_byte(c, data[i++]);
	if (i == n || c->state != HTTP_CHUNK_DATA)
		return i;
	*ret_data = data + i;
	*ret_n = n - i < c->left ? n - i : (size_t)c->left;
	c->left -= *ret_n;
	if (c->left == 0)
		c->state = HTTP_CHUNK_DATA_CR;
	return i + *ret_n;
}
