/* SPDX-License-Identifier: Apache-2.0 */
/*
 * life.json: whether a living sandbox is paused or stopped, its deadline, and the limits that its
 * guest reported. The warden writes it before the sandbox is ready, and at every change. It is
 * meaningless after the end.
 */
#pragma once

#include "state/spec.h"

/* Limits that programs in a VM have reached, as reported by its guest. */
struct met {
	uint64_t oom_kills;    /* processes killed for memory */
	uint64_t pids_refused; /* forks refused */
	bool disk_full, inodes_full;
};

bool met_anything(const struct met *m);

/* Added to values that a VM's guest reported: they come from inside the sandbox. */
#define AGENT_WORD "by the word of the agent inside"

/* Why a VM has stopped without an order; Hutch tries to continue it every second. */
enum life_stop {
	LIFE_RUNS,
	LIFE_DISK_FULL, /* the host's disk */
	LIFE_STOPPED,	/* for an unknown reason */
	LIFE_STOPS,
};
extern const char *const life_stop_names[]; /* "", "disk-full", "unknown" */
extern const char *const life_stop_texts[]; /* for people: "the host's disk is full" */

/* A container whose disk is overcommitted loses writes when the host's disk is full. Its programs
 * notice only if they sync. */
#define LIFE_LOST_TEXT "writes to its disk were lost: the host's disk was full, or failed"

struct life {
	bool paused;
	enum life_stop stopped;
	uint64_t deadline; /* wall clock, ms; 0: none; always 0 while paused */
	enum on_timeout on_timeout;
	struct met met;
	bool disk_lost; /* writes to a container's disk have failed: LIFE_LOST_TEXT */
};

int life_write(int dir, const struct life *l, struct err *e); /* atomically */
int life_read(int dir, struct life *ret, struct err *e);      /* -ENOENT: there is none */
