/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes the chunked coding of a body. Strict: a size is 1 to 13 hexadecimal digits and CR LF,
 * without extensions, and no trailers follow the last chunk. No known client sends either, and
 * servers have interpreted them differently. Some servers send trailers: a caller may skip them.
 * Pure functions.
 */
#pragma once

#include <stdint.h>

#include "http-lex/http-lex.h"

enum {
	HTTP_CHUNK_DIGITS_MAX = 13, /* below 2^52 bytes */
	HTTP_CHUNK_TRAILERS_MAX = 16 * 1024,
};

enum http_chunk_state {
	HTTP_CHUNK_SIZE,
	HTTP_CHUNK_SIZE_LF,
	HTTP_CHUNK_DATA,
	HTTP_CHUNK_DATA_CR,
	HTTP_CHUNK_DATA_LF,
	HTTP_CHUNK_LAST_CR,
	HTTP_CHUNK_LAST_LF,
	HTTP_CHUNK_TRAILERS,
	HTTP_CHUNK_DONE,
	HTTP_CHUNK_BAD,
};

/* Starts zeroed but for `trailers`. */
struct http_chunk {
	bool trailers; /* accepts trailers, and skips them */
	enum http_chunk_state state;
	unsigned int digits;
	uint64_t left;	       /* bytes of this chunk */
	struct http_scan scan; /* trailers so far */
};

/*
 * Consumes bytes up to the end of a piece of body data or of the input, and returns their number;
 * the piece is *ret_data, *ret_n (0: none). Consumes nothing in the states DONE and BAD.
 */
size_t http_chunk_feed(struct http_chunk *c, const char *data, size_t n, const char **ret_data,
		       size_t *ret_n);
