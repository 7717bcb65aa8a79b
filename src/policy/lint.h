/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for valid but unwise rules, and for values that contradict each other. */
#pragma once

#include "policy/policy.h"

/* Checks a whole policy, whose ruleset must exist: adds errors and warnings to `d`. */
void policy_lint(const struct policy *p, struct diags *d);

/* Checks the rules of one file, entries [from, to) of the list. */
void policy_lint_rules(const struct policy *p, size_t from, size_t to, struct diags *d);

/* Parts of policy_lint(): secrets, and rules on requests. */
void policy_lint_secrets(const struct policy *p, struct diags *d);
void policy_lint_http(const struct policy *p, struct diags *d);
