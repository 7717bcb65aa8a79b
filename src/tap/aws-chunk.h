/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies with signed chunks (S3: STREAMING-AWS4-HMAC-SHA256-PAYLOAD). Each chunk has a signature
 * over its data and the signature before it. A signature stands before the data, so a chunk is
 * buffered. The new body is as long as the old one.
 */
#pragma once

#include "tap/aws.h"

enum {
	AWS_CHUNK_MAX = 1024 * 1024, /* data bytes; clients send 64 KiB to 256 KiB */
};

struct aws_chunks;

/* `c` is copied; `trailers`: the body ends in signed trailers. NULL without memory. */
struct aws_chunks *aws_chunks_new(const struct aws_chain *c, bool trailers);
struct aws_chunks *aws_chunks_free(struct aws_chunks *a);

/*
 * Takes all `n` bytes, and appends signed chunks to `out`. 0, -ENOMEM, -EBADMSG: broken chunks, or
 * -E2BIG: a chunk is too large.
 */
int aws_chunks_feed(struct aws_chunks *a, const char *data, size_t n, struct buf *out);

bool aws_chunks_done(const struct aws_chunks *a); /* the last chunk is complete */
