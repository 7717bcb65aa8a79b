/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault points: places with a name at which a test makes the process die, or the step fail. They
 * are compiled in by -Dfault=true only; without it each is the number 0. Each is a trace point too
 * (trace.h): it says that its step is done, and how long that took.
 *
 *   HUTCH_FAULT=POINT[:N]=kill|ERRNO[,...]   at the N-th passing of the point (the first, without
 *                                            N) the process kills itself as kill -9 would, or the
 *                                            point gives -ERRNO (ENOSPC, EIO, ...), once
 *   HUTCH_FAULT_LIST=1                       says "fault point NAME in PID" on stderr when it is
 *                                            passed; that one struck is always said
 *
 * A point stands behind the step that it is named after: what that step made is there.
 */
#pragma once

#include "base/err.h"
#include "base/trace.h"

/* 0, or the -errno that was asked for; or does not return. */
int fault_pass(const char *point);

/* The same with a message. */
int fault_err(const char *point, struct err *e);

/* The one to die is the process behind `pidfd`; an error cannot be asked for. */
void fault_kill(const char *point, int pidfd);

#ifdef HUTCH_FAULT_POINTS
#define FAULT(point)		 fault_pass(point)
#define FAULT_ERR(point, e)	 fault_err(point, e)
#define FAULT_KILL(point, pidfd) fault_kill(point, pidfd)
#else
#define FAULT(point)		 (__builtin_expect(trace_on, false) ? trace_step(point) : 0)
#define FAULT_ERR(point, e)	 FAULT(point)
#define FAULT_KILL(point, pidfd) ((void)0)
#endif
