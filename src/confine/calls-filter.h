/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of calls.h as a program of the kernel's, for a guest that nobody else puts a
 * filter on: a container comes with one.
 */
#pragma once

#include "base/err.h"

/* Makes the program. To be called before calls_filter_apply(); without it that does nothing. */
int calls_filter_make(struct err *e);

/* In a child, which has no new privileges: from here on, for good. 0 or -errno. */
int calls_filter_apply(void);
