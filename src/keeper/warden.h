/* SPDX-License-Identifier: Apache-2.0 */
/* The warden: what it holds of its sandbox from start to end. */
#pragma once

#include "end.h"
#include "engine.h"
#include "keeper.h"
#include "loop.h"
#include "state.h"

struct warden {
	const char *guest;     /* path of hutch-guest */
	int dir;	       /* the state directory */
	int report;	       /* to whoever waits for the start; -EBADF once it was told */
	int client;	       /* the first client, or -EBADF */
	int lock, tree, range; /* held, never used */
	int listener;
	int channel; /* the guest's end; the keeper's is in `keeper_end` */
	int keeper_end;
	int note;	 /* packets of the keeper */
	int note_keeper; /* its end */
	bool rootless;
	uint32_t ids;
	struct state_root root;
	struct spec spec;
	struct cgroup group;
	struct engine_start start;
	struct engine_sandbox box;
	struct receipt receipt;
	struct proc keeper;
	const struct engine *engine;
};

/* start.c: everything up to a sandbox that serves. What was made is in `w` also on failure;
 * warden_end() takes it back. */
int warden_start(struct warden *w, struct err *e);

/* wait.c: returns when the sandbox has to end, and why. */
enum end_reason warden_wait(struct warden *w);

/* end.c: kills, writes down, gives back. `started` is false if nobody was ever told that it runs:
 * then nothing is written. */
void warden_end(struct warden *w, enum end_reason reason, bool started);
