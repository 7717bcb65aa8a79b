/* SPDX-License-Identifier: Apache-2.0 */
#include "confine/rlimits.h"

#include "base/util.h"

static int lower(const struct limit *l)
{
	const __rlimit_resource_t resource = (__rlimit_resource_t)l->resource;
	struct rlimit now, to;

	if (SANITIZED && l->resource == RLIMIT_AS)
		return 0;
	if (getrlimit(resource, &now) < 0)
		return -errno;
	to.rlim_cur = to.rlim_max = MIN((rlim_t)l->value, now.rlim_max);
	return setrlimit(resource, &to) < 0 ? -errno : 0;
}

int rlimits_lower(const struct limit *limits, size_t n)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = lower(&limits[i]);
	return r;
}
