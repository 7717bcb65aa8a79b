/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault points: named places at which a test kills the process or makes the step fail. They are
 * compiled in by -Dfault=true only; otherwise each is the number 0. Each is a trace point too
 * (trace.h), which reports that its step is done and how long it took.
 *
 *   HUTCH_FAULT=POINT[:N]=kill|ERRNO[,...]   at the N-th pass of the point (default 1) the process
 *                                            kills itself as kill -9 would, or the point returns
 *                                            -ERRNO (ENOSPC, EIO, ...), once
 *   HUTCH_FAULT_LIST=1                       prints "fault point NAME in PID" on stderr at each
 *                                            pass; a fault that strikes is always printed
 *
 * A point follows the step that it is named after, so the results of that step exist.
 *
 * A child with an environment of its own has these variables only if its parent passes FAULT_ENV.
 */
#pragma once

#include "base/err.h"
#include "base/trace.h"

/* Returns 0 or the requested -errno; does not return if the fault is a kill. */
int fault_pass(const char *point);

/* Same with a message. */
int fault_err(const char *point, struct err *e);

/* Kills the process behind `pidfd` instead of this one; errors are not supported. */
void fault_kill(const char *point, int pidfd);

/* Both variables, as far as they are set, for an environment that has no others. */
const char *const *fault_env(void);

#ifdef HUTCH_FAULT_POINTS
#define FAULT(point)		 fault_pass(point)
#define FAULT_ERR(point, e)	 fault_err(point, e)
#define FAULT_KILL(point, pidfd) fault_kill(point, pidfd)
#define FAULT_ENV		 fault_env()
#else
#define FAULT(point)		 (__builtin_expect(trace_on, false) ? trace_step(point) : 0)
#define FAULT_ERR(point, e)	 FAULT(point)
#define FAULT_KILL(point, pidfd) ((void)0)
#define FAULT_ENV		 NULL
#endif
