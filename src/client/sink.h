/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffered output to a descriptor with a possibly slow reader. Other processes share the
 * descriptor, so we must not set O_NONBLOCK. Instead, each write is preceded by poll(2) and is no
 * longer than the room that poll(2) promises.
 */
#pragma once

#include "base/buf.h"
#include "base/loop.h"

struct sink {
	struct buf buf; /* data waiting to be written */
	struct loop *loop;
	struct loop_fd src; /* in the loop only while data waits */
	int fd;
	bool regular;
};

void sink_init(struct sink *s, struct loop *loop, int fd, size_t max);
void sink_done(struct sink *s);

/* Keeps a copy of `n` bytes until sink_flush(). */
int sink_put(struct sink *s, const void *data, size_t n);

/* Writes without waiting and returns how much, or -errno. If data is left, the loop wakes up when
 * there is room. */
ssize_t sink_flush(struct sink *s);

static inline bool sink_empty(const struct sink *s)
{
	return s->buf.len == 0;
}
