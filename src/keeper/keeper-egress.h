/* SPDX-License-Identifier: Apache-2.0 */
/* What the sandbox sends out: egress.c, egress-record.c, egress-change.c. */
#pragma once

#include "audit/audit.h"
#include "egress/broker.h"
#include "egress/capture.h"
#include "engine/engine.h"
#include "names/narrow.h"
#include "wire/message.h"

struct client;
struct connection;
struct keeper;

enum {
	EGRESS_LIVE_MAX = 4096, /* rules that were added */
};

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

/* What is left of the policy's rules and those that were added since. */
int egress_make_rules(const struct egress *g, struct ruleset **ret);

/* ---- egress-record.c ---- */

/* The broker's reports, and the timer of the sums. */
void egress_on_report(void *arg, const struct broker_event *ev);
void egress_on_tally(struct loop_timer *t);

/* Does any rule allow that name? Records the question if not. */
bool egress_may_resolve(struct keeper *k, const struct name *name);

/* Records denials that were counted, without waiting for the end of the second. */
void egress_record_sums(struct keeper *k);

/* ---- egress-change.c ---- */

/* A client adds a rule, which counts at once. */
void egress_opened(struct client *c, uint32_t ch, const struct fields *f);

/* For the keeper that continues the machine, and by that one before the guest runs. False: it must
 * not run. */
int egress_save(const struct keeper *k, int fd);
bool egress_restore(struct keeper *k, int fd);

/* Of a copy, whose chain does not have them yet. */
void egress_record_restored(struct keeper *k);
