/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one command in a sandbox for a terminal or a pipe: passes input, output and signals, and
 * returns the result. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "state/record.h"
#include "wire/wire.h"

struct session_spec {
	const char *const *argv; /* NULL-terminated, at least one */
	const char *const *env;	 /* NAME=value, NULL-terminated; may be NULL */
	const char *user, *cwd;	 /* NULL: the sandbox's default */
	bool input;		 /* pass standard input on; else the command reads /dev/null */
	bool terminal;		 /* allocate a terminal; `in` must be one */
	uint64_t timeout;	 /* milliseconds, less than 2^32; 0: the sandbox's default */
	int in, out, err;	 /* 0, 1, 2 */
	const char *name;	 /* command name; may be NULL */
	bool detach;		 /* do not wait for the command */
	bool keep_input;	 /* keep the command's input open even if `input` is false */
	/* Attach to a running command instead of starting one: input and signals go to it, its
	 * output comes from its record. */
	uint64_t attach;     /* the command's number; 0: none */
	int record;	     /* -EBADF: do not read its output */
	unsigned int signal; /* only send this signal; 0: none */
	uint64_t from;	     /* offset of the first byte wanted */
};

enum session_how {
	SESSION_EXITED,	  /* number: exit status */
	SESSION_SIGNALED, /* number: the signal that ended the command */
	SESSION_TIMEOUT,  /* killed at the time limit, which `text` names */
	SESSION_REFUSED,  /* it never ran; number: enum wire_code; `text` is set */
	SESSION_LOST,	  /* the connection ended first; `text` may be set */
	SESSION_PIPE,	  /* the reader of its output has gone */
	SESSION_STOPPED,  /* a signal ended us; number: the signal */
	SESSION_HANGUP,	  /* our terminal hung up; the command continues */
	SESSION_DETACHED, /* the command continues; `record` is set */
};

struct session_result {
	enum session_how how;
	unsigned int number;
	uint64_t record; /* the command's number; 0: it never ran */
	bool memory;	 /* the guest of a VM reported processes killed for lack of memory */
	char text[WIRE_TEXT_MAX + 1]; /* untrusted: escape it */
};

/* Derives the result from a command's record. */
void session_result_of(const struct record_info *info, struct session_result *ret);

/* "... 5 bytes dropped ..." */
int session_gap(char *out, size_t n, const struct record_piece *gap);

/*
 * Runs one command over the connection `fd`. The caller closes `fd` and cannot use it for anything
 * else afterwards. All received output is written before it returns, unless its reader has gone.
 * Fails only for errors of our own. Restores the terminal in every case; SIGPIPE stays ignored.
 */
int session_run(int fd, const struct session_spec *spec, struct session_result *ret, struct err *e);
