/* SPDX-License-Identifier: Apache-2.0 */
/* Messages ("notes") between warden and keeper. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "state/life.h"

/*
 * A note is one packet: a kind and a value, with files for some kinds. The table in note.c says for
 * each kind who sends it, in which phases, with how many files and the largest value.
 * note_take() rejects any other note, and that ends the sandbox.
 */
enum note_kind {
	/* by the keeper */
	NOTE_READY = 1,	   /* the guest sent HELLO; value: the guest's Landlock version */
	NOTE_WANT_RECORDS, /* value: how many record files are wanted; answered by NOTE_RECORDS or
			      NOTE_NO_RECORDS */
	NOTE_DROP_RECORD,  /* value: the number of the record to remove */
	NOTE_WANT_AUDIT,   /* value: the number of the audit chain's next file */
	NOTE_DIRTY,	   /* the audit chain has grown: sync it within AUDIT_SYNC_MS */
	NOTE_MACHINE_UP,   /* the VM's monitor answers; no guest code has run */
	NOTE_WANT_SAVE,	   /* a snapshot is wanted; value: enum wire_save */
	NOTE_SAVED,	   /* the VM's state is written; value 1: writing failed */
	NOTE_LIFE,	   /* value: struct life_order; answered in order by NOTE_LIFE_NOW */
	NOTE_MET,	   /* value: struct met, as hutch-guest reports it */
	NOTE_WANT_TRACE,   /* value 1: trace lines wanted, answered by NOTE_TRACE; 0: stop them */
	NOTE_STOPPED,	   /* value: enum life_stop; 0: the VM continues */
	NOTE_WANT_TAP,	   /* hutch-tap is needed; answered by NOTE_TAP */
	NOTE_WANT_FILTER,  /* hutch-filter is needed; answered by NOTE_FILTER */
	NOTE_SECRET_USED,  /* value: the number of the secret; at most once a minute for each */
	/* by the warden */
	NOTE_RUN, /* value: enum vm_start; the jail is empty, the guest may run */
	NOTE_GO,  /* the receipt is good: serve; value 1: the sandbox ends with its first client. A
		     file: that client */
	NOTE_RECORDS,	 /* value: the number of the first file; the others count up from it */
	NOTE_NO_RECORDS, /* value: errno */
	NOTE_EGRESS,   /* before "go"; value: a bit for each enum capture_socket that comes along */
	NOTE_AUDIT,    /* value: the number of the file; without a file: ask again */
	NOTE_LIFE_NOW, /* value: struct life_answer */
	NOTE_SAVE,     /* files for the state, the list of commands and, unless the snapshot is only
			  kept, the egress rules; no files: no snapshot */
	NOTE_SAVE_END, /* value: the snapshot's number; 0: it failed */
	NOTE_PAUSED,   /* the deadline has paused the sandbox */
	NOTE_SUSPEND, /* the deadline suspends the sandbox: ask for a snapshot, as a client would */
	NOTE_RULES,   /* before "run"; the saved egress rules and budgets (egress-change.c) */
	NOTE_ADOPT,   /* before "go"; the list of commands that ran when the VM was saved */
	NOTE_TRACE,   /* a file: the read end of a pipe with the warden's trace lines */
	NOTE_TAP,     /* a file: the socket to hutch-tap; without: value is the errno */
	NOTE_FILTER,  /* a file: the socket to hutch-filter; without: value is the errno */
	NOTE_KINDS,
};

enum note_sender {
	NOTE_BY_KEEPER,
	NOTE_BY_WARDEN,
};

/* The phase of a sandbox, as the receiver of a note knows it. */
enum note_phase {
	PHASE_BOOT,	  /* VMs only: until NOTE_MACHINE_UP; the keeper does not use it */
	PHASE_HELLO,	  /* until "ready" */
	PHASE_WAITING,	  /* until "go" */
	PHASE_SERVING,	  /* until the end, except during a snapshot */
	PHASE_SAVE_ASKED, /* NOTE_WANT_SAVE was sent */
	PHASE_SAVING,	  /* the snapshot is being made */
	PHASE_ENDING,	  /* the warden reads the keeper's last notes */
	NOTE_PHASES,
};

struct keeper_note {
	uint64_t kind, value;
};

/* Values of NOTE_LIFE and NOTE_LIFE_NOW. 0 leaves a setting as it is. The numbers are those of
 * the wire protocol (enum wire_on_timeout, enum wire_want). */
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
	LIFE_ALREADY,	 /* already paused or running: nothing is changed */
	LIFE_NO_FREEZER, /* the sandbox has no freezer */
	LIFE_TOO_LATE,	 /* the deadline would be after the ttl */
	LIFE_FAILED,	 /* the warden's log says why; nothing is changed */
	LIFE_RESULTS,
};

struct life_answer {
	enum life_result result;
	bool paused;
	uint64_t ms; /* the deadline, wall clock, 0: none; LIFE_TOO_LATE: the rest of the ttl */
};

/* Unpacking returns false for an invalid value. */
uint64_t life_order_pack(const struct life_order *o);
bool life_order_unpack(uint64_t value, struct life_order *ret);
uint64_t life_answer_pack(const struct life_answer *a);
bool life_answer_unpack(uint64_t value, struct life_answer *ret);

/* Packing caps numbers that do not fit. */
uint64_t met_pack(const struct met *m);
bool met_unpack(uint64_t value, struct met *ret);

/* A snapshot's name: 's' and 15 digits of base 36. */
enum {
	SAVE_NAME = 17,
};
void save_name(uint64_t number, char ret[static SAVE_NAME]);

enum {
	NOTE_FILES_MAX = 8,
	RECORDS_AT_START = 2,
	AUDIT_SYNC_MS = 1000, /* from NOTE_DIRTY to the sync; the minimum between two notes */
};

/* The sender keeps its files; the receiver owns those it gets. Only sending a note without files
 * may block. 0 or -errno; receiving: -EAGAIN, -EPIPE (the other process has ended), -EBADMSG. */
int note_send(int fd, enum note_kind kind, uint64_t value, const int *files, size_t n);
int note_receive(int fd, struct keeper_note *ret, int files[static NOTE_FILES_MAX], size_t *ret_n);

/* True if the table allows this note from `by` in that phase, with `n` files. */
bool note_may_come(const struct keeper_note *note, size_t n, enum note_sender by,
		   enum note_phase phase);

/* Receives a note and checks it against the table. Errors as note_receive(); -EBADMSG also for a
 * note that the table rejects. Its files are then closed. */
int note_take(int fd, enum note_sender by, enum note_phase phase, struct keeper_note *ret,
	      int files[static NOTE_FILES_MAX], size_t *ret_n);

/* Takes the files if it returns true. False: the note is wrong in a way the table cannot check. */
typedef bool note_handler(void *arg, uint64_t value, const int *files, size_t n);

/* Takes a note and calls its handler. Errors as note_take(); -EBADMSG also for a note without a
 * handler, or whose handler returns false. Its files are then closed. */
int note_dispatch(int fd, enum note_sender by, enum note_phase phase,
		  note_handler *const handlers[static NOTE_KINDS], void *arg);
