/* SPDX-License-Identifier: Apache-2.0 */
/* end.json: how a sandbox ended, and which limits it met. Written by the warden, or by whoever
 * reclaims after it. */
#pragma once

#include <stdint.h>

#include "json-util.h"
#include "life.h"

enum end_reason {
	END_KILLED, /* hutch kill, SIGTERM */
	END_CLIENT, /* the client of `hutch run` has gone */
	END_TTL,
	END_IDLE,
	END_GUEST,     /* PID 1 ended by itself: killed by the kernel, most of all for memory */
	END_PROTOCOL,  /* the guest broke the protocol */
	END_KEEPER,    /* the keeper failed or was killed */
	END_WARDEN,    /* the warden was killed; found later */
	END_SUSPENDED, /* it is a snapshot now, and can be resumed; no end.json says so */
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
	uint64_t throttled;    /* periods in which the CPU limit was met */
	uint64_t memory_peak, cpu_us;
	bool disk_full, inodes_full; /* at the end; what fits no more */
	bool told;		 /* some of that is the word of the agent inside: see struct met */
	char by[END_BY_MAX + 1]; /* who asked for it, of END_KILLED, in words; "": not known */
};

/* Who asked for the end of the sandbox of that directory, of one that was killed. */
void end_read_killer(int dir, struct end *end);

/* Adds what the agent of a machine said. */
void end_add_met(struct end *end, const struct met *met);

int end_write(int dir, const struct end *end, struct err *e); /* atomically */
int end_read(int dir, struct end *ret,
	     struct err *e); /* -ENOENT: it has not ended, or nobody wrote it down */
