/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as text, without system calls. */
#include <limits.h>
#include <string.h>

#include "base/path.h"

int path_canonical(const char *path, char *out, size_t n)
{
	size_t used = 0;

	if (path[0] != '/')
		return -EINVAL;
	while (*(path += strspn(path, "/"))) {
		size_t len = strcspn(path, "/");

		if (len <= 2 && strncmp(path, "..", len) == 0)
			return -EINVAL;
		if (len > NAME_MAX || used + len + 2 > n)
			return -ENAMETOOLONG;
		out[used++] = '/';
		memcpy(out + used, path, len);
		used += len;
		path += len;
	}
	if (n < 2)
		return -ENAMETOOLONG;
	if (used == 0)
		out[used++] = '/';
	out[used] = '\0';
	return 0;
}

int path_parent(const char *path, char *out, size_t n)
{
	const char *slash = strrchr(path, '/');
	const char *from = slash ? path : ".";
	size_t len = slash && slash > path ? (size_t)(slash - path) : 1;

	if (len >= n)
		return -ENAMETOOLONG;
	memcpy(out, from, len);
	out[len] = '\0';
	return 0;
}
