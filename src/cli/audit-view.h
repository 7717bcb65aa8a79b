/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the audit log, for people and for programs. */
#pragma once

#include "audit/audit-read.h"
#include "cli/cli.h"

/* The log of this host, and what there is of it now. */
int audit_view_open(struct audit_log *l, struct audit_set *set, struct err *e);

struct audit_view {
	const struct invocation *inv; /* for colour */
	bool json, all;		      /* all: nothing is shortened or left out */
};

/* Which sandbox a record is of: its chain's, or the one that a record of the host chain names. What
 * is behind its id, if anything, is of the chain of one that was resumed. */
const char *audit_view_sandbox(const struct audit_file *f, const json_t *payload);

/* Prints a record on one line. -ENOMEM. */
int audit_view_print(const struct audit_view *v, const struct audit_file *f,
		     const struct audit_record *r, json_t *payload);
