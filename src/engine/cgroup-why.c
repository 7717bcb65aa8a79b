/* SPDX-License-Identifier: Apache-2.0 */
/* Records why a limit is missing. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/str.h"
#include "engine/cgroup-inner.h"

void cgroup_because(struct cgroup *g, enum cgroup_part p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(g->why[p], sizeof(g->why[p]), fmt, ap);
	va_end(ap);
	str_make_utf8(g->why[p]);
}

bool cgroup_full(int r)
{
	return r == -ENOMEM || r == -ENOSPC || r == -EAGAIN || r == -EMFILE || r == -ENFILE;
}
