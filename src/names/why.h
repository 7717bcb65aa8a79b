/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a sandbox may not connect. The one table of words for it: the keeper writes them into the
 * audit log, and `hutch egress explain`, `log` and `suggest` print and recognise them.
 */
#pragma once

#include "narrow.h"

enum why {
	WHY_ALLOWED,
	WHY_NO_NETWORK, /* the policy allows nothing, so the sandbox has no network at all */
	WHY_POLICY,	/* no rule allows it, or a deny rule of the policy matches */
	WHY_ADDED,	/* the policy allows it; a rule added while the sandbox runs denies it */
	WHY_NARROWED,	/* policy and added rules allow it; an API client narrowed them */
	WHY_ADDRESS,	/* the rules allow it; the address may never be dialled */
	WHY_MAX,
};

/* The words; "" for WHY_ALLOWED. */
const char *why_text(enum why w);

/* The reverse. WHY_ALLOWED for any other text, such as the reason of an ended stream. */
enum why why_parse(const char *text);

/* The rules of a sandbox, by origin. */
struct why_rules {
	const struct ruleset_entry *v; /* of the policy, then the added ones */
	size_t n_policy, n_added;
	const struct narrow *narrow;
};

/*
 * Which of the three took `t` away: the last one without which it would be allowed. The caller
 * knows that the rules do not allow it. With port 0, about a name on any port. WHY_POLICY if memory
 * is short: the strictest answer.
 */
enum why why_denied(const struct why_rules *r, const struct target *t);
