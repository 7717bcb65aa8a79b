/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Less than a policy allows. A narrowing is a list of texts:
 *
 *	-*	nothing goes out but what stands behind a plus
 *	+RULE	a name, a subtree or an address without a port, as far as the policy allows it
 *	-RULE	is denied on every port
 *
 * Whatever is in such a list, what comes out of it is allowed by the policy too.
 */
#pragma once

#include "match.h"

enum {
	NARROW_MAX = 2000, /* texts of a list */
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

/* The texts that it is made of, in an order of its own; NULL past the last. */
const char *narrow_text(const struct narrow *w, size_t i, char out[static NARROW_TEXT_MAX]);

/*
 * What is left of `n` entries. The caller frees *ret. A rule that both name is kept with the port
 * and the protocol of the policy, once for each pair. -ENOMEM, -E2BIG past RULESET_MAX.
 */
int narrow_apply(const struct narrow *w, const struct ruleset_entry *entries, size_t n,
		 struct ruleset_entry **ret, size_t *ret_n);
