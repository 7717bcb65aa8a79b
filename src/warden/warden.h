/* SPDX-License-Identifier: Apache-2.0 */
/* The warden's state of its sandbox, from start to end. */
#pragma once

#include "audit/audit-log.h"
#include "base/loop.h"
#include "engine/dial-guard.h"
#include "engine/engine.h"
#include "keeper/keeper.h"
#include "snapshot/ram-save.h"
#include "snapshot/snapshot.h"
#include "state/end.h"
#include "state/life.h"
#include "state/state.h"
#include "warden/helpers.h"
#include "wire/wire.h"

/* Times are clock_mono(); UINT64_MAX: never. See lifetime.c. */
struct lifetime {
	bool paused;
	enum on_timeout on_timeout;
	uint64_t deadline, ttl;
	uint64_t paused_at;
};

/* Descriptors of locks, held until the warden ends: start.c. */
struct warden_held {
	int lock, tree, range;
};

/* Descriptors for other processes, closed once they are passed on: start.c. */
struct warden_ends {
	int listener; /* for the keeper */
	int guest, guest_keeper;
	int monitor, monitor_keeper; /* VMs only: both ends of the monitor */
	int note_keeper;
};

/* The snapshot or template that a VM starts from. */
struct warden_origin {
	struct snapshot from;
	int memory;	     /* its memory, which the VM maps: the base of the VM's own snapshots */
	int commands;	     /* the list of commands that ran when it was saved, or -EBADF */
	int rules;	     /* the egress rules saved with it; -EBADF unless a fork or resume */
	char text[128];	     /* for the receipt: "template KEY"; "": not a VM */
	const char *sharing; /* for the receipt: whether the VM shares memory with it */
};

/* Making snapshots of the VM: saving.c. */
struct saving {
	int dir; /* the directory of all snapshots */
	bool active;
	uint64_t until;
	uint64_t tried; /* the last deadline for which a suspend was tried */
	enum wire_save what_for;
	struct snapshot_new made;
	struct ram_save ram;
	char suspended[SAVE_NAME]; /* the snapshot that the sandbox was resumed from, or "" */
};

/* Record files of commands: record-files.c. */
struct record_files {
	uint64_t last; /* the highest number so far */
	uint64_t n;    /* existing files */
};

/* The audit log: witness.c. */
struct witness {
	struct audit_log log;
	struct audit_chain chain; /* the keeper writes it; our descriptor only syncs */
	uint32_t file;		  /* the number of the chain's last file */
};

/* A container's disk: disk-watch.c. */
struct disk_watch {
	int stats;  /* the kernel's counters, or -EBADF */
	bool lost;  /* a write has failed */
	bool noted; /* and that is written down */
};

struct warden {
	/* Given by the parent, or by the process that takes a spare. */
	const char *guest; /* path of hutch-guest */
	int dir;	   /* the state directory */
	int report;	   /* to the process that waits for the start; -EBADF once reported */
	int client;	   /* the first client, or -EBADF */

	struct state_root root;
	struct spec spec;
	int pool; /* spares only: the directory of the pool; or -EBADF */
	struct warden_held held;
	bool rootless;
	uint32_t ids;

	struct warden_ends ends;
	struct warden_origin origin;
	int disk; /* the sandbox's disk, an unnamed file */

	const struct engine *engine;
	struct engine_start start;
	struct engine_sandbox box;
	struct cgroup group;
	struct receipt receipt;

	struct proc keeper;
	int note;		 /* socket for notes to and from the keeper */
	struct dial_guard guard; /* limits the keeper's connections */

	struct lifetime life;
	enum life_stop stopped; /* its VM, without an order; as the keeper reports */
	struct met met;		/* limits that a VM's users reached, as hutch-guest reports them */
	struct disk_watch disk_watch;
	struct saving saving;
	struct record_files records;
	struct witness witness;
	struct tapping tap;
	struct filtering filter;
	struct tokens tokens;
	struct budgets budgets;
};

#define WARDEN_INIT                                                                           \
	{                                                                                     \
		.dir = -EBADF, .report = -EBADF, .client = -EBADF, .root = STATE_ROOT_INIT,   \
		.pool = -EBADF, .held = { .lock = -EBADF, .tree = -EBADF, .range = -EBADF },  \
		.ends = { .listener = -EBADF,                                                 \
			  .guest = -EBADF,                                                    \
			  .guest_keeper = -EBADF,                                             \
			  .monitor = -EBADF,                                                  \
			  .monitor_keeper = -EBADF,                                           \
			  .note_keeper = -EBADF },                                            \
		.origin = { .from = SNAPSHOT_INIT,                                            \
			    .memory = -EBADF,                                                 \
			    .commands = -EBADF,                                               \
			    .rules = -EBADF },                                                \
		.disk = -EBADF, .box = ENGINE_SANDBOX_INIT, .group = CGROUP_INIT,             \
		.keeper = PROC_INIT, .note = -EBADF, .guard = DIAL_GUARD_INIT,                \
		.disk_watch = { .stats = -EBADF },                                            \
		.saving = { .dir = -EBADF, .made = { .dir = -EBADF }, .ram = RAM_SAVE_INIT }, \
		.witness = { .log = AUDIT_LOG_INIT, .chain = AUDIT_CHAIN_INIT },              \
		.tap = { .store = SECRET_STORE_INIT,                                          \
			 .changes = -EBADF,                                                   \
			 .proc = PROC_INIT,                                                   \
			 .sock = -EBADF },                                                    \
		.filter = { .proc = PROC_INIT, .sock = -EBADF },                              \
		.tokens = { .proc = PROC_INIT, .from = -EBADF },                              \
		.budgets = { .ledger = LEDGER_INIT },                                         \
	}

/* start.c. warden_start() builds and verifies the sandbox, warden_go() makes it serve. On
 * failure `w` holds what was created; warden_end() cleans up. */
int warden_start(struct warden *w, struct err *e);
int warden_go(struct warden *w, struct err *e);
void warden_name_lines(const struct spec *s);

/* spare.c: called between the two if `pool` is set. spare_wait() returns true when the spare was
 * taken; otherwise *ret_reason says why it ends. */
int spare_find_pool(struct warden *w, struct err *e);
bool spare_wait(struct warden *w, enum end_reason *ret_reason, struct err *e);
void spare_done(struct warden *w, bool taken);

/* record-files.c: record files for the keeper. */
void warden_take_records(struct warden *w); /* counts and prunes those of earlier runs */
void warden_give_records(struct warden *w, uint64_t wanted);
void warden_drop_record(struct warden *w, uint64_t number);

/* way-out.c: gives the keeper the capturing sockets, if the policy allows egress. */
int warden_open_egress(struct warden *w, struct err *e);

/* way-out.c: sets up the dial guard; before the keeper is started. */
int warden_guard_keeper(struct warden *w, const char *group, struct err *e);

/* witness.c: the audit log. A start that cannot be recorded fails. */
int witness_create(struct warden *w, struct err *e);
int witness_taken(struct warden *w, struct err *e);
void witness_receipt(struct warden *w);
void witness_refused(struct warden *w, const struct err *why);
void witness_next_file(struct warden *w, uint64_t number);
void witness_sync(struct warden *w);
int witness_lost(struct warden *w, struct err *e); /* of writes to the disk */
void witness_token(struct warden *w, const char *secret, const char *why); /* NULL: refreshed */
/* False if a record or the seal could not be written; the file STATE_UNSEALED then says so. */
bool witness_end(struct warden *w, const struct end *end, bool started);

/* lifetime.c. lifetime_begin() writes life.json, after the receipt and before "go". */
int lifetime_begin(struct warden *w, struct err *e);
struct life_answer lifetime_order(struct warden *w, const struct life_order *o);
void lifetime_stopped(struct warden *w, enum life_stop why);
int lifetime_lost(struct warden *w, struct err *e);  /* writes life.json: disk_watch.lost */
void lifetime_met(struct warden *w, uint64_t value); /* the value of NOTE_MET */
uint64_t lifetime_due(const struct lifetime *l);     /* when to call lifetime_over() */
void lifetime_rest(const struct lifetime *l, struct spec *ret); /* the rest, for the next run */
bool lifetime_pauses(const struct lifetime *l);			/* the deadline pauses, not ends */
bool lifetime_over(struct warden *w); /* true: end the sandbox; false: it is paused now */

/* disk-watch.c: notices lost writes. disk_watch_begin() returns whether to look from time to time;
 * disk_watch_look() returns true once lost writes are written down. */
bool disk_watch_begin(struct warden *w);
bool disk_watch_look(struct warden *w);

/* saving.c: snapshots of a VM. */
#define SAVED_WIDENED "box/" STATE_WIDENED
/* Call it before entering namespaces, where the host's files look different. */
int warden_take_snapshots(struct warden *w, struct err *e);
void warden_save_begin(struct warden *w, enum wire_save what_for);
/* Once the child of `saving.ram` has copied the memory. True: suspended, end it now. */
bool warden_saved(struct warden *w, bool failed);
bool warden_suspend(struct warden *w); /* at its deadline; false: it cannot be suspended */
void warden_save_drop(struct warden *w);
void warden_forget_suspended(struct warden *w); /* deletes the snapshot that it was resumed from */

/* tell-trace.c: starts or stops sending trace lines to the keeper. */
void warden_trace(const struct warden *w, bool on);

/* wait.c: waits until the sandbox has to end; returns why. */
enum end_reason warden_wait(struct warden *w);

/* end.c: kills the sandbox, writes down how it ended, cleans up. `started` is false if the start
 * failed: then nothing is written down. */
void warden_end(struct warden *w, enum end_reason reason, bool started);
