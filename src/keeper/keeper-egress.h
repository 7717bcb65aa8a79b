/* SPDX-License-Identifier: Apache-2.0 */
/* Egress of the sandbox: egress.c, egress-record.c, egress-change.c. */
#pragma once

#include "audit/audit.h"
#include "egress/broker.h"
#include "egress/capture.h"
#include "engine/engine.h"
#include "keeper/tap.h"
#include "names/narrow.h"
#include "wire/message.h"

struct client;
struct connection;
struct keeper;

enum {
	EGRESS_LIVE_MAX = 4096, /* rules added at run time */
};

struct egress {
	struct broker *broker;
	struct capture *capture;       /* NULL until the warden sends the sockets */
	struct ruleset *rules;	       /* for DNS queries; the broker has a copy */
	struct ruleset_entry *entries; /* the policy's rules, then added ones */
	size_t n_policy, n_live;
	struct narrow narrow; /* narrows all of them */
	bool restored;	      /* restored from a previous keeper */
	uint8_t key[SIPHASH_KEY];
	struct audit_tally tally;
	struct loop_timer tally_timer;
	struct tap tap;
	/* For guests that capture their own traffic: connect.c. */
	struct connection *connections, *over;
	size_t n_sockets; /* open sockets, without the broker's */
	size_t held;	  /* bytes from the guest, not yet sent */
	bool starved;	  /* reading stopped because the guest's link was full */
};

/* True if the guest captures its own traffic and asks the keeper for each stream. */
static inline bool egress_is_asked_for(const struct engine *e, const struct spec *s)
{
	return engine_has(e, ENGINE_OWN_KERNEL) && s->egress.allow.n > 0;
}

/* Opens files, so it must run before keeper_confine(). Does nothing if the policy allows
 * nothing. */
int egress_init(struct keeper *k, struct err *e);
void egress_done(struct keeper *k);

/* Starts the capture on the warden's sockets; `which` has a bit for each enum capture_socket.
 * Takes `files` if it returns true. */
bool egress_start(struct keeper *k, uint64_t which, const int *files, size_t n);

/* Builds a rule set from the policy's and the added rules, narrowed. */
int egress_make_rules(const struct egress *g, struct ruleset **ret);

/* ---- egress-record.c ---- */

/* Callbacks: the broker's reports, and the timer that records counted denials. */
void egress_on_report(void *arg, const struct broker_event *ev);
void egress_on_tally(struct loop_timer *t);

/* True if a rule allows the name; otherwise records the query as denied. */
bool egress_may_resolve(struct keeper *k, const struct name *name);

/* Records counted denials now, instead of at the end of the second. */
void egress_record_sums(struct keeper *k);

/* ---- egress-change.c ---- */

/* A client adds a rule or replaces the narrowing; effective at once. */
void egress_opened(struct client *c, uint32_t ch, const struct fields *f);

/* Saves the current rules for the keeper that continues the VM; that keeper restores them before
 * the guest runs. egress_restore() returns false if the guest must not run. */
int egress_save(const struct keeper *k, int fd);
bool egress_restore(struct keeper *k, int fd);

/* Records the restored rules in a fork's chain, which does not have them yet. */
void egress_record_restored(struct keeper *k);
