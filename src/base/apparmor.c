/* SPDX-License-Identifier: Apache-2.0 */
#include "base/apparmor.h"

#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/util.h"

/* Only root can list profiles, but any process can ask the kernel whether it may change to one:
 * "permprofile" asks without changing. */
int apparmor_try(const char *profile)
{
	_cleanup_close_ int fd = -EBADF;
	char text[128];
	int n, r;

	n = snprintf(text, sizeof(text), "permprofile %s", profile);
	if (n >= (int)sizeof(text))
		return -ENAMETOOLONG;
	fd = RETRY_EINTR(open("/proc/self/attr/apparmor/current", O_WRONLY | O_CLOEXEC));
	if (fd < 0)
		return errno == ENOENT ? -EOPNOTSUPP : -errno;
	r = fd_write_all(fd, text, (size_t)n);
	/* AppArmor that is built in but disabled rejects the write. */
	return r == -EINVAL ? -EOPNOTSUPP : r;
}
