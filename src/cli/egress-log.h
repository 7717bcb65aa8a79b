/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads connections of sandboxes and added rules from the audit log. The files are not trusted:
 * records that a keeper would not write are skipped, and texts are escaped when shown.
 */
#pragma once

#include "audit/audit-log.h"
#include "base/json-util.h"
#include "names/rule.h"
#include "state/spec.h"

struct egress_event {
	char id[SPEC_ID + 1]; /* the sandbox */
	unsigned int kind;    /* AUDIT_EGRESS, AUDIT_EGRESS_SUM or AUDIT_POLICY */
	uint64_t time, seq;
	json_t *o; /* an object; the reader owns it */
};

struct egress_reader {
	const char *sandbox;					/* prefix of an id; "" for all */
	int (*event)(const struct egress_event *ev, void *arg); /* 0, or -errno to stop */
	void *arg;
	size_t tail; /* number of last files of each chain to read; 0: all */
	/* private: position in each chain */
	struct egress_seen {
		char id[AUDIT_ID_MAX + 1];
		uint64_t seq, size;
	} * seen;
	size_t n;
};

#define _cleanup_egress_reader_ _cleanup_(egress_reader_done)

/*
 * Reads new records since the last call, one chain after another. -ENOENT if the log has no such
 * sandbox.
 */
int egress_read(struct egress_reader *r, struct audit_log *l, struct err *e);
void egress_reader_done(struct egress_reader *r);

/* Returns a text member; "" if missing. */
const char *egress_text(const json_t *o, const char *key);

/* Returns a number; 0 if missing. */
/* Does this key of a sum count HTTP requests, not streams? */
bool egress_is_request(const json_t *key);
uint64_t egress_number(const json_t *o, const char *key);

/*
 * Returns 1 and the id if the last sandbox whose id begins with `sandbox` was created without
 * network, according to the host chain; else 0, also if the sandbox is unknown.
 */
int egress_no_network(struct audit_log *l, const char *sandbox,
		      char ret_id[static AUDIT_ID_MAX + 1], struct err *e);

/*
 * Counts the denied connections of a sandbox since `since` (wall clock, ns), as its keeper recorded
 * them. A name that did not resolve counts once, however often it was queried. Reads at most
 * EGRESS_TAIL_FILES files of its chain. 0 if the log is off.
 */
enum {
	EGRESS_TAIL_FILES = 2,
};
int egress_count_denied(const char *id, uint64_t since, uint64_t *ret, struct err *e);
