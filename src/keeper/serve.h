/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the keeper process: one loop, one link to the guest, up to 64 links to clients, and
 * relays between their channels.
 *
 * Nothing is freed inside a callback. A client is marked as gone, a relay is put aside, and
 * keeper_round(), which runs after every round of the loop, frees them.
 */
#pragma once

#include "engine/engine.h"
#include "keeper/clients.h"
#include "keeper/guest-clock.h"
#include "keeper/halt.h"
#include "keeper/journal.h"
#include "keeper/keeper-egress.h"
#include "keeper/life-queue.h"
#include "keeper/met.h"
#include "keeper/records.h"
#include "keeper/relay.h"
#include "keeper/save.h"
#include "keeper/stop.h"
#include "keeper/tracing.h"

/* A VM's monitor, and the state that its snapshots need. */
struct keeper_vm {
	int fd;			  /* the monitor's socket, until monitor->start() takes it */
	struct monitor *monitor;  /* NULL: the engine has none */
	const char *no_snapshots; /* why no snapshot can be made, or "" */
	int adopt;		  /* the list of commands to adopt, until "go" */
	struct loop_timer closed; /* for the VM's end after that of its monitor */
};

struct keeper {
	const struct spec *spec;
	const struct engine *engine;
	const char *ca;	  /* PEM certificate that the sandbox trusts; NULL or "": none */
	const char **env; /* the spec's environment, sorted by name */
	struct loop *loop;
	struct loop_fd warden;

	enum note_phase phase; /* without the snapshot phases: phase_of() adds them */
	bool ended;	       /* stop.c */
	enum keeper_end end;
	struct loop_timer idle;

	struct port guest;
	uint32_t landlock;	    /* the guest's Landlock version */
	bool deaf;		    /* writing to the guest has failed */
	struct loop_timer deadline; /* for the guest's HELLO; once `deaf`, for its end */
	struct guest_clock clock;
	struct keeper_vm vm;
	struct halt halt;
	struct met_told met;

	struct clients clients;
	struct relays relays;
	struct life_queue life;
	struct save save;
	struct tracing tracing;

	struct records records;
	struct journal journal;
	struct filtering filtering;
	struct egress *egress; /* NULL: the policy allows no egress */
};

/* Creates everything that serving needs, before keeper_confine() forbids it; reads nothing.
 * Takes the descriptors of `s`, each of which may be -EBADF, even if it fails. */
int keeper_init(struct keeper *k, const struct keeper_start *s, struct err *e);
void keeper_done(struct keeper *k);
enum keeper_end keeper_serve(struct keeper *k);

/* Frees ended clients and relays, passes on held bytes, writes pending output. */
void keeper_round(struct keeper *k);
