/* SPDX-License-Identifier: Apache-2.0 */
#include "state/spare-pool.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define POOL "../pool" /* from sandboxes/ */

bool spare_key_valid(const char *key)
{
	size_t n = strlen(key);

	return n == SPARE_KEY && strspn(key, "0123456789abcdef") == n;
}

int spare_pool_open(const struct state_root *r, const char *key, bool make, int *ret_fd)
{
	char path[STRLEN(POOL) + 1 + SPARE_KEY + 1] = POOL;
	int fd;

	assert(!key || spare_key_valid(key));
	if (make && mkdirat(r->dir, path, 0700) < 0 && errno != EEXIST)
		return -errno;
	if (key)
		(void)snprintf(path, sizeof(path), POOL "/%s", key);
	if (make && key && mkdirat(r->dir, path, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = RETRY_EINTR(openat(r->dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}
