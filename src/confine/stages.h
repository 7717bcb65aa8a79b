/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Confines a process by a table of stages that run in order. A process whose stage fails must exit
 * before it runs or reads anything untrusted.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct confine_stage {
	const char *name; /* for messages */
	int (*run)(void *arg);
	int (*check)(void *arg); /* must succeed after `run`; may be NULL */
};

/*
 * Runs each stage and its check, both of which return 0 or -errno, up to the first failure or a row
 * without a name. 0, or -errno with the name of the stage in *ret_at, which may be NULL.
 */
int confine_run(const struct confine_stage *stages, void *arg, const char **ret_at);

/* Same with a message: "WHAT, STAGE: reason". */
int confine_run_err(const struct confine_stage *stages, void *arg, const char *what, struct err *e);

/*
 * Drops all capabilities but `kept`, sets no_new_privs, and forbids tracing this process. Empties
 * the bounding set too if this process may change it.
 */
int confine_drop_privileges(uint64_t kept);

/* Stages and checks shared by several processes. They ignore their argument. */

/* Drops all permitted, inheritable and ambient capabilities and sets no_new_privs. Keeps the
 * bounding set. */
int stage_drop_privileges(void *arg);
int stage_has_no_privileges(void *arg);

/* See self_die_with_parent() and landlock_check(). */
int stage_die_with_parent(void *arg);
int stage_has_no_files(void *arg);
