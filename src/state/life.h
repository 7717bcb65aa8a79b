/* SPDX-License-Identifier: Apache-2.0 */
/*
 * life.json: whether a sandbox that lives is paused, its deadline, and what its agent says of
 * limits. Written by the warden before the sandbox is ready, and whenever it changes; of one that
 * has ended it says nothing.
 */
#pragma once

#include "spec.h"

/* Limits that users of a machine have met, by the word of its agent. */
struct met {
	uint64_t oom_kills;    /* processes killed for memory */
	uint64_t pids_refused; /* forks refused */
	bool disk_full, inodes_full;
};

bool met_anything(const struct met *m);

/* Behind what a machine's agent says: the kernel it speaks of is the sandbox's. */
#define AGENT_WORD "by the word of the agent inside"

struct life {
	bool paused;
	uint64_t deadline; /* wall clock, ms; 0: none, as always while it is paused */
	enum on_timeout on_timeout;
	struct met met;
};

int life_write(int dir, const struct life *l, struct err *e); /* atomically */
int life_read(int dir, struct life *ret, struct err *e);      /* -ENOENT: there is none */
