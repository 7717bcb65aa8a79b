/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the keeper process: one loop, one link to the guest, up to 64 to clients, and
 * relays between channels of the one and of the others.
 *
 * Nothing here is freed inside a callback. A client that has to go is marked, a relay that is over
 * is put aside, and keeper_round(), which runs after every round of the loop, clears away.
 */
#pragma once

#include "engine/engine.h"
#include "keeper/clients.h"
#include "keeper/guest-clock.h"
#include "keeper/journal.h"
#include "keeper/keeper-egress.h"
#include "keeper/life-queue.h"
#include "keeper/met.h"
#include "keeper/records.h"
#include "keeper/relay.h"
#include "keeper/save.h"
#include "keeper/stop.h"
#include "keeper/tracing.h"

/* Of a VM: its monitor, and what its snapshots need. */
struct keeper_vm {
	int fd;			  /* of the monitor, until that takes it */
	struct monitor *monitor;  /* NULL: the engine has none */
	const char *no_snapshots; /* why none can be made; "" */
	int adopt;		  /* the list of commands to be taken over, until "go" */
};

struct keeper {
	const struct spec *spec;
	const struct engine *engine;
	const char **env; /* of the spec, by name */
	struct loop *loop;
	struct loop_fd warden;

	enum note_phase phase; /* without those of a snapshot, which save.c knows */
	bool ended;	       /* stop.c */
	enum keeper_end end;
	struct loop_timer idle;

	struct port guest;
	uint32_t landlock;	    /* the version in force there */
	bool deaf;		    /* nothing more can be written to the guest */
	struct loop_timer deadline; /* for its HELLO; once it is deaf, for its end */
	struct guest_clock clock;
	struct keeper_vm vm;
	struct met_told met;

	struct clients clients;
	struct relays relays;
	struct life_queue life;
	struct save save;
	struct tracing tracing;

	struct records records;
	struct journal journal;
	struct egress *egress; /* NULL: the policy allows nothing */
};

/*
 * Makes everything that serving needs, before keeper_confine() forbids it; reads nothing. Takes the
 * descriptors of `s`, also when it fails; those may be -EBADF.
 */
int keeper_init(struct keeper *k, const struct keeper_start *s, struct err *e);
void keeper_done(struct keeper *k);
enum keeper_end keeper_serve(struct keeper *k);

/* Clears away, moves on what is held, writes. */
void keeper_round(struct keeper *k);
