/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A standby is a child forked before there is a command for it. A command that soon follows another
 * one finds the fork, the pipes and the reading of /etc/passwd done.
 *
 * There is at most one. The guest forks it when a command starts within STANDBY_MS of the previous
 * one, and it exits after STANDBY_MS without a command. So an idle sandbox, and one that runs a
 * single or a long command, has no extra process. Until it gets its command the standby has the
 * privileges of PID 1, as every child does before child_become(), and no descriptors of other
 * commands. If it fails, the guest forks the next command as usual.
 */
#pragma once

#include <limits.h>

#include "guest/guest.h"

#define STANDBY_NAME "hutch-standby" /* as ps(1) shows it */

enum {
	STANDBY_MS = 1000,
	/* A pipe takes such an OPEN whole or not at all, even a short one at the user's limit. */
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

/* Makes a pipe whose end `ours` (0 or 1) is non-blocking. */
int ends_pipe(int ours, int *ret_ours, int *ret_theirs);

/* Forks a standby if one is wanted and none exists. */
void standby_make(struct guest *g);

/* Call when a command has started: another one may follow. */
void standby_want(struct guest *g);

/* Ends the standby, if any. It is reaped like other children. */
void standby_drop(struct guest *g);

/* The process `pid` was reaped. */
void standby_ended(struct guest *g, pid_t pid);

/*
 * Hands an OPEN exec to the standby. Returns its pid, with our ends of its pipes in *ret; 0 if
 * there is no standby, or it cannot run this command.
 */
pid_t standby_take(struct guest *g, const struct fields *f, struct ends *ret);
