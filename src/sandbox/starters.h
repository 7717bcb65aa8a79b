/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts several sandboxes at the same time, each in a child process: a start blocks until its
 * sandbox is ready.
 */
#pragma once

#include "base/err.h"

enum {
	STARTERS_MAX = 4,
};

/* The number of concurrent starts that suits this host: one for each CPU, at most STARTERS_MAX. */
unsigned int starters_fit(void);

struct starters_work {
	/* How many are missing, without those being started. A number that is too small delays a
	 * start; a number that is too large starts too many. */
	unsigned int (*missing)(void *arg);
	/* Called before each start, with the number of those being started; NULL: not called. */
	void (*say)(unsigned int being_started, void *arg);
	/* Starts one, in a child process. */
	int (*start)(void *arg, struct err *e);
	void *arg;
};

/* Starts as many as are missing, at most `max` at a time, until none is missing. After a failure it
 * stops starting, waits for the others and returns the first error. */
int starters_run(const struct starters_work *w, unsigned int max, struct err *e);
