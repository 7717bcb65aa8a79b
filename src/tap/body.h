/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a request or response: where it ends, and how it is written. Pure functions. */
#pragma once

#include "base/buf.h"
#include "http-lex/http-chunk.h"

enum body_kind {
	BODY_NONE,
	BODY_LENGTH,
	BODY_CHUNKED,
	BODY_UNTIL_CLOSE,
};

struct body {
	enum body_kind kind;
	uint64_t left; /* BODY_LENGTH */
	struct http_chunk chunk;
	bool done;
};

/* `trailers`: a chunked body may have trailers, which are skipped. */
void body_start(struct body *b, enum body_kind kind, uint64_t length, bool trailers);

/*
 * Consumes bytes up to the end of a piece of the body, which is *ret, *ret_n (0: none), and returns
 * their number; -EBADMSG if the chunks are broken. Consumes nothing after the end (done).
 */
ssize_t body_feed(struct body *b, const char *data, size_t n, const char **ret, size_t *ret_n);

/* Writes a piece, as a chunk if `kind` is BODY_CHUNKED; body_end() writes the last chunk. */
void body_write(struct buf *out, enum body_kind kind, const char *data, size_t n);
void body_end(struct buf *out, enum body_kind kind);
