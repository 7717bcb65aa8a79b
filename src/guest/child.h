/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a child between fork(2) and the user's code. Everything that can block or fail
 * happens here and not in PID 1: reading /etc/passwd, entering directories, finding programs.
 */
#pragma once

#include "guest/users.h"
#include "wire/message.h"

/* Why an operation failed in a child. */
struct failure {
	enum wire_code code;
	char text[ERR_MSG_MAX];
};

struct child_spec {
	const struct fields *fields; /* of OPEN exec */
	int in, out, err;	     /* become 0, 1, 2 */
	bool terminal;		     /* `in` is a terminal and becomes the controlling terminal */
	bool session;		     /* the child leads a session already: child_session() */
	int report;		     /* receives a struct failure; closed by exec */
};

/* Saves the default limits of children. Call it before the guest raises its own limits. */
void child_start(void);

/* Starts a new session and process group. */
void child_session(void);

/* Never returns: runs the program, or reports a struct failure and exits. */
_noreturn_ void child_exec(const struct child_spec *spec);

/*
 * Becomes the user named by the fields, and confines the process. The user becomes the owner of
 * `terminal`, unless that is -EBADF. 0, or -1 with *fail.
 */
int child_become(const struct fields *f, int terminal, struct user *ret, struct failure *fail);

/* Returns the absolute path of a field, resolved by user_path(). 0, or -1 with *fail. */
int child_path(const struct fields *f, enum wire_tag tag, const struct user *u, char *ret,
	       size_t size, struct failure *fail);

/* Fills in a failure with the wire code of an errno; returns -1. */
int fail_errno(struct failure *ret, int err, const char *what, const char *which);
int fail_with(struct failure *ret, enum wire_code code, const char *fmt, ...) _printf_(3, 4);
enum wire_code code_of_errno(int err);
