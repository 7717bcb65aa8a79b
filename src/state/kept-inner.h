/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by kept.c and kept-trim.c. */
#pragma once

#include "state/kept.h"

#define KEPT_GONE    ".gone"
#define KEPT_SINCE   "since"
#define KEPT_TRIMMED "trimmed"

enum {
	KEPT_DUE = 256, /* number of new sandboxes plus their MiB that makes a trim due at once */
};

/* Completes interrupted removals. */
int kept_remove_gone(const struct state_root *r);

/* Removes the records of a kept sandbox, and updates *k. Returns 0 or -errno. */
int kept_cut(const struct state_root *r, const char *id, struct kept *k);
