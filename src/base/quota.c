/* SPDX-License-Identifier: Apache-2.0 */
#include "base/quota.h"

#include <stddef.h>

const char *const quota_names[QUOTA_KINDS + 1] = {
	[QUOTA_SANDBOXES] = "sandboxes", [QUOTA_CPUS] = "cpus",	    [QUOTA_MEMORY] = "memory",
	[QUOTA_DISK] = "disk",		 [QUOTA_BUILDS] = "builds",
};

bool quota_is_count(enum quota_kind kind)
{
	return kind == QUOTA_SANDBOXES || kind == QUOTA_BUILDS;
}

bool quota_limits(const struct quota *q)
{
	for (size_t i = 0; i < QUOTA_KINDS; i++)
		if (q->most[i] > 0)
			return true;
	return false;
}
