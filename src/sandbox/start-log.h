/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/trace.h"

enum {
	START_LOG_MS = 100, /* interval between reads during a start */
};

struct start_log {
	int fd; /* -EBADF: not wanted */
	struct trace_lines lines;
};

#define START_LOG_INIT       \
	{                    \
		.fd = -EBADF \
	}

/* Does nothing unless this process traces. */
void start_log_open(struct start_log *l, int dir);
void start_log_follow(struct start_log *l);
void start_log_done(struct start_log *l); /* reads once more */

/* Whether this is a trace line, not a log line. */
bool start_log_is_trace(const char *line, size_t n);
