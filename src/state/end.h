/* SPDX-License-Identifier: Apache-2.0 */
/*
 * end.json: how a sandbox ended, and which limits it reached. Written by the warden, or by the
 * process that reclaims a sandbox whose warden was killed.
 */
#pragma once

#include <stdint.h>

#include "base/json-util.h"
#include "state/life.h"

enum end_reason {
	END_KILLED, /* hutch kill, SIGTERM */
	END_CLIENT, /* the client of `hutch run` has gone */
	END_TTL,
	END_IDLE,
	END_GUEST,     /* PID 1 ended by itself: mostly killed by the kernel for memory */
	END_PROTOCOL,  /* the guest broke the protocol */
	END_KEEPER,    /* the keeper failed or was killed */
	END_WARDEN,    /* the warden was killed; noticed later */
	END_SUSPENDED, /* now a snapshot that can be resumed; never written to end.json */
	END_REASONS,
};

extern const char *const end_reason_names[END_REASONS + 1]; /* "killed", "client-gone", "ttl",
							       "idle", "guest-ended", "protocol",
							       "keeper", "warden", "suspended" */

enum {
	END_BY_MAX = 95,
};

struct end {
	enum end_reason reason;
	uint64_t time;	       /* wall clock, ns */
	uint64_t oom_kills;    /* processes killed by the memory limit */
	uint64_t pids_refused; /* forks refused by the pids limit */
	uint64_t throttled;    /* periods in which the CPU limit was reached */
	uint64_t memory_peak, cpu_us;
	bool disk_full, inodes_full; /* at the end */
	bool disk_lost;		     /* writes to it were lost: see struct life */
	bool told;		     /* some of this was reported by the guest: see struct met */
	char by[END_BY_MAX + 1];     /* END_KILLED: who requested it; "": unknown */
};

/* Sets end->by of a killed sandbox from the file `killer` in its directory. */
void end_read_killer(int dir, struct end *end);

/* Adds the limits that the guest of a VM reported. */
void end_add_met(struct end *end, const struct met *met);

int end_write(int dir, const struct end *end, struct err *e); /* atomically */
int end_read(int dir, struct end *ret, struct err *e); /* -ENOENT: not ended or not recorded */
