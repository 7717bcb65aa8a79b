/* SPDX-License-Identifier: Apache-2.0 */
#include "receipt/level.h"

#include <errno.h>

#include "base/str.h"

const char *const level_names[LEVEL_MAX + 1] = {
	[LEVEL_UNSET] = "",
	[LEVEL_CONTAINER] = "container",
	[LEVEL_GVISOR] = "gvisor",
	[LEVEL_MICROVM] = "microvm",
};

int level_parse(const char *name, enum level *ret)
{
	for (enum level l = LEVEL_FIRST; l < LEVEL_MAX; l++)
		if (str_eq(level_names[l], name)) {
			*ret = l;
			return 0;
		}
	return -EINVAL;
}
