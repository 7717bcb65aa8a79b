/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/trace.h"

enum {
	START_LOG_MS = 100, /* how often it is looked at while the start is waited for */
};

struct start_log {
	int fd; /* -EBADF: nobody wants it */
	struct trace_lines lines;
};

#define START_LOG_INIT       \
	{                    \
		.fd = -EBADF \
	}

/* Nothing unless trace lines are wanted here. */
void start_log_open(struct start_log *l, int dir);
void start_log_follow(struct start_log *l);
void start_log_done(struct start_log *l); /* after a last look */

/* Is that a trace line, and not one of the log? */
bool start_log_is_trace(const char *line, size_t n);
