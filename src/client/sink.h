/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output that somebody else may be slow to read. The descriptor is the one we were given and is
 * shared with other processes, so O_NONBLOCK is not ours to set: it is asked before each write
 * whether there is room, and no more is written than room was promised for.
 */
#pragma once

#include "buf.h"
#include "loop.h"

struct sink {
	struct buf buf; /* what waits */
	struct loop *loop;
	struct loop_fd src; /* in the loop only while something waits */
	int fd;
	bool regular;
};

void sink_init(struct sink *s, struct loop *loop, int fd, size_t max);
void sink_done(struct sink *s);

/* Keeps a copy of `n` bytes until sink_flush(). */
int sink_put(struct sink *s, const void *data, size_t n);

/* Writes what can be written now and returns how much that was, or -errno. What is left makes the
 * loop go round when there is room. */
ssize_t sink_flush(struct sink *s);

static inline bool sink_empty(const struct sink *s)
{
	return s->buf.len == 0;
}
