/* SPDX-License-Identifier: Apache-2.0 */
/* Notes between warden and keeper. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "state/life.h"

/*
 * What the two say to each other: a packet each, of a kind and a number; files go with some. A
 * table in note.c says for each kind who sends it, in which phases, with how many files and how
 * large its value may be; note_dispatch() refuses all else, and that ends the sandbox.
 */
enum note_kind {
	/* by the keeper */
	NOTE_READY =
		1, /* the guest has said HELLO; value: the version of Landlock in force there */
	NOTE_WANT_RECORDS, /* value: how many more files for commands; answered by one of the two
			      below */
	NOTE_DROP_RECORD,  /* value: the number of one that is to be removed */
	NOTE_WANT_AUDIT,   /* value: the number of the chain's next file */
	NOTE_DIRTY,	   /* the chain has grown; to be synced in a moment */
	NOTE_MACHINE_UP,   /* the machine's monitor answers, and nothing runs in it yet */
	NOTE_WANT_SAVE,	   /* a client wants a snapshot; value: enum wire_save */
	NOTE_SAVED,	   /* the state is written; value 1: it is not */
	NOTE_LIFE,	   /* value: struct life_order; answered by NOTE_LIFE_NOW, in turn */
	NOTE_MET,	   /* value: struct met, by the word of the agent inside */
	NOTE_WANT_TRACE,   /* value 1: trace lines are wanted, answered by NOTE_TRACE; 0: no more */
	/* by the warden */
	NOTE_RUN,	 /* value: enum vm_start; the jail is closed, the guest may run */
	NOTE_GO,	 /* the sandbox is as it should be: serve; value 1: it ends with its first
			    client. A file: this client */
	NOTE_RECORDS,	 /* value: the number of the first; as many files as came, numbers follow */
	NOTE_NO_RECORDS, /* value: errno */
	NOTE_EGRESS,	 /* before "go"; value: a bit for each enum capture_socket that comes */
	NOTE_AUDIT,    /* value: the number of the file that comes with it; none comes: ask again */
	NOTE_LIFE_NOW, /* value: struct life_answer */
	NOTE_SAVE,     /* the files for the state, the list of commands and, if it is continued,
			  the rules; none: no snapshot */
	NOTE_SAVE_END, /* value: the snapshot's number; 0: there is none */
	NOTE_PAUSED,   /* its deadline has paused it */
	NOTE_SUSPEND,  /* its deadline wants it on disk: ask for a snapshot, as a client would */
	NOTE_RULES,    /* before "run"; what may go out, and is left of it (egress-change.c) */
	NOTE_ADOPT,    /* before "go"; the list of commands that were running when it was saved */
	NOTE_TRACE,    /* a file: the reading end of a pipe with trace lines */
	NOTE_KINDS,
};

enum note_sender {
	NOTE_BY_KEEPER,
	NOTE_BY_WARDEN,
};

/* How far a sandbox is, by what the receiver of a note knows. */
enum note_phase {
	PHASE_BOOT,	  /* of a VM: until "machine up"; for the warden only */
	PHASE_HELLO,	  /* until "ready" */
	PHASE_WAITING,	  /* until "go" */
	PHASE_SERVING,	  /* until its end, and outside of the next two */
	PHASE_SAVE_ASKED, /* the keeper has asked for a snapshot */
	PHASE_SAVING,	  /* the snapshot is being made */
	PHASE_ENDING,	  /* the warden reads what its keeper said last */
	NOTE_PHASES,
};

struct keeper_note {
	uint64_t kind, value;
};

/*
 * What is wanted of the sandbox's life, and how it is: the values of two notes. 0 leaves a thing as
 * it is; the numbers are those of the wire (enum wire_on_timeout, enum wire_want).
 */
enum life_then {
	THEN_AS_BEFORE,
	THEN_END,
	THEN_PAUSE,
};

enum life_want {
	WANT_NOTHING,
	WANT_PAUSED,
	WANT_RUNNING,
};

struct life_order {
	uint32_t timeout; /* milliseconds from now */
	enum life_then on_timeout;
	enum life_want want;
};

enum life_result {
	LIFE_DONE,
	LIFE_ALREADY,	 /* paused, or running, as was wanted: nothing is changed */
	LIFE_NO_FREEZER, /* there is nothing to pause it with */
	LIFE_TOO_LATE,	 /* a deadline behind the ttl */
	LIFE_FAILED,	 /* the warden's log says why; nothing is changed */
	LIFE_RESULTS,
};

struct life_answer {
	enum life_result result;
	bool paused;
	uint64_t ms; /* the deadline, wall clock, 0: none; LIFE_TOO_LATE: what is left of the ttl */
};

/* Unpacking is false for a value that is none. */
uint64_t life_order_pack(const struct life_order *o);
bool life_order_unpack(uint64_t value, struct life_order *ret);
uint64_t life_answer_pack(const struct life_answer *a);
bool life_answer_unpack(uint64_t value, struct life_answer *ret);

/* Larger numbers are cut. */
uint64_t met_pack(const struct met *m);
bool met_unpack(uint64_t value, struct met *ret);

/* What a snapshot is called: 's' and 15 digits of base 36. */
enum {
	SAVE_NAME = 17,
};
void save_name(uint64_t number, char ret[static SAVE_NAME]);

enum {
	NOTE_FILES_MAX = 8,
	RECORDS_AT_START = 2,
	AUDIT_SYNC_MS = 1000, /* from NOTE_DIRTY to the disk; and as long no other one is sent */
};

/* Files stay the sender's; those received are the caller's. Nothing waits but the sending of a note
 * without files. 0 or -errno; receiving: -EAGAIN, -EPIPE (the other one has gone), -EBADMSG. */
int note_send(int fd, enum note_kind kind, uint64_t value, const int *files, size_t n);
int note_receive(int fd, struct keeper_note *ret, int files[static NOTE_FILES_MAX], size_t *ret_n);

/* Whether the table has such a note from `by` in that phase, with `n` files. */
bool note_may_come(const struct keeper_note *note, size_t n, enum note_sender by,
		   enum note_phase phase);

/* Takes the files if it returns true. False: the note is wrong in a way that no table tells. */
typedef bool note_handler(void *arg, uint64_t value, const int *files, size_t n);

/*
 * Receives a note and calls its handler. As note_receive(), with -EBADMSG also for a note that may
 * not come, has no handler, or whose handler returns false; its files are closed.
 */
int note_dispatch(int fd, enum note_sender by, enum note_phase phase,
		  note_handler *const handlers[static NOTE_KINDS], void *arg);
