/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/file.h>

#include "audit/audit-inner.h"

int audit_lock(const struct audit_log *l, int how, struct err *e)
{
	if (RETRY_EINTR(flock(l->lock, how)) < 0)
		return err_errno(e, "cannot lock the audit log '%s'", l->path);
	return 0;
}

void audit_unlock(const struct audit_log *l)
{
	(void)flock(l->lock, LOCK_UN);
}
