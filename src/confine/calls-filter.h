/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of calls.h as a seccomp program, for a guest in a VM; the engine installs the
 * filter of a container.
 */
#pragma once

#include "base/err.h"

/* Builds the program. Call before calls_filter_apply(), which otherwise does nothing. */
int calls_filter_make(struct err *e);

/* Applies the filter permanently, in a child with no_new_privs set. 0 or -errno. */
int calls_filter_apply(void);
