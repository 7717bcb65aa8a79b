/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a process is confined: as a table of stages that run in order. A process that fails at one
 * must end without having run or read what it is confined for.
 */
#pragma once

#include "base/err.h"

struct confine_stage {
	const char *name; /* for messages */
	int (*run)(void *arg);
	int (*check)(void *arg); /* must hold when the stage has run; may be NULL */
};

/*
 * Runs each stage and its check, both of which return 0 or -errno, up to the first that fails or a
 * row without a name. 0, or -errno with the name of the stage in *ret_at, which may be NULL.
 */
int confine_run(const struct confine_stage *stages, void *arg, const char **ret_at);

/* The same with a message: "WHAT, STAGE: reason". */
int confine_run_err(const struct confine_stage *stages, void *arg, const char *what, struct err *e);

/* Runs and checks of stages that several processes have. Their argument is not used. */

/* No capability is permitted, inheritable or ambient, and executing a program gives none. The
 * bounding set stays. */
int stage_drop_privileges(void *arg);
int stage_has_no_privileges(void *arg);

/* See self_die_with_parent() and landlock_check(). */
int stage_die_with_parent(void *arg);
int stage_has_no_files(void *arg);
