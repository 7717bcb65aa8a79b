/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the names of entries to their canonical form. */
#include <string.h>

#include "tar/tar.h"

int tar_clean_name(const char *name, size_t n, char out[static TAR_NAME_MAX + 1], struct err *e)
{
	size_t used = 0, depth = 0;

	if (memchr(name, '\0', n))
		return err_set(e, -EINVAL, "a name with a NUL byte");
	for (const char *p = name, *end = name + n; p < end;) {
		const char *slash = memchr(p, '/', (size_t)(end - p));
		size_t len = (size_t)((slash ? slash : end) - p);

		if (len == 2 && memcmp(p, "..", 2) == 0)
			return err_set(e, -EINVAL, "'%.*s': names must not have '..'",
				       (int)MIN(n, (size_t)100), name);
		if (len > TAR_PART_MAX || used + len + 1 > TAR_NAME_MAX)
			return err_set(e, -EINVAL, "'%.60s...': the name is too long", name);
		if (len > 0 && !(len == 1 && *p == '.')) {
			if (++depth > TAR_DEPTH_MAX)
				return err_set(e, -EINVAL,
					       "'%.60s...': more than %d directories deep", name,
					       TAR_DEPTH_MAX);
			if (used > 0)
				out[used++] = '/';
			memcpy(out + used, p, len);
			used += len;
		}
		p += len + 1;
	}
	if (used == 0)
		out[used++] = '.';
	out[used] = '\0';
	return 0;
}
