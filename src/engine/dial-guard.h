/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dial guard: what the kernel lets the keeper of a sandbox connect to, whatever the keeper
 * does. The keeper parses what comes from inside; should that take it over, it can still dial only
 * what the policy could have allowed, and no special-purpose address that nobody has named.
 *
 * The warden makes a v2 control group for its keeper (cgroup.h), attaches the programs of
 * dial-programs.h to it, and starts the keeper in it. Sockets belong to the group that their maker
 * is in for good; what the keeper gets from the warden (the sockets that catch what the sandbox
 * sends) is of the sandbox's own network namespace, which leads nowhere. The programs go with the
 * group, and the group is removed with those of the sandbox.
 */
#pragma once

#include "base/err.h"
#include "engine/dial-programs.h"
#include "engine/dial-rules.h"
#include "receipt/receipt.h"

struct dial_guard {
	int group;     /* -EBADF: there is none */
	char why[128]; /* then: why not */
	uint32_t ids[DIAL_PROGRAMS];
};

#define DIAL_GUARD_INIT          \
	{                        \
		.group = -EBADF, \
	}
#define _cleanup_dial_guard_ _cleanup_(dial_guard_close)

/*
 * Makes the guard of the sandbox whose groups have this name. A host that cannot have one is no
 * error: `why` says so. A full system, and rules that cannot be read, are; nothing stays behind
 * then.
 */
int dial_guard_make(const char *name, const struct dial_rules *rules, struct dial_guard *ret,
		    struct err *e);

/* Lets go of the group, which stays: cgroup_remove(). */
void dial_guard_close(struct dial_guard *g);

/*
 * The row LAYER_DIAL_GUARD, from what the kernel says: every program is attached, and `keeper` is
 * the only process in the group. That a connection is refused is the keeper's to try before it
 * serves.
 */
void dial_guard_verify(const struct dial_guard *g, pid_t keeper, struct receipt *r);

/*
 * For the operator, while the sandbox runs: lets one more rule through. 1, or 0 where there is no
 * guard. The keeper is not asked, and cannot ask.
 */
int dial_guard_allow(const char *name, const struct rule *rule, struct err *e);
