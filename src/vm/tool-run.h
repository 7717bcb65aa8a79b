/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of the host that do a part of the work. */
#pragma once

#include "err.h"

struct tool {
	const char *const *argv; /* argv[0] is looked for where the system has its programs */
	const char *package;	 /* which has it, for the message */
	int in, out;		 /* -EBADF: nothing; its output is then read as what it says */
	/* A lock that it and all its children hold too: whoever waits for it finds none of them at
	 * work, also when we were killed. May be NULL. */
	const int *hold;
	void (*line)(const char *line, void *arg); /* told what it says; may be NULL */
	void *arg;
};

/* Runs it to its end; it is killed if we are. -ENOENT: not installed; -EIO: it failed, with the
 * last line that it said. */
int tool_run(const struct tool *t, struct err *e);
