/* SPDX-License-Identifier: Apache-2.0 */
/* What commands put into the host chain of the audit log: what is to be done, and what came of it.
 */
#pragma once

#include "audit/audit-log.h"
#include "cli/cli.h"

/* The beginning of a payload: what is done, to what, and who asks for it. */
void cli_audit_begin(struct audit_payload *p, const char *op, const char *key, const char *value);

/* An intent: on an error the caller does nothing. */
int cli_audit(enum audit_kind kind, const struct audit_payload *p, struct err *e);

/* What has happened, or must: if it cannot be recorded, a warning says so. */
void cli_audit_try(const struct invocation *inv, enum audit_kind kind,
		   const struct audit_payload *p);
