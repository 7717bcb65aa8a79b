/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors above base/: a number (negative errno) and a message, on the caller's stack.
 *
 * The function that knows the cause calls err_set() or err_errno() once; its callers add context
 * with err_wrap(); the top-level caller prints e.msg once. `e` is never NULL. Every function here
 * returns the negative errno, for `return err_set(...)`.
 */
#pragma once

#include "base/util.h"

enum {
	ERR_MSG_MAX = 256
};

struct err {
	int num; /* negative errno; 0: no error */
	char msg[ERR_MSG_MAX];
};

#define ERR_INIT                    \
	{                           \
		.num = 0, .msg = "" \
	}

/* Shows compilers and analyzers that the functions below always return an error. */
static inline int err_negative(int num)
{
	if (num >= 0)
		__builtin_unreachable();
	return num;
}

/* Sets `e` to `num` (negative errno) and a message; a truncated message ends in "...". The old
 * message of `e` may be an argument. */
int err_set_(struct err *e, int num, const char *fmt, ...) _printf_(3, 4);

/* Same with the current errno, whose text is added: "cannot open x: No such file or directory". */
int err_errno_(struct err *e, const char *fmt, ...) _printf_(2, 3);

/* Puts context before the message of `e`: "starting sandbox x: " + message. Keeps the number. */
int err_wrap_(struct err *e, const char *fmt, ...) _printf_(2, 3);

/* Sets -ENOMEM with the standard message. */
int err_oom_(struct err *e);

#define err_set(...)   err_negative(err_set_(__VA_ARGS__))
#define err_errno(...) err_negative(err_errno_(__VA_ARGS__))
#define err_wrap(...)  err_negative(err_wrap_(__VA_ARGS__))
#define err_oom(e)     err_negative(err_oom_(e))
