/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox may connect to now, and why. The policy's rules are in its spec; added rules and
 * narrowings are in its chain of the audit log, where the keeper wrote them before they took
 * effect. The same chain says which allowed names led to addresses that may not be dialled.
 */
#pragma once

#include "base/str.h"
#include "cli/cli-sandbox.h"
#include "cli/egress-log.h"
#include "names/why.h"
#include "policy/policy.h"

struct egress_rules {
	struct sandbox b;
	struct spec spec;
	struct ruleset_entry *v; /* of the policy, then the added ones; .id: the index here */
	uint64_t *times;	 /* when a rule was added, by index; 0: it is the policy's */
	size_t n, n_policy;
	struct narrow narrow;
	uint64_t narrowed;   /* when; 0: before the sandbox started, or never */
	struct ruleset *set; /* of all three; an id from `n` on is a rule of the narrowing */
	/* private */
	struct narrow next; /* a narrowing that is not read to its end */
	struct egress_seen_address {
		struct target t;
		uint64_t time;
		char detail[64]; /* "": it led to a good one since */
	} * seen;
	size_t n_seen;
};

#define EGRESS_RULES_INIT         \
	{                         \
		.b = SANDBOX_INIT \
	}
#define _cleanup_egress_rules_ _cleanup_(egress_rules_done)

/* -ENOENT if there is no such sandbox (any more). */
int egress_rules_open(const char *id, struct egress_rules *ret, struct err *e);
void egress_rules_done(struct egress_rules *r);

struct egress_why {
	enum why why;
	struct explanation x;
	const char *detail; /* of WHY_ADDRESS: the kind of address; else "" */
	uint64_t seen;	    /* of WHY_ADDRESS of a name: when it led there; else 0 */
};

/* Would a rule with /private change that? */
static inline bool egress_wants_private(const struct egress_why *w, const struct target *t)
{
	return w->why == WHY_ADDRESS && !t->is_addr &&
	       str_eq(w->detail, addr_class_name(ADDR_PRIVATE));
}

/* Whether the sandbox may connect to `t`. *ret points into `r` and the store. */
int egress_explain(const struct egress_rules *r, struct policy_store *store, const struct target *t,
		   struct egress_why *ret, struct err *e);

bool egress_same_host(const struct target *a, const struct target *b);

/* Reads the host of a record. */
int egress_host(const char *text, struct target *ret);
