/* SPDX-License-Identifier: Apache-2.0 */
/* Records of CLI commands in the host chain of the audit log: the intent before, and the result. */
#pragma once

#include "audit/audit-log.h"
#include "cli/cli.h"

/* Begins a payload: the operation, its object, and the user who asks for it. */
void cli_audit_begin(struct audit_payload *p, const char *op, const char *key, const char *value);

/* Records an intent: on an error the caller must do nothing. */
int cli_audit(enum audit_kind kind, const struct audit_payload *p, struct err *e);

/* Records an event or an action that cannot wait; prints a warning if recording fails. */
void cli_audit_try(const struct invocation *inv, enum audit_kind kind,
		   const struct audit_payload *p);
