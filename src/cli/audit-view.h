/* SPDX-License-Identifier: Apache-2.0 */
/* Shows records of the audit log to people and programs. */
#pragma once

#include "audit/audit-read.h"
#include "cli/cli.h"

/* Opens this host's log and lists its files. */
int audit_view_open(struct audit_log *l, struct audit_set *set, struct err *e);

struct audit_view {
	const struct invocation *inv; /* for colour */
	bool json, all;		      /* all: shorten and omit nothing */
};

/* Returns the sandbox of a record: that of its chain, or the one that a record of the host chain
 * names. A suffix after the id marks the chain of a resumed sandbox. */
const char *audit_view_sandbox(const struct audit_file *f, const json_t *payload);

/* Prints a record on one line. 0 or -ENOMEM. */
int audit_view_print(const struct audit_view *v, const struct audit_file *f,
		     const struct audit_record *r, json_t *payload);
