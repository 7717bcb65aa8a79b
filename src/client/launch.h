/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start command and the ready command of a template, in a new sandbox, on the caller's loop:
 * however long they hang, they cost a connection and no process of ours.
 */
#pragma once

#include "peer.h"

struct launch;

struct launch_terms {
	const char *start; /* begun, and not waited for; NULL: none */
	const char *ready; /* repeated every half second until it ends with 0; NULL: none */
	uint64_t limit_ms; /* for both */
};

/*
 * `fd` is a connection to the keeper's socket, and the launch's from here on, also on failure.
 * done() is called once, from the loop, with e->num 0 or an error (-ETIME: the limit); it may, and
 * someone must, call launch_free(). The texts of `terms` are copied. trace_request() goes along.
 */
int launch_new(struct loop *loop, int fd, const struct launch_terms *terms,
	       void (*done)(void *arg, const struct err *e), void *arg, struct launch **ret,
	       struct err *e);
/* Also before done(), which is then not called; a ready command that runs is killed. */
struct launch *launch_free(struct launch *l);
