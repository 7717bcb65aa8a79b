/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The current egress rules of a sandbox, and explanations. The policy's rules are in its spec;
 * added rules and narrowings are in its chain of the audit log, where the keeper recorded them
 * before they took effect. The chain also shows which allowed names resolved to forbidden
 * addresses.
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
	struct ruleset_entry *v; /* policy rules, then added ones; .id: the index here */
	uint64_t *times;	 /* when a rule was added, by index; 0: policy rule */
	size_t n, n_policy;
	struct narrow narrow;
	uint64_t narrowed;   /* when; 0: before the sandbox started, or never */
	struct ruleset *set; /* all three together; ids from `n` on belong to the narrowing */
	/* private */
	struct narrow next; /* a narrowing not yet read completely */
	struct egress_seen_address {
		struct target t;
		uint64_t time;
		char detail[64]; /* "": resolved to a good address since */
	} * seen;
	size_t n_seen;
};

#define EGRESS_RULES_INIT         \
	{                         \
		.b = SANDBOX_INIT \
	}
#define _cleanup_egress_rules_ _cleanup_(egress_rules_done)

/* -ENOENT if the sandbox does not exist. */
int egress_rules_open(const char *id, struct egress_rules *ret, struct err *e);
void egress_rules_done(struct egress_rules *r);

struct egress_why {
	enum why why;
	struct explanation x;
	const char *detail; /* WHY_ADDRESS: the kind of address; else "" */
	uint64_t seen;	    /* WHY_ADDRESS for a name: when it resolved there; else 0 */
};

/* Returns whether a rule with /private would change that. */
static inline bool egress_wants_private(const struct egress_why *w, const struct target *t)
{
	return w->why == WHY_ADDRESS && !t->is_addr &&
	       str_eq(w->detail, addr_class_name(ADDR_PRIVATE));
}

/* Explains whether the sandbox may connect to `t`. *ret points into `r` and the store. */
int egress_explain(const struct egress_rules *r, struct policy_store *store, const struct target *t,
		   struct egress_why *ret, struct err *e);

bool egress_same_host(const struct target *a, const struct target *b);

/* Parses the host of a record. */
int egress_host(const char *text, struct target *ret);
