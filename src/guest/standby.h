/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A standby is a child that is forked before there is a command for it. A command that follows
 * another one soon finds the fork, the pipes and the reading of /etc/passwd done.
 *
 * There is at most one. It is made when a command has been started that followed another within
 * STANDBY_MS, gets ready beside it, and ends after STANDBY_MS without a command: a sandbox that
 * waits, runs one command, or works for long, has no process more. Until it has its command it
 * holds the rights of PID 1, as every child does before child_become(), and no descriptor of
 * others. If it fails in any way, the next command is forked instead.
 */
#pragma once

#include <limits.h>

#include "guest/guest.h"

#define STANDBY_NAME "hutch-standby" /* as ps(1) shows it */

enum {
	STANDBY_MS = 1000,
	/* An OPEN that a pipe takes whole or not at all, however small the kernel has made it: a
	 * user with many pipes gets short ones. */
	STANDBY_OPEN_MAX = PIPE_BUF,
};

/* The ends of pipes and terminals: ours, and the child's. */
struct ends {
	int report, in, out, err;
	int child_report, child_in, child_out, child_err;
};

#define ENDS_INIT                                                              \
	{                                                                      \
		-EBADF, -EBADF, -EBADF, -EBADF, -EBADF, -EBADF, -EBADF, -EBADF \
	}

void ends_close(struct ends *x);

/* A pipe whose end `ours` (0 or 1) does not block. */
int ends_pipe(int ours, int *ret_ours, int *ret_theirs);

/* Makes one if it is wanted, and there is none. */
void standby_make(struct guest *g);

/* A command has been started: another one may follow. */
void standby_want(struct guest *g);

/* It ends by itself, and is reaped like other children. Nothing if there is none. */
void standby_drop(struct guest *g);

/* It was reaped. */
void standby_ended(struct guest *g, pid_t pid);

/*
 * Hands an OPEN exec to the standby. Its number, with our ends of its pipes in *ret; 0 if there is
 * none, or the command is not for it.
 */
pid_t standby_take(struct guest *g, const struct fields *f, struct ends *ret);
