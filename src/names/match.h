/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matcher: decides by a set of allow and deny rules whether the keeper may dial a target.
 *
 * Deny rules win over allow rules, however specific either is; a target without a rule is denied.
 * Name rules never match an address, address rules never match a name. A lookup takes one pass over
 * the name and one hash table probe per label, whatever the number of rules.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "names/rule.h"

enum {
	RULESET_MAX = 100000
};

/* One rule of a set. */
struct ruleset_entry {
	struct rule rule; /* .port 0: every port (deny rules only) */
	bool deny;
	uint32_t id; /* chosen by the caller, such as an index of the rule's origin */
};

struct ruleset;

/*
 * Makes a set from a copy of `n` entries. Entries with the same host, port and verb are merged: the
 * result has the strictest protocol, and of equal ones the lowest id. If any of them allows private
 * addresses, so does the result, with the id of the first that does. Allow rules must have a port.
 * Returns 0, -ENOMEM, or -E2BIG past RULESET_MAX.
 */
int ruleset_new(const struct ruleset_entry *entries, size_t n, struct ruleset **ret);
struct ruleset *ruleset_free(struct ruleset *s);

struct verdict {
	bool allowed;
	const struct ruleset_entry *deny;  /* the least specific matching deny rule, or NULL */
	const struct ruleset_entry *allow; /* the most specific matching allow rule, or NULL */
};

struct verdict ruleset_check(const struct ruleset *s, const struct target *t);

/* Is the name allowed on some port? Only such names resolve in the sandbox. */
bool ruleset_knows(const struct ruleset *s, const struct name *name);

/* Returns the entries in canonical order: allow rules first, by host, then port. */
const struct ruleset_entry *ruleset_entries(const struct ruleset *s, size_t *ret_n);

static inline void cleanup_ruleset(struct ruleset **s)
{
	(void)ruleset_free(*s);
}

#define _cleanup_ruleset_ _cleanup_(cleanup_ruleset)
