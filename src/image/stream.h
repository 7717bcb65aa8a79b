/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of an archive: as they are, or through gzip, zstd or xz as a process of its own that
 * shares the confinement of the caller. Watches how much comes out of how little.
 */
#pragma once

#include <sodium.h>

#include "image.h"
#include "proc.h"

struct stream {
	int fd; /* where bytes are read: ours to close */
	struct proc unpacker;
	const char *program; /* its name; NULL if there is none */
	uint64_t packed;     /* size of the compressed file; 0 if it is not compressed */
	uint64_t out;
	crypto_hash_sha256_state hash; /* of what came out */
};

#define STREAM_INIT                                 \
	{                                           \
		.fd = -EBADF, .unpacker = PROC_INIT \
	}
#define _cleanup_stream_ _cleanup_(stream_done)

/* Takes `fd`, also on failure. A regular file is looked at for its compression; a pipe is not. */
int stream_open(struct stream *s, int fd, struct err *e);

/* A tar_read_fn. */
int64_t stream_read(void *stream, void *buf, size_t n, struct err *e);

/* After the last byte: did the unpacking program end well? Gives the SHA-256 of all bytes. */
int stream_finish(struct stream *s, uint8_t ret_digest[static IMAGE_DIGEST], struct err *e);

void stream_done(struct stream *s);
