/* SPDX-License-Identifier: Apache-2.0 */
/* The warden: what it holds of its sandbox from start to end. */
#pragma once

#include "audit/audit-log.h"
#include "base/loop.h"
#include "engine/dial-guard.h"
#include "engine/engine.h"
#include "keeper/keeper.h"
#include "snapshot/snapshot.h"
#include "state/end.h"
#include "state/life.h"
#include "state/state.h"
#include "wire/wire.h"

/* Times are clock_mono()'s, UINT64_MAX: never; lifetime.c. */
struct lifetime {
	bool paused;
	enum on_timeout on_timeout;
	uint64_t deadline, ttl;
	uint64_t paused_at;
};

/* Locks that are held, and never used: start.c. */
struct warden_held {
	int lock, tree, range;
};

/* Descriptors for other processes, each closed once they have it: start.c. */
struct warden_ends {
	int listener; /* the keeper's */
	int guest, guest_keeper;
	int monitor, monitor_keeper; /* of a VM: the engine's end of its monitor, the keeper's */
	int note_keeper;
};

/* What a VM was started from. */
struct warden_origin {
	struct snapshot from;
	int commands; /* that were running then, or -EBADF */
	int rules;    /* what may go out, of one that is continued, or -EBADF */
};

/* Snapshots of a VM: saving.c. */
struct saving {
	int dir; /* of all snapshots */
	bool active;
	uint64_t until;
	uint64_t tried; /* the deadline that was to suspend it, whether or not it could */
	enum wire_save what_for;
	struct snapshot_new made;
	char suspended[SAVE_NAME]; /* it is resumed: the snapshot that it was suspended in */
};

/* Files made for commands: record-files.c. */
struct record_files {
	uint64_t last; /* number */
	uint64_t n;    /* those there */
};

/* The audit log: witness.c. */
struct witness {
	struct audit_log log;
	struct audit_chain chain; /* the keeper's from its fork on; our descriptor is for syncing */
	uint32_t file;		  /* the number of its last file */
};

struct warden {
	/* Given by its parent, or by whoever takes a spare. */
	const char *guest; /* path of hutch-guest */
	int dir;	   /* the state directory */
	int report;	   /* to whoever waits for the start; -EBADF once it was told */
	int client;	   /* the first client, or -EBADF */

	struct state_root root;
	struct spec spec;
	int pool; /* of a spare: the directory of those like it; or -EBADF */
	struct warden_held held;
	bool rootless;
	uint32_t ids;

	struct warden_ends ends;
	struct warden_origin origin;
	int disk; /* what the sandbox writes to; it has no name */

	const struct engine *engine;
	struct engine_start start;
	struct engine_sandbox box;
	struct cgroup group;
	struct receipt receipt;

	struct proc keeper;
	int note;		 /* to and from the keeper */
	struct dial_guard guard; /* of the keeper */

	struct lifetime life;
	struct met met; /* of a machine, as its agent says */
	struct saving saving;
	struct record_files records;
	struct witness witness;
};

#define WARDEN_INIT                                                                               \
	{                                                                                         \
		.dir = -EBADF, .report = -EBADF, .client = -EBADF, .root = STATE_ROOT_INIT,       \
		.pool = -EBADF, .held = { .lock = -EBADF, .tree = -EBADF, .range = -EBADF },      \
		.ends = { .listener = -EBADF,                                                     \
			  .guest = -EBADF,                                                        \
			  .guest_keeper = -EBADF,                                                 \
			  .monitor = -EBADF,                                                      \
			  .monitor_keeper = -EBADF,                                               \
			  .note_keeper = -EBADF },                                                \
		.origin = { .from = SNAPSHOT_INIT, .commands = -EBADF, .rules = -EBADF },         \
		.disk = -EBADF, .box = { .init = PROC_INIT, .said = -EBADF },                     \
		.group = CGROUP_INIT, .keeper = PROC_INIT, .note = -EBADF,                        \
		.guard = DIAL_GUARD_INIT, .saving = { .dir = -EBADF, .made = { .dir = -EBADF } }, \
		.witness = { .log = AUDIT_LOG_INIT, .chain = AUDIT_CHAIN_INIT },                  \
	}

/* start.c: everything up to a sandbox that is as it should be, and then up to one that serves. What
 * was made is in `w` also on failure; warden_end() takes it back. */
int warden_start(struct warden *w, struct err *e);
int warden_go(struct warden *w, struct err *e);
void warden_name_lines(const struct spec *s);

/* spare.c. Between the two, if `pool` is one: true when it was taken; otherwise why it is to end.
 */
int spare_find_pool(struct warden *w, struct err *e);
bool spare_wait(struct warden *w, enum end_reason *ret_reason, struct err *e);
void spare_done(struct warden *w, bool taken);

/* record-files.c: what the keeper asks for. */
void warden_take_records(struct warden *w); /* those of earlier runs */
void warden_give_records(struct warden *w, uint64_t wanted);
void warden_drop_record(struct warden *w, uint64_t number);

/* way-out.c: gives the keeper the sockets that catch what goes out, if anything may. */
int warden_open_egress(struct warden *w, struct err *e);

/* way-out.c: what the kernel lets the keeper dial; before the keeper is started. */
int warden_guard_keeper(struct warden *w, const char *group, struct err *e);

/* witness.c: the audit log. What cannot be recorded is not started. */
int witness_create(struct warden *w, struct err *e);
int witness_taken(struct warden *w, struct err *e);
void witness_receipt(struct warden *w);
void witness_refused(struct warden *w, const struct err *why);
void witness_next_file(struct warden *w, uint64_t number);
void witness_sync(struct warden *w);
/* False if something of that could not be recorded; STATE_UNSEALED then says so. */
bool witness_end(struct warden *w, const struct end *end, bool started);

/* lifetime.c. Writes life.json: before the sandbox is ready, after its receipt is known. */
int lifetime_begin(struct warden *w, struct err *e);
struct life_answer lifetime_order(struct warden *w, const struct life_order *o);
void lifetime_met(struct warden *w, uint64_t value); /* of NOTE_MET */
uint64_t lifetime_due(const struct lifetime *l);     /* when lifetime_over() is to be called */
void lifetime_rest(const struct lifetime *l, struct spec *ret); /* what another run would have */
bool lifetime_pauses(const struct lifetime *l);			/* what is due is not its end */
bool lifetime_over(struct warden *w); /* true: it has to end; else it was paused */

/* saving.c: snapshots of a machine. */
#define SAVED_WIDENED "box/" STATE_WIDENED
/* Before namespaces are entered, in which the host's files look different. */
int warden_take_snapshots(struct warden *w, struct err *e);
void warden_save_begin(struct warden *w, enum wire_save what_for);
bool warden_saved(struct warden *w, bool failed); /* true: it is to end now */
bool warden_suspend(struct warden *w); /* its deadline wants it on disk. False: it cannot be */
void warden_save_drop(struct warden *w);
void warden_forget_suspended(struct warden *w); /* it runs, and what it was saved in is not it */

/* tell-trace.c: its trace lines go to the keeper, or nowhere. */
void warden_trace(const struct warden *w, bool on);

/* wait.c: returns when the sandbox has to end, and why. */
enum end_reason warden_wait(struct warden *w);

/* end.c: kills, writes down, gives back. `started` is false if nobody was ever told that it runs:
 * then nothing is written. */
void warden_end(struct warden *w, enum end_reason reason, bool started);
