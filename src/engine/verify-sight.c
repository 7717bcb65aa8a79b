/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of all verify-*.c files. */
#include <fcntl.h>
#include <stdarg.h>

#include "engine/verify.h"

int sight_set(struct sight *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(s->seen, sizeof(s->seen), fmt, ap);
	va_end(ap);
	return 0;
}

int verify_open_root(const struct verify *v, struct err *e)
{
	int fd = RETRY_EINTR(openat(v->proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC));

	return fd < 0 ? err_errno(e, "cannot open the root of PID 1") : fd;
}
