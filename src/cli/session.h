/* SPDX-License-Identifier: Apache-2.0 */
/* One command in a sandbox, seen from the terminal: its input, its output, its end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "wire.h"

struct session_spec {
	const char *const *argv; /* NULL-terminated, at least one */
	const char *const *env;	 /* NAME=value, NULL-terminated; may be NULL */
	const char *user, *cwd;	 /* NULL: the sandbox's own */
	bool input;		 /* pass standard input on; else the command has /dev/null */
	bool terminal;		 /* give it a terminal; `in` must be one */
	uint64_t timeout;	 /* milliseconds, less than 2^32; 0: the sandbox's own */
	int in, out, err;	 /* 0, 1, 2 */
};

enum session_how {
	SESSION_EXITED,	  /* number: its exit status */
	SESSION_SIGNALED, /* number: the signal that ended it */
	SESSION_TIMEOUT,  /* killed at the time limit, which the text names */
	SESSION_REFUSED,  /* it never ran; number: an enum wire_code, and a text */
	SESSION_LOST,	  /* the connection ended first; perhaps a text */
	SESSION_PIPE,	  /* whoever read its output has gone */
	SESSION_STOPPED,  /* we were told to end; number: the signal */
};

struct session_result {
	enum session_how how;
	unsigned int number;
	char text[WIRE_TEXT_MAX + 1]; /* from the other side: escape it */
};

/*
 * Runs one command over the connection `fd`, which stays the caller's and of no other use
 * afterwards. Every byte that came is written before it returns, unless nobody takes it. Fails
 * only for our own trouble; the terminal is as it was in every case. SIGPIPE is ignored afterwards.
 */
int session_run(int fd, const struct session_spec *spec, struct session_result *ret, struct err *e);
