/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matcher: a set of allow and deny rules, and one question: may this target be dialled?
 *
 * Deny wins over allow, however specific either is; what no rule names is denied. Name rules never
 * match an address, address rules never match a name. A lookup costs one pass over the name and one
 * probe of a hash table per label, whatever the number of rules.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rule.h"

enum {
	RULESET_MAX = 100000
};

/* One rule of a set, as the verdict points at it. */
struct ruleset_entry {
	struct rule rule; /* .port 0: every port (deny rules only) */
	bool deny;
	uint32_t id; /* the caller's, e.g. where the rule was written */
};

struct ruleset;

/*
 * Makes a set of `n` entries, which are copied. Of entries for the same host and port the strictest
 * protocol is kept, of equal ones the lowest id; if one of them allows private addresses, so does
 * the kept one, with the id of the first that does. An allow rule without a port is a bug of the
 * caller. 0, -ENOMEM, or -E2BIG past RULESET_MAX.
 */
int ruleset_new(const struct ruleset_entry *entries, size_t n, struct ruleset **ret);
struct ruleset *ruleset_free(struct ruleset *s);

struct verdict {
	bool allowed;
	const struct ruleset_entry *deny; /* the deny rule that matched, if one did */
	const struct ruleset_entry
		*allow; /* the most specific allow rule that matched, if one did */
};

struct verdict ruleset_check(const struct ruleset *s, const struct target *t);

/* May anything be dialled by that name, on some port? What decides whether a name resolves. */
bool ruleset_knows(const struct ruleset *s, const struct name *name);

/* The entries in canonical order: allow rules first, by host, then port. */
const struct ruleset_entry *ruleset_entries(const struct ruleset *s, size_t *ret_n);

static inline void cleanup_ruleset(struct ruleset **s)
{
	(void)ruleset_free(*s);
}

#define _cleanup_ruleset_ _cleanup_(cleanup_ruleset)
