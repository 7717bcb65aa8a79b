/* SPDX-License-Identifier: Apache-2.0 */
/* Runs programs of the host that do a part of the work. */
#pragma once

#include "base/err.h"

struct tool {
	const char *const *argv; /* argv[0] is searched for in the system directories */
	const char *package;	 /* Debian package of the program, for the message */
	int in, out;		 /* -EBADF: /dev/null for `in`; `out` is then read like stderr */
	/* A lock that the program and its children also hold: a process that gets it knows that
	 * none of them is running, even if we were killed. May be NULL. */
	const int *hold;
	void (*line)(const char *line, void *arg); /* called for each line of output; may be NULL */
	void *arg;
};

/* Runs it to its end; kills it if we are killed. -ENOENT: not installed; -EIO: it failed, with its
 * last line of output in `e`. */
int tool_run(const struct tool *t, struct err *e);
