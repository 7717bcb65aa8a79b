/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a sandbox may not connect. The keeper writes these texts into the audit log; `hutch egress
 * explain`, `log` and `suggest` print and recognize them.
 */
#pragma once

#include "names/narrow.h"

enum why {
	WHY_ALLOWED,
	WHY_NO_NETWORK, /* the policy allows nothing, so the sandbox has no network at all */
	WHY_POLICY,	/* no rule allows it, or a deny rule of the policy matches */
	WHY_ADDED,	/* the policy allows it; a rule added while the sandbox runs denies it */
	WHY_NARROWED,	/* policy and added rules allow it; an API client narrowed them */
	WHY_ADDRESS,	/* the rules allow it; the address may never be dialled */
	WHY_MAX,
};

/* Text of a reason; "" for WHY_ALLOWED. */
const char *why_text(enum why w);

/* Reason of a text; WHY_ALLOWED for any other text, such as the reason of an ended stream. */
enum why why_parse(const char *text);

/* The rules of a sandbox, by origin. */
struct why_rules {
	const struct ruleset_entry *v; /* policy rules, then added rules */
	size_t n_policy, n_added;
	const struct narrow *narrow;
};

/*
 * Returns which of policy, added rules and narrowing denies `t`: the last one without which `t`
 * would be allowed. The three together must deny it. Port 0 means a name on any port. Without
 * memory returns WHY_POLICY, the strictest answer.
 */
enum why why_denied(const struct why_rules *r, const struct target *t);
