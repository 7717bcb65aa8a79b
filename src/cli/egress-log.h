/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the audit log says of what sandboxes connected to, and of rules that were added. The files
 * are not trusted: what is not as a keeper writes it is passed over, and texts are escaped when
 * they are shown.
 */
#pragma once

#include "audit/audit-log.h"
#include "base/json-util.h"
#include "names/rule.h"
#include "state/spec.h"

struct egress_event {
	char id[SPEC_ID + 1]; /* of the sandbox */
	unsigned int kind;    /* AUDIT_EGRESS, AUDIT_EGRESS_SUM or AUDIT_POLICY */
	uint64_t time, seq;
	json_t *o; /* an object; the reader's */
};

struct egress_reader {
	const char *sandbox; /* the beginning of an id; "" for all */
	int (*event)(const struct egress_event *ev, void *arg); /* 0, or -errno to stop */
	void *arg;
	size_t tail; /* files of each chain to read, the last ones; 0: all */
	/* private: how far each chain was read */
	struct egress_seen {
		char id[AUDIT_ID_MAX + 1];
		uint64_t seq, size;
	} * seen;
	size_t n;
};

#define _cleanup_egress_reader_ _cleanup_(egress_reader_done)

/*
 * Reads what has come since the last time, a chain after the other. -ENOENT if the log knows no
 * such sandbox.
 */
int egress_read(struct egress_reader *r, struct audit_log *l, struct err *e);
void egress_reader_done(struct egress_reader *r);

/* A text member; "" if there is none. */
const char *egress_text(const json_t *o, const char *key);

/* A number; 0 if there is none. */
uint64_t egress_number(const json_t *o, const char *key);

/*
 * Whether the last sandbox whose id begins with `sandbox` was made without any network, as the host
 * chain says: 1 and its id, or 0, also if nothing is known of it.
 */
int egress_no_network(struct audit_log *l, const char *sandbox,
		      char ret_id[static AUDIT_ID_MAX + 1], struct err *e);

/*
 * How many connections of a sandbox were denied since `since` (wall clock, ns), as its keeper has
 * recorded them. A name that did not resolve counts once, however often it was asked for. Reads at
 * most EGRESS_TAIL_FILES files of its chain. 0 if the log is off.
 */
enum {
	EGRESS_TAIL_FILES = 2,
};
int egress_count_denied(const char *id, uint64_t since, uint64_t *ret, struct err *e);
