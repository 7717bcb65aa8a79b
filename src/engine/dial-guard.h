/* SPDX-License-Identifier: Apache-2.0 */
/* The dial guard: the kernel limits where a sandbox's keeper can connect. The keeper parses
 * untrusted data; an attacker who controls it can still dial only destinations that the policy
 * could have allowed, and no special-purpose address unless a rule names it.
 *
 * The warden makes a v2 control group for its keeper (cgroup.h), attaches the programs of
 * dial-programs.h and starts the keeper in it. A socket belongs for good to the group of the
 * process that made it. The sockets that the keeper gets from the warden (to capture the sandbox's
 * connections) belong to the sandbox's network namespace, which leads nowhere. The programs end
 * with the group, and the group is removed with those of the sandbox. */
#pragma once

#include "base/err.h"
#include "engine/dial-programs.h"
#include "engine/dial-rules.h"
#include "receipt/receipt.h"

struct dial_guard {
	int group;     /* -EBADF: no guard */
	char why[128]; /* why there is no guard */
	uint32_t ids[DIAL_PROGRAMS];
};

#define DIAL_GUARD_INIT          \
	{                        \
		.group = -EBADF, \
	}
#define _cleanup_dial_guard_ _cleanup_(dial_guard_close)

/* Makes the guard of the sandbox whose groups have this name. A host without support is not an
 * error: `why` gives the reason. A full system and unreadable rules are errors, and then nothing
 * stays behind. */
int dial_guard_make(const char *name, const struct dial_rules *rules, struct dial_guard *ret,
		    struct err *e);

/* Closes the group without removing it; cgroup_remove() does that. */
void dial_guard_close(struct dial_guard *g);

/* Fills in LAYER_DIAL_GUARD from what the kernel reports: every program is attached, and `keeper`
 * is the only process in the group. The keeper itself tries a forbidden connection before it
 * serves. */
void dial_guard_verify(const struct dial_guard *g, pid_t keeper, struct receipt *r);

/* For the operator, while the sandbox runs: lets one more rule through. 1, or 0 if there is no
 * guard. The keeper has no part in it and cannot request it. */
int dial_guard_allow(const char *name, const struct rule *rule, struct err *e);
