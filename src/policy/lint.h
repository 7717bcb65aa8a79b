/* SPDX-License-Identifier: Apache-2.0 */
/* What is legal but unwise, or legal one by one but not together. */
#pragma once

#include "policy.h"

/* Checks a whole policy (its ruleset made): adds errors and warnings to `d`. */
void policy_lint(const struct policy *p, struct diags *d);

/* Checks the rules that one file wrote, entries [from, to) of the list. */
void policy_lint_rules(const struct policy *p, size_t from, size_t to, struct diags *d);
