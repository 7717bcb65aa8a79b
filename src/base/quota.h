/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on all sandboxes of an owner together. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum quota_kind {
	QUOTA_SANDBOXES,
	QUOTA_CPUS,   /* thousandths */
	QUOTA_MEMORY, /* bytes */
	QUOTA_DISK,
	QUOTA_BUILDS, /* concurrent template builds */
	QUOTA_KINDS,
};

/* Names for options and for keys of files; ends with NULL. */
extern const char *const quota_names[QUOTA_KINDS + 1];

struct quota {
	uint64_t most[QUOTA_KINDS]; /* 0: no limit */
};

/* Returns whether the quota counts objects rather than an amount. */
bool quota_is_count(enum quota_kind kind);

/* Returns whether any limit is set. */
bool quota_limits(const struct quota *q);
