/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens in a child between fork(2) and the user's code. Everything that can wait or fail is
 * done there and not in PID 1: reading /etc/passwd, entering directories, looking programs up.
 */
#pragma once

#include "guest/users.h"
#include "wire/message.h"

/* Why a child could not do what it was asked for. */
struct failure {
	enum wire_code code;
	char text[ERR_MSG_MAX];
};

struct child_spec {
	const struct fields *fields; /* of OPEN exec */
	int in, out, err;	     /* become 0, 1, 2 */
	bool terminal;		     /* `in` is one, and becomes the controlling terminal */
	bool session;		     /* it leads one already: child_session() */
	int report;		     /* closed by exec; a failure is written there */
};

/*
 * Remembers the limits that children get where nobody asks for others, before the guest raises its
 * own.
 */
void child_start(void);

/* Begins a session, and so a process group, of its own. */
void child_session(void);

/* Never returns: runs the program, or reports a struct failure and exits. */
_noreturn_ void child_exec(const struct child_spec *spec);

/*
 * Becomes the user that the fields name, confined; a `terminal` that is not -EBADF becomes theirs.
 * 0, or -1 with *fail.
 */
int child_become(const struct fields *f, int terminal, struct user *ret, struct failure *fail);

/* The absolute path of a field, as user_path() has it. 0, or -1 with *fail. */
int child_path(const struct fields *f, enum wire_tag tag, const struct user *u, char *ret,
	       size_t size, struct failure *fail);

/* Fills in a failure with the code that an errno means; returns -1. */
int fail_errno(struct failure *ret, int err, const char *what, const char *which);
int fail_with(struct failure *ret, enum wire_code code, const char *fmt, ...) _printf_(3, 4);
enum wire_code code_of_errno(int err);
