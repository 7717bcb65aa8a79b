/* SPDX-License-Identifier: Apache-2.0 */
/* One command in a sandbox, seen from the terminal: its input, its output, its end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "record.h"
#include "wire.h"

struct session_spec {
	const char *const *argv; /* NULL-terminated, at least one */
	const char *const *env;	 /* NAME=value, NULL-terminated; may be NULL */
	const char *user, *cwd;	 /* NULL: the sandbox's own */
	bool input;		 /* pass standard input on; else the command has /dev/null */
	bool terminal;		 /* give it a terminal; `in` must be one */
	uint64_t timeout;	 /* milliseconds, less than 2^32; 0: the sandbox's own */
	int in, out, err;	 /* 0, 1, 2 */
	const char *name;	 /* of the command, or NULL */
	bool detach;		 /* it is not waited for */
	bool keep_input; /* it has an input, also where `input` says that none is passed on */
	/* A command that runs, instead of a new one: input and signals are for it, its output comes
	 * from its record. */
	uint64_t attach;     /* its number; 0: none */
	int record;	     /* -EBADF: its output is not wanted */
	unsigned int signal; /* sent to it, and that is all; 0: none */
	uint64_t from;	     /* the offset of the first byte that is wanted */
};

enum session_how {
	SESSION_EXITED,	  /* number: its exit status */
	SESSION_SIGNALED, /* number: the signal that ended it */
	SESSION_TIMEOUT,  /* killed at the time limit, which the text names */
	SESSION_REFUSED,  /* it never ran; number: an enum wire_code, and a text */
	SESSION_LOST,	  /* the connection ended first; perhaps a text */
	SESSION_PIPE,	  /* whoever read its output has gone */
	SESSION_STOPPED,  /* we were told to end; number: the signal */
	SESSION_HANGUP,	  /* our terminal has gone; the command goes on */
	SESSION_DETACHED, /* the command goes on; `record` */
};

struct session_result {
	enum session_how how;
	unsigned int number;
	uint64_t record; /* the command's number; 0: it never ran */
	bool memory;	 /* processes were killed for it meanwhile, says the agent of a machine */
	char text[WIRE_TEXT_MAX + 1]; /* from the other side: escape it */
};

/* What a record says of the end of its command. */
void session_result_of(const struct record_info *info, struct session_result *ret);

/* "... 5 bytes dropped ..." */
int session_gap(char *out, size_t n, const struct record_piece *gap);

/*
 * Runs one command over the connection `fd`, which stays the caller's and of no other use
 * afterwards. Every byte that came is written before it returns, unless nobody takes it. Fails
 * only for our own trouble; the terminal is as it was in every case. SIGPIPE is ignored afterwards.
 */
int session_run(int fd, const struct session_spec *spec, struct session_result *ret, struct err *e);
