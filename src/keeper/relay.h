/* SPDX-License-Identifier: Apache-2.0 */
/* Relays: each connects a channel of a client's link with one of the guest's link. */
#pragma once

#include "keeper/clients.h"
#include "keeper/filtering.h"
#include "keeper/journal.h"

enum {
	RELAYS_EXEC = 256, /* commands; each kind of relay has its own budget */
	RELAYS_ATTACH = 256,
	RELAYS_FILES = 128, /* file operations and watches */
	RELAYS_PORT = 256,
	RELAYS_PUBLIC = 192, /* connections to ports not requested by the owner, at most */
	RELAYS_MAX = RELAYS_EXEC + RELAYS_ATTACH + RELAYS_FILES + RELAYS_PORT,
	PORT_IDLE_MS = 10 * 60 * 1000,
	PORT_QUIET_MS = 10 * 1000, /* after that a quiet connection may be replaced */
};

/* One stream in one direction: bytes that one side sent and the other has not taken yet. */
struct flow {
	struct buf held; /* bytes from `done` on wait; never more than the sender's credit */
	size_t done;
	size_t owed;	 /* passed on, but credit not yet returned */
	size_t orphaned; /* held bytes whose sender has disconnected: they earn no credit */
	bool eof;	 /* EOF follows the held bytes */
};

enum way {
	TO_CLIENT,
	TO_GUEST,
	WAYS,
};

enum {
	EXIT_BYTES_MAX = 64
};

/*
 * Clients that only reach a port of a sandbox must not use up the room that its owner needs to
 * inspect it, copy files or end commands. So each kind of relay has its own budget, and the guest
 * accepts more jobs (JOBS_MAX) than all budgets together. An attach is not a job of the guest.
 */
enum relay_kind {
	RELAY_EXEC,
	RELAY_ATTACH,
	RELAY_FILES,
	RELAY_PORT,
	RELAY_KINDS,
};

/* The guest's MSG exit; sent after all output. */
struct relay_exit {
	bool came, sent;
	uint8_t bytes[EXIT_BYTES_MAX];
	size_t len;
};

/* How the guest's side ended; sent after everything else. */
struct relay_end {
	bool due;
	enum wire_code code;
	char text[WIRE_TEXT_MAX + 1];
};

/* The time limit of a command, or the idle timer of a connection to a port. */
struct relay_clock {
	struct loop_timer timer;
	uint64_t limit; /* milliseconds */
	uint64_t left;	/* remaining ns while the sandbox is paused; 0: the timer does not run */
};

struct command;

struct relay {
	struct keeper *keeper;
	struct client *client;
	uint32_t client_ch, guest_ch; /* 0: closed at that end */
	struct client *input;
	uint32_t input_ch; /* the channel its input comes from; 0: none */
	enum wire_op op;
	bool public;		 /* not requested by the owner */
	bool in_place;		 /* counted in the budget of its kind */
	uint64_t used;		 /* connections to ports: when bytes last moved */
	struct command *command; /* exec only */
	bool adopted;		 /* started under an earlier keeper */
	bool detached;		 /* output goes only to the record */
	bool has_input;
	struct buf open;      /* the request of an exec that waits for a record file */
	struct relay *target; /* attach only: the relay of the command */
	uint32_t pid;
	char request[WIRE_REQUEST_MAX + 1]; /* the request id, or "" */
	struct flow flows[WAYS][WIRE_STREAMS];
	struct relay_exit exit;
	struct relay_end end;
	struct relay_clock clock;
	struct filtered filtered;
	struct entry entry;
	struct relay *prev, *next;
};

struct relays {
	struct relay *list, *over;
	size_t n; /* relays counted in a budget (in_place) */
	size_t n_kind[RELAY_KINDS];
	size_t n_public;
	size_t held[RELAY_KINDS]; /* bytes held in all flows */
	bool starved;		  /* bytes are held because a link was full */
};

extern const struct link_ops relay_guest_ops;
extern const struct filtering_ops relay_filtering_ops;

/* Callbacks of a client's link; clients.c has the hello callback. */
void relay_client_opened(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
			 void *arg);
void relay_client_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		       void *arg);
void relay_client_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg);
void relay_client_credit(struct link *l, uint32_t ch, unsigned int stream, void *arg);
void relay_client_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		      void *arg);
void relay_client_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg);

const char *relay_request_of(struct link *l, uint32_t ch, void *arg); /* for trace lines */

/* The client disconnected. Its running commands continue without it. */
void relays_drop(struct keeper *k, const struct client *c);

/* The guest has ended: closes every relay, after the output that came before. */
void relays_guest_gone(struct keeper *k);

/* Passes on held bytes. True if any moved. */
bool relays_wake(struct keeper *k);
void relays_sweep(struct keeper *k);

/* Makes this round's output visible to readers of records. */
void relays_publish(struct keeper *k);

/* Record files came, or (an error) none can be made: starts or refuses waiting commands. */
void relays_recordable(struct keeper *k, uint64_t error);
void relays_done(struct keeper *k);

/* Stops or restarts the time limits of commands, by k->life.paused. */
void relays_set_clocks(struct keeper *k);

/* ---- relay-adopt.c: commands of a saved and of a resumed VM ---- */

/* Writes the list of running commands. 0 or -errno. */
int adopt_write(const struct keeper *k, int list);

/* Ends the relays of a suspended VM; its commands continue when it is resumed. */
void adopt_leave(struct keeper *k);

/* Takes over the commands of the list k->vm.adopt, if there is one. */
void adopt_all(struct keeper *k);
