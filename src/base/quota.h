/* SPDX-License-Identifier: Apache-2.0 */
/* What an owner of sandboxes may have, all of them together. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum quota_kind {
	QUOTA_SANDBOXES,
	QUOTA_CPUS,   /* thousandths */
	QUOTA_MEMORY, /* bytes */
	QUOTA_DISK,
	QUOTA_BUILDS, /* of templates, at once */
	QUOTA_KINDS,
};

/* As options and as keys of files; ends with NULL. */
extern const char *const quota_names[QUOTA_KINDS + 1];

struct quota {
	uint64_t most[QUOTA_KINDS]; /* 0: no limit */
};

/* Whether it is of things, and not of an amount. */
bool quota_is_count(enum quota_kind kind);

/* Whether there is any limit. */
bool quota_limits(const struct quota *q);
