/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of a plan that hutch-tap needs. In the sandbox, the variable of a secret holds a
 * placeholder, which is random per sandbox and worthless elsewhere. A plan is first made without
 * placeholders ("blank"), so that plans of one kind are equal, and filled in then.
 */
#pragma once

#include "base/arena.h"
#include "policy/policy.h"
#include "state/spec.h"

/*
 * Sets tap, tap_hosts and tap_secrets, blank, if the policy has secrets or rules on requests.
 * Checks that every secret has a value; an optional one without is left out.
 */
int plan_tap(const struct policy *p, struct arena *a, struct spec *s, struct err *e);

/* Most variables that plan_tap_env_first() and plan_tap_env_last() add. */
size_t plan_tap_env_max(const struct spec *s);

/* Calls `set` with variables that lead programs to the CA, which policy and user may replace. */
void plan_tap_env_first(const struct spec *s, void (*set)(struct spec_list *, const char *),
			struct spec_list *env);

/* Adds the variables of the secrets, blank. */
int plan_tap_env_last(const struct spec *s, struct arena *a,
		      void (*set)(struct spec_list *, const char *), struct spec_list *env,
		      struct err *e);

/* Removes all placeholders. */
int plan_tap_blank(struct arena *a, struct spec *s);

/* 0 or a negative errno. Fills in new placeholders, but those of `was` (may be NULL) for secrets
 * that it has: the memory of a saved VM has them. */
int plan_tap_fill(const struct spec *was, struct arena *a, struct spec *s);
