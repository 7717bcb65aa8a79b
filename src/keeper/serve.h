/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the keeper process: one loop, one link to the guest, up to 64 to clients, and
 * relays between channels of the one and of the others.
 *
 * Nothing here is freed inside a callback. A client that has to go is marked, a relay that is over
 * is put aside, and keeper_round(), which runs after every round of the loop, clears away.
 */
#pragma once

#include <sodium.h>

#include "audit.h"
#include "broker.h"
#include "capture.h"
#include "keeper.h"
#include "link.h"
#include "loop.h"
#include "narrow.h"
#include "record.h"

enum {
	CLIENTS_MAX = 64,
	RELAYS_MAX = 256,		     /* as many jobs as a guest takes */
	CREDIT_STEP = WIRE_CREDIT_START / 4, /* given back at once, not for every line of output */
	HELD_MAX = 64 * 1024 * 1024,	     /* bytes on their way, of all relays together */
	INPUT_MAX = 256 * 1024,		     /* read at once */
	OUTPUT_STOPS_INPUT = LINK_OUT_MAX / 2, /* what one read asks for fits in the other half */
	GUEST_HELLO_MS = 20 * 1000,
	CLIENT_HELLO_MS = 10 * 1000,
	LAST_WORDS_MS = 1000, /* for what is left when the guest has gone: to read, to be read */
};

/* ---- port.c: a link on a descriptor ---- */

struct port {
	struct link *link;
	struct loop_fd src; /* not in a loop: somebody else moves the bytes */
};

/* Takes a non-blocking descriptor, which may be -EBADF; watched later, by port_watch(). */
int port_init(struct port *p, enum link_role role, const struct link_ops *ops, void *arg, int fd,
	      void (*cb)(struct loop_fd *src, uint32_t events));
int port_watch(struct port *p, struct loop *loop);
void port_done(struct port *p);

/* Reads once and feeds the link. 0; -EPIPE when it has ended; or the link's error. */
int port_read(struct port *p, struct err *e);

/* Writes what waits, as far as it goes. 0 or -errno. */
int port_flush(struct port *p);

/* Asks the loop for what is of use now: to be written if something waits, to be read if `input`. */
int port_want(struct port *p, bool input);

size_t port_waiting(const struct port *p);

/* ---- the keeper ---- */

struct client {
	struct keeper *keeper;
	struct port port;
	struct loop_timer deadline; /* for its HELLO */
	bool first;		    /* the one that a sandbox with `once` is for */
	bool gone;		    /* to be cleared away */
	bool heard_out;		    /* nothing more can be read from it */
	struct client *prev, *next;
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

/* ---- records.c: the files that commands are recorded in ---- */

struct command {
	struct keeper *keeper;
	struct record record;
	struct record_head head; /* until it is written */
	uint64_t room;		 /* bytes of the budget that it has */
	bool begun, over;
};

struct spare {
	uint64_t number;
	int fd;
};

struct ended {
	uint64_t number, size;
};

struct records {
	uint64_t limit;		/* blocks of a record */
	uint64_t budget, bytes; /* of all of them */
	struct spare spare[2 * NOTE_FILES_MAX];
	size_t n_spare;
	bool asked; /* for more */
	uint64_t invented;
	struct ended ended[RECORDS_MAX];
	size_t n_ended;
};

/* ---- journal.c: the sandbox's chain of the audit log ---- */

enum {
	JOURNAL_HASH = 32, /* BLAKE2b, bytes */
};

#define JOURNAL_HASHED (UINT64_C(64) << 20) /* bytes of what a client sends */

struct journal {
	struct audit_chain *chain; /* NULL, or without a file: the log is off */
	uint64_t operations;	   /* on files, so far */
	uint64_t lost;		   /* outcomes that could not be written */
	uint64_t dirty_until;	   /* the warden knows that there is something to sync */
	int error;		   /* of the last try */
	bool asked;		   /* for the next file */
};

/* ---- egress.c: what goes out ---- */

struct egress {
	struct broker *broker;
	struct capture *capture;       /* NULL until the warden has sent the sockets */
	struct ruleset *rules;	       /* for questions of DNS; the broker has the same */
	struct ruleset_entry *entries; /* of the policy, then those added since */
	size_t n_policy, n_live;
	struct narrow narrow; /* what is left of them all */
	uint8_t key[SIPHASH_KEY];
	struct audit_tally tally;
	struct loop_timer tally_timer;
};

/* ---- life.c: deadline, pause and resume ---- */

enum {
	LIFE_QUEUE = 32,
};

struct asked {
	struct client *client; /* NULL: nobody waits for the answer any more */
	uint32_t ch;
	uint64_t number; /* in the journal */
	struct life_order order;
};

struct life_queue {
	bool paused;
	const char *no_freezer;
	struct asked queue[LIFE_QUEUE]; /* of the warden; the oldest first */
	size_t n;
	uint64_t orders;
};

/* What a relay has in the journal. */
struct entry {
	bool open; /* its intent stands there, its outcome does not yet */
	uint64_t number, bytes;
	crypto_generichash_state hash; /* of what the client sends */
};

struct relay {
	struct keeper *keeper;
	struct client *client;
	uint32_t client_ch, guest_ch; /* 0: closed on that side */
	struct client *input;
	uint32_t input_ch; /* where its input comes from; 0: from nowhere */
	enum wire_op op;
	struct command *command; /* of an exec */
	bool detached;		 /* its output goes to the record and to nobody else */
	bool has_input;
	struct buf open;      /* an exec that waits for a record */
	struct relay *target; /* of an attach */
	uint32_t pid;
	struct flow flows[WAYS][WIRE_STREAMS];
	bool has_exit, sent_exit; /* MSG exit of the guest; goes behind the output */
	uint8_t exit[EXIT_BYTES_MAX];
	size_t exit_len;
	bool closing; /* the guest's side is over; code and text go behind all the rest */
	enum wire_code code;
	char text[WIRE_TEXT_MAX + 1];
	struct loop_timer timer;
	uint64_t limit; /* milliseconds */
	uint64_t left; /* ns of it, while the sandbox is paused; 0: the clock does not run anyway */
	struct entry entry;
	struct relay *prev, *next;
};

enum phase {
	PHASE_HELLO,   /* for the guest's HELLO */
	PHASE_WAITING, /* for "go" */
	PHASE_SERVING,
};

struct keeper {
	const struct spec *spec;
	const char **env; /* of the spec, by name */
	struct loop *loop;
	enum phase phase;
	struct port guest;
	uint32_t landlock;
	bool deaf; /* nothing more can be written to the guest */
	struct loop_fd warden, listener;
	int first_client; /* its descriptor, until it is served */
	struct loop_timer deadline, idle, accept_again;
	struct client *clients;
	size_t n_clients;
	bool had_client; /* the first one */
	struct life_queue life;
	struct records records;
	struct journal journal;
	struct egress *egress; /* NULL: the policy allows nothing */
	struct relay *relays, *over;
	size_t n_relays; /* with those that are over and not cleared away */
	size_t held;	 /* bytes, of all flows */
	bool starved;	 /* something is held because a link was full */
	bool ended;
	enum keeper_end end;
};

/* ---- serve.c ---- */

/*
 * Makes everything that serving needs, before isolate() forbids it; reads nothing. Takes the
 * descriptors of `s`, also when it fails; those may be -EBADF.
 */
int keeper_init(struct keeper *k, const struct keeper_start *s, struct err *e);
void keeper_done(struct keeper *k);
enum keeper_end keeper_serve(struct keeper *k);

/* Clears away, moves on what is held, writes. */
void keeper_round(struct keeper *k);

/* The keeper ends with the round; the first reason counts. */
void keeper_stop(struct keeper *k, enum keeper_end end);

/* For results of link_*() on the guest's link. -ESTALE, the channel is gone, is nothing. */
void keeper_check(struct keeper *k, int r);

/* From the guest's HELLO on. */
void keeper_ready(struct keeper *k, uint32_t landlock);

/* ---- clients.c ---- */

int clients_listen(struct keeper *k);
struct client *client_new(struct keeper *k, int fd); /* takes fd; NULL: closed, no memory */
void client_check(struct client *c, int r);	     /* as keeper_check() */
void clients_sweep(struct keeper *k);
void clients_done(struct keeper *k);
void idle_arm(struct keeper *k);

/* ---- relay.c, relay-open.c ---- */

extern const struct link_ops relay_guest_ops;

/* A client's side; the hello callback is of clients.c. */
void relay_opened(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f, void *arg);
void relay_client_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		       void *arg);
void relay_client_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg);
void relay_client_credit(struct link *l, uint32_t ch, unsigned int stream, void *arg);
void relay_client_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		      void *arg);
void relay_client_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg);

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

/* ---- records.c ---- */

void records_init(struct records *s, uint64_t output);
void records_done(struct records *s);

/* Makes `c` a record with a file. False: there is none yet, and more have been asked for. */
bool records_take(struct keeper *k, struct command *c);

/* Closes the file; it may be dropped from now on. */
void records_ended(struct keeper *k, struct command *c);

/* The warden's answer. Takes the files if it returns true. */
bool records_came(struct keeper *k, uint64_t first, const int *files, size_t n);
void records_refused(struct keeper *k, uint64_t error);

/* ---- command.c: what a command's record is told ---- */

/* The command that an exec asks for, without a file. NULL: no memory. */
struct command *command_new(struct keeper *k, const struct fields *f);
void command_free(struct command *c);

void command_asked(struct command *c); /* of the guest; it has a file now */
void command_runs(struct command *c, uint32_t pid);
void command_exited(struct command *c, const struct fields *f); /* MSG exit: it is over */

/* It is over. The first word on that counts. */
void command_over(struct command *c, enum record_how how, unsigned int value, const char *text);

/* ---- journal.c ---- */

/* Records what the guest is about to be asked for, `open`. On an error it must not be asked. */
int journal_begin(struct relay *r, const struct buf *open);

/* What a client sends along. */
void journal_data(struct relay *r, const void *data, size_t n);
void journal_signal(struct relay *r, uint64_t number);
void journal_limit(struct relay *r, const char *what);

/* What came of it; nothing if nothing was recorded. */
void journal_end(struct relay *r, enum wire_code code, const char *text);

/* Records something else: before it is done, or when it has happened. */
int journal_append(struct keeper *k, enum audit_kind kind, struct audit_payload *p);
void journal_outcome(struct keeper *k, enum audit_kind kind, struct audit_payload *p);
void journal_tally(struct keeper *k, struct audit_tally *t, struct audit_payload *scratch);

bool journal_is_on(const struct keeper *k);

/* Could the last record be written? Tries again if not. */
bool journal_works(struct keeper *k);

/* The warden's answer: the next file. Takes it if it returns true. */
bool journal_file(struct keeper *k, uint64_t number, const int *files, size_t n);

/* ---- egress.c ---- */

/* Before the keeper locks itself down: opens files. Nothing where the policy allows nothing. */
int egress_init(struct keeper *k, struct err *e);
void egress_done(struct keeper *k);

/* The sockets, by the bits of `which` (enum capture_socket). Takes them if it returns true. */
bool egress_start(struct keeper *k, uint64_t which, const int *files, size_t n);

/* A client adds a rule, which counts at once. */
void egress_opened(struct client *c, uint32_t ch, const struct fields *f);

/* ---- life.c ---- */

void life_opened(struct client *c, uint32_t ch, const struct fields *f);
void life_drop(const struct client *c, uint32_t ch); /* it has closed that channel; 0: all */
void life_refuse(struct client *c, uint32_t ch);     /* what nobody can do while it is paused */

/* The warden's answer; false if nobody has asked, or it is none. */
bool life_answered(struct keeper *k, uint64_t value);
void life_paused(struct keeper *k);

/* ---- merge.c: the policy's defaults in what a client asks for ---- */

/* The environment of the spec sorted by name; the caller frees it. NULL without memory. */
const char **merge_index(const struct spec *s);

/* The OPEN for the guest; errors stay in `b`, whose maximum is its size's. */
void merge_open(const struct keeper *k, enum wire_op op, const struct fields *f, struct buf *b);
