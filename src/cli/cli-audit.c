/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli-audit.h"

#include <unistd.h>

void cli_audit_begin(struct audit_payload *p, const char *op, const char *key, const char *value)
{
	audit_put_text(p, "op", op);
	if (key)
		audit_put_text(p, key, value);
	audit_put_number(p, "uid", getuid());
}

int cli_audit(enum audit_kind kind, const struct audit_payload *p, struct err *e)
{
	_cleanup_audit_log_ struct audit_log log = AUDIT_LOG_INIT;
	int r = audit_open(&log, e);

	return r < 0 ? r : audit_host(&log, kind, p, e);
}

void cli_audit_try(const struct invocation *inv, enum audit_kind kind,
		   const struct audit_payload *p)
{
	struct err e = ERR_INIT;

	if (cli_audit(kind, p, &e) == 0)
		return;
	(void)fprintf(stderr, "%s: warning: not recorded: ", inv->path);
	cli_puts(stderr, e.msg);
	(void)fputc('\n', stderr);
}
