/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads an archive, uncompressed or through gzip, zstd or xz, which run as a child process in the
 * caller's confinement. Limits the compression ratio.
 */
#pragma once

#include <sodium.h>

#include "base/proc.h"
#include "image/image.h"

struct stream {
	int fd; /* source of the bytes; owned by us */
	struct proc unpacker;
	const char *program; /* name of the unpacker; NULL if none */
	uint64_t packed;     /* size of the compressed file; 0 if not compressed */
	uint64_t out;
	crypto_hash_sha256_state hash; /* hash of unpacked bytes */
};

#define STREAM_INIT                                 \
	{                                           \
		.fd = -EBADF, .unpacker = PROC_INIT \
	}
#define _cleanup_stream_ _cleanup_(stream_done)

/* Takes `fd`, also on failure. Detects compression of a regular file, not of a pipe. */
int stream_open(struct stream *s, int fd, struct err *e);

/* A tar_read_fn. */
int64_t stream_read(void *stream, void *buf, size_t n, struct err *e);

/* Call after the last byte: checks that the unpacker succeeded and returns the SHA-256 of all
 * bytes. */
int stream_finish(struct stream *s, uint8_t ret_digest[static IMAGE_DIGEST], struct err *e);

void stream_done(struct stream *s);
