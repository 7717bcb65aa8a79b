/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the start command and the ready command of a template in a new sandbox, on the caller's
 * loop. A hanging command costs a connection and no process of ours.
 */
#pragma once

#include "client/peer.h"

struct launch;

struct launch_terms {
	const char *start; /* started and not waited for; NULL: none */
	const char *ready; /* repeated every half second until it exits with 0; NULL: none */
	uint64_t limit_ms; /* for both commands together */
};

/*
 * `fd` is a connection to the keeper's socket; the launch owns it, also on failure. The loop calls
 * done() once, with e->num 0 or an error (-ETIME: the limit). The caller must call launch_free(),
 * and may do so in done(). Copies the strings of `terms` and passes trace_request() on.
 */
int launch_new(struct loop *loop, int fd, const struct launch_terms *terms,
	       void (*done)(void *arg, const struct err *e), void *arg, struct launch **ret,
	       struct err *e);
/* Before done(), this cancels the launch: done() is not called, and a running ready command is
 * killed. */
struct launch *launch_free(struct launch *l);
