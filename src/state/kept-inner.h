/* SPDX-License-Identifier: Apache-2.0 */
/* Inside state/: what kept.c and kept-trim.c share. */
#pragma once

#include "kept.h"

#define KEPT_GONE    ".gone"
#define KEPT_SINCE   "since"
#define KEPT_TRIMMED "trimmed"

enum {
	KEPT_DUE = 256, /* sandboxes, and MiB of them, after which room is made at once */
};

/* What is left of removals that were killed. */
int kept_remove_gone(const struct state_root *r);

/* Removes the records of one; *k says what it is then. 0 or -errno. */
int kept_cut(const struct state_root *r, const char *id, struct kept *k);
