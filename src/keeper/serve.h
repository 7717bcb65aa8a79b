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
#include "engine.h"
#include "keeper.h"
#include "link.h"
#include "loop.h"
#include "narrow.h"
#include "record.h"
#include "trace.h"

enum {
	CLIENTS_MAX = 64,
	RELAYS_EXEC = 256, /* commands: this and the next three are budgets of their own */
	RELAYS_ATTACH = 256,
	RELAYS_FILES = 128,  /* operations on files, and watches */
	RELAYS_PORT = 256,   /* connections to ports */
	RELAYS_PUBLIC = 192, /* of them, those that strangers may open */
	PORT_IDLE_MS = 10 * 60 * 1000,
	PORT_QUIET_MS = 10 * 1000, /* then it makes room for another one */
	RELAYS_MAX = RELAYS_EXEC + RELAYS_ATTACH + RELAYS_FILES + RELAYS_PORT,
	CREDIT_STEP = WIRE_CREDIT_START / 4, /* given back at once, not for every line of output */
	/* Bytes on their way: of commands and of what goes out, of operations on files, of
	 * connections to ports, each together. */
	HELD_MAX = 64 * 1024 * 1024,
	HELD_FILES_MAX = 32 * 1024 * 1024,
	HELD_PORT_MAX = 32 * 1024 * 1024,
	INPUT_MAX = 4 * (WIRE_HEADER + WIRE_PAYLOAD_MAX), /* read at once: whole frames of DATA */
	OUTPUT_STOPS_INPUT = LINK_OUT_MAX / 2, /* what one read asks for fits in the other half */
	GUEST_HELLO_MS = 20 * 1000,
	MACHINE_HELLO_MS = 60 * 1000,
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

struct connection;

struct egress {
	struct broker *broker;
	struct capture *capture;       /* NULL until the warden has sent the sockets */
	struct ruleset *rules;	       /* for questions of DNS; the broker has the same */
	struct ruleset_entry *entries; /* of the policy, then those added since */
	size_t n_policy, n_live;
	struct narrow narrow; /* what is left of them all */
	bool restored;	      /* as another keeper has left them */
	uint8_t key[SIPHASH_KEY];
	struct audit_tally tally;
	struct loop_timer tally_timer;
	/* Of a guest that catches what goes out itself: connect.c. */
	struct connection *connections, *over;
	size_t n_sockets; /* of ours, not the broker's */
	size_t held;	  /* bytes of the guest's that wait to go out */
	bool starved;	  /* something is not read because the guest's link was full */
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

/* ---- save.c: snapshots ---- */

struct save {
	bool active; /* somebody wants one */
	bool begun;  /* the guest was told */
	bool failed;
	enum wire_save what_for;
	struct client *client; /* NULL: it has gone */
	uint32_t ch;
	uint64_t number, orders; /* in the journal */
	int file;		 /* for the VM's state */
	int list;		 /* for what runs */
	int rules; /* for what may go out; -EBADF: it is kept, and nobody continues it */
	char name[SAVE_NAME];
	struct loop_timer timer;
};

/* ---- tracing.c: trace lines for clients ---- */

enum {
	TRACE_READERS_MAX = 8,
};

struct trace_reader {
	struct client *client;
	uint32_t ch;
	uint64_t lost; /* lines that found no room, since the last that did */
};

struct tracing {
	struct trace_reader readers[TRACE_READERS_MAX];
	size_t n;
	uint32_t guest_ch;   /* that the guest's lines come on; 0: none */
	struct loop_fd pipe; /* that the warden's come by */
	bool piped;
	struct trace_lines guest, warden;
	uint64_t window, guest_lost; /* of the guest: this second's beginning, and those dropped */
	unsigned int in_window;
};

/* What a relay has in the journal. */
struct entry {
	bool open; /* its intent stands there, its outcome does not yet */
	uint64_t number, bytes;
	crypto_generichash_state hash; /* of what the client sends */
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
	const struct engine *engine;
	const char **env; /* of the spec, by name */
	struct loop *loop;
	enum phase phase;
	struct port guest;
	uint32_t landlock;
	uint64_t told_at; /* when a machine was told the time; 0: it has heard it */
	uint64_t told_last;
	unsigned int tellings;
	bool deaf; /* nothing more can be written to the guest */
	struct loop_fd warden, listener;
	bool once; /* it ends with its first client */
	struct loop_timer deadline, idle, accept_again;
	struct client *clients;
	size_t n_clients;
	bool had_client; /* the first one */
	struct life_queue life;
	struct records records;
	struct journal journal;
	int monitor_fd;		  /* until the monitor takes it */
	struct monitor *monitor;  /* NULL: the engine has none */
	const char *no_snapshots; /* why none can be made; "" */
	int adopt;		  /* the list of commands to be taken over, until "go" */
	struct save save;
	struct tracing tracing;
	struct {
		struct met now;
		bool changed, waiting; /* since the warden was told; to tell it again */
		struct loop_timer again;
	} met;
	struct egress *egress; /* NULL: the policy allows nothing */
	struct relay *relays, *over;
	size_t n_relays;	    /* in place: without those that have left (relay_leave) */
	size_t n_kind[RELAY_KINDS]; /* of them */
	size_t n_public;
	size_t held[RELAY_KINDS]; /* bytes, of all flows */
	bool starved;		  /* something is held because a link was full */
	bool ended;
	enum keeper_end end;
};

/* ---- serve.c ---- */

/*
 * Makes everything that serving needs, before keeper_confine() forbids it; reads nothing. Takes the
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

/* Lets a machine go on, with a new seed and the time; and its PONG. */
void keeper_wake(struct keeper *k);
void keeper_heard(struct keeper *k, uint64_t token);

/* From the guest's HELLO on. */
void keeper_ready(struct keeper *k, uint32_t landlock);

/* ---- met.c ---- */

/* A guest's WIRE_MSG_LIMIT. False if it is not for it to say. */
bool met_said(struct keeper *k, const struct fields *f);
void met_done(struct keeper *k); /* the last word goes to the warden */

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
struct command *command_adopted(struct keeper *k, const struct record_head *was);
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

/* Does the guest itself catch what goes out, and ask for it? */
static inline bool egress_is_asked_for(const struct engine *e, const struct spec *s)
{
	return engine_has(e, ENGINE_OWN_KERNEL) && s->egress.allow.n > 0;
}

/* Before the keeper locks itself down: opens files. Nothing where the policy allows nothing. */
int egress_init(struct keeper *k, struct err *e);
void egress_done(struct keeper *k);

/* The sockets, by the bits of `which` (enum capture_socket). Takes them if it returns true. */
bool egress_start(struct keeper *k, uint64_t which, const int *files, size_t n);

/* Does any rule allow that name? Records the question if not. */
bool egress_may_resolve(struct keeper *k, const struct name *name);

/* Records denials that were counted, without waiting for the end of the second. */
void egress_record_sums(struct keeper *k);

/* What is left of the policy's rules and those that were added since. */
int egress_make_rules(const struct egress *g, struct ruleset **ret);

/* ---- egress-change.c ---- */

enum {
	EGRESS_LIVE_MAX = 4096, /* rules that were added */
};

/* A client adds a rule, which counts at once. */
void egress_opened(struct client *c, uint32_t ch, const struct fields *f);

/* For the keeper that continues the machine, and by that one before the guest runs. False: it must
 * not run. */
int egress_save(const struct keeper *k, int fd);
bool egress_restore(struct keeper *k, int fd);

/* Of a copy, whose chain does not have them yet. */
void egress_record_restored(struct keeper *k);

/* ---- connect.c: what a guest with its own kernel asks for ---- */

/* Is that a channel of the guest's own? The keeper's have even numbers. */
static inline bool guest_opened(uint32_t ch)
{
	return ch % 2 != 0;
}

/* What the link says about such channels. */
void connection_opened(struct keeper *k, uint32_t ch, enum wire_op op, const struct fields *f);
void connection_data(struct keeper *k, uint32_t ch, unsigned int stream, const void *data,
		     size_t n);
void connection_eof(struct keeper *k, uint32_t ch, unsigned int stream);
void connection_credit(struct keeper *k, uint32_t ch, unsigned int stream);
void connection_closed(struct keeper *k, uint32_t ch, const struct fields *f);

/* What the broker says; its cookies are connections. */
void connection_reported(const struct broker_event *ev);
void connection_reply(void *arg, void *cookie, int fd, bool ok, enum broker_reason reason);

/* There is room in the guest's link again: reads on. */
void connections_wake(struct keeper *k);
void connections_sweep(struct keeper *k);

/* What is left of them when the broker has been freed. */
void connections_done(struct keeper *k);

/* ---- life.c ---- */

void life_opened(struct client *c, uint32_t ch, const struct fields *f);
void life_drop(const struct client *c, uint32_t ch); /* it has closed that channel; 0: all */
void life_refuse(struct client *c, uint32_t ch);     /* what nobody can do while it is paused */

/* The warden's answer; false if nobody has asked, or it is none. */
bool life_answered(struct keeper *k, uint64_t value);
void life_paused(struct keeper *k);

/* ---- save.c ---- */

void save_opened(struct client *c, uint32_t ch, const struct fields *f);
void save_at_deadline(struct keeper *k);
void save_drop(const struct client *c, uint32_t ch); /* it has closed that channel; 0: all */
void save_asleep(struct keeper *k);		     /* the guest has fallen asleep */
void save_guest_gone(struct keeper *k);		     /* whoever waits for one is told */
void save_done(struct keeper *k);

/* The warden's answers: a file, or none; the snapshot's number, or 0. False: out of turn. */
bool save_begin(struct keeper *k, const int *files, size_t n);
bool save_finished(struct keeper *k, uint64_t number);

/* ---- tracing.c ---- */

void tracing_opened(struct client *c, uint32_t ch);
void tracing_drop(const struct client *c, uint32_t ch); /* it has closed that channel; 0: all */
void tracing_hello(struct keeper *k);  /* HELLO is sent: during a start the guest is asked too */
void tracing_served(struct keeper *k); /* the start is over */
void tracing_done(struct keeper *k);

/* The guest's lines. False: not on their channel. */
bool tracing_guest_data(struct keeper *k, uint32_t ch, const void *data, size_t n);
void tracing_guest_closed(struct keeper *k, uint32_t ch);

/* The warden's answer: a pipe. Takes it if it returns true. */
bool tracing_warden(struct keeper *k, const int *files, size_t n);

/* The keeper ends: passes on what the warden has written so far. It says why before it kills, but
 * its pipe may have come together with the end of the guest. */
void tracing_last(struct keeper *k);

/* ---- merge.c: the policy's defaults in what a client asks for ---- */

/* The environment of the spec sorted by name; the caller frees it. NULL without memory. */
const char **merge_index(const struct spec *s);

/* The OPEN for the guest; errors stay in `b`, whose maximum is its size's. */
void merge_open(const struct keeper *k, enum wire_op op, const struct fields *f, struct buf *b);
