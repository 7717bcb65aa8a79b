/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for valid but unwise rules, and for values that contradict each other. */
#pragma once

#include "policy/policy.h"

/* Checks a whole policy, whose ruleset must exist: adds errors and warnings to `d`. */
void policy_lint(const struct policy *p, struct diags *d);

/* Checks the rules of one file, entries [from, to) of the list. */
void policy_lint_rules(const struct policy *p, size_t from, size_t to, struct diags *d);

/* Parts of policy_lint(): secrets, rules on requests, rules on models. */
void policy_lint_secrets(const struct policy *p, struct diags *d);
void policy_lint_http(const struct policy *p, struct diags *d);
void policy_lint_llm(const struct policy *p, struct diags *d);

/* Finds an allow rule that passes streams to the host, or to a name of it, without inspection. */
const struct rule *policy_way_around(const struct policy *p, const struct rule *host);
