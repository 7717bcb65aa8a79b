/* SPDX-License-Identifier: Apache-2.0 */
/* Relays: each joins a channel of a client's link to one of the guest's link. */
#pragma once

#include "keeper/clients.h"
#include "keeper/journal.h"

enum {
	RELAYS_EXEC = 256, /* commands: this and the next three are budgets of their own */
	RELAYS_ATTACH = 256,
	RELAYS_FILES = 128,  /* operations on files, and watches */
	RELAYS_PORT = 256,   /* connections to ports */
	RELAYS_PUBLIC = 192, /* of them, those that strangers may open */
	RELAYS_MAX = RELAYS_EXEC + RELAYS_ATTACH + RELAYS_FILES + RELAYS_PORT,
	PORT_IDLE_MS = 10 * 60 * 1000,
	PORT_QUIET_MS = 10 * 1000, /* then it makes room for another one */
};

/* One stream in one direction: what one side sent and the other did not take yet. */
struct flow {
	struct buf held; /* from `done` on; never more than the sender has credit for */
	size_t done;
	size_t owed;	/* gone on, and no credit given for it yet */
	size_t nobodys; /* of what is held: whoever sent it is not there any more */
	bool eof;	/* behind what is held */
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
 * Whoever may reach a port of a sandbox must not take the room that its owner needs to look at it,
 * copy files or end what runs. So each kind of relay has a budget that no other kind uses, and a
 * guest takes more jobs (JOBS_MAX) than all of them together. An attach is no job of the guest's.
 */
enum relay_kind {
	RELAY_EXEC,
	RELAY_ATTACH,
	RELAY_FILES,
	RELAY_PORT,
	RELAY_KINDS,
};

/* MSG exit of the guest; goes behind the output. */
struct relay_exit {
	bool came, sent;
	uint8_t bytes[EXIT_BYTES_MAX];
	size_t len;
};

/* How the guest's side ended; goes behind all the rest. */
struct relay_end {
	bool due;
	enum wire_code code;
	char text[WIRE_TEXT_MAX + 1];
};

/* The time limit of a command, or the idleness of a connection to a port. */
struct relay_clock {
	struct loop_timer timer;
	uint64_t limit; /* milliseconds */
	uint64_t left; /* ns of it, while the sandbox is paused; 0: the clock does not run anyway */
};

struct command;

struct relay {
	struct keeper *keeper;
	struct client *client;
	uint32_t client_ch, guest_ch; /* 0: closed on that side */
	struct client *input;
	uint32_t input_ch; /* where its input comes from; 0: from nowhere */
	enum wire_op op;
	bool public;		 /* a stranger has asked for it */
	bool in_place;		 /* counted in the budgets */
	uint64_t used;		 /* a connection to a port: when bytes went last */
	struct command *command; /* of an exec */
	bool adopted;		 /* it ran before, under another keeper */
	bool detached;		 /* its output goes to the record and to nobody else */
	bool has_input;
	struct buf open;      /* an exec that waits for a record */
	struct relay *target; /* of an attach */
	uint32_t pid;
	char request[WIRE_REQUEST_MAX + 1]; /* its id; "": none */
	struct flow flows[WAYS][WIRE_STREAMS];
	struct relay_exit exit;
	struct relay_end end;
	struct relay_clock clock;
	struct entry entry;
	struct relay *prev, *next;
};

struct relays {
	struct relay *list, *over;
	size_t n;		    /* in place: without those that have left (relay_leave) */
	size_t n_kind[RELAY_KINDS]; /* of them */
	size_t n_public;
	size_t held[RELAY_KINDS]; /* bytes, of all flows */
	bool starved;		  /* something is held because a link was full */
};

extern const struct link_ops relay_guest_ops;

/* A client's side; the hello callback is of clients.c. */
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

/* The client has gone. Its commands go on, without it. */
void relays_drop(struct keeper *k, const struct client *c);

/* The guest has gone: every relay is closed with what came before behind it. */
void relays_guest_gone(struct keeper *k);

/* Moves on what is held. True if something moved. */
bool relays_wake(struct keeper *k);
void relays_sweep(struct keeper *k);

/* Shows readers of records what this round has brought. */
void relays_publish(struct keeper *k);

/* There are files for records again, or (an error) there are none to be had. */
void relays_recordable(struct keeper *k, uint64_t error);
void relays_done(struct keeper *k);

/* The time limits of commands stand still, or go on, by k->life.paused. */
void relays_set_clocks(struct keeper *k);

/* ---- relay-adopt.c: commands of a machine that is saved, and of one that was ---- */

/* Writes down those that run. 0 or -errno. */
int adopt_write(const struct keeper *k, int list);

/* They end here, and will go on elsewhere: the machine has been suspended. */
void adopt_leave(struct keeper *k);

/* Takes those of k->adopt over, if there is such a list. */
void adopt_all(struct keeper *k);
