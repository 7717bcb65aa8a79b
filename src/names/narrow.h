/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Narrowing: removes destinations from those that a policy allows. A narrowing is a list of texts:
 *
 *	-*	deny everything except the rules with a plus
 *	+RULE	keep a name, subtree or address (without a port), as far as the policy allows it
 *	-RULE	deny it on every port
 *
 * The result never allows more than the policy, whatever the list contains.
 */
#pragma once

#include "names/match.h"

enum {
	NARROW_MAX = 2000, /* texts in a list */
	NARROW_TEXT_MAX = RULE_TEXT_MAX + 1,
};

struct narrow {
	bool only; /* "-*" */
	struct rule *allow, *deny;
	size_t n_allow, n_deny;
};

#define _cleanup_narrow_ _cleanup_(narrow_done)

void narrow_done(struct narrow *w);

/* Adds one text. -EINVAL with a message, -E2BIG, -ENOMEM. */
int narrow_add(struct narrow *w, const char *text, size_t n, struct err *e);

/* Formats text `i`; NULL past the last. The order is "-*", allow rules, deny rules. */
const char *narrow_text(const struct narrow *w, size_t i, char out[static NARROW_TEXT_MAX]);

/*
 * Narrows `n` entries; the caller frees *ret. With "-*", each pair of an allow rule and a +RULE
 * that overlap gives their intersection, with the port and protocol of the policy's rule. -ENOMEM,
 * -E2BIG past RULESET_MAX.
 */
int narrow_apply(const struct narrow *w, const struct ruleset_entry *entries, size_t n,
		 struct ruleset_entry **ret, size_t *ret_n);
