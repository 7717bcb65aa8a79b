/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker takes a socket of a sandbox with its destination and does everything in between:
 * policy, budgets, DNS lookup, check of every address, dialling, inspection of the first bytes, and
 * moving the rest. It logs nothing and knows no sandbox: it reports its decisions to the caller.
 */
#pragma once

#include "base/loop.h"
#include "egress/budget.h"
#include "names/match.h"

enum {
	BROKER_IDLE_MS = 600 * 1000,	   /* without a byte in either direction */
	BROKER_LIFE_MS = 24 * 3600 * 1000, /* lifetime of a stream */
	BROKER_PEEK_MS = 30 * 1000,	   /* for the first bytes of TLS or HTTP */
	BROKER_EARLY_MAX = 4096,	   /* bytes received along with a proxy request */
	BROKER_TAP_MS = 30 * 1000,	   /* for hutch-tap to take a connected stream */
	BROKER_LOOK_MS = 250,		   /* between looks at the bytes of tapped streams */
	BROKER_FEW_TAPPED = 256,	   /* with more, four times as long */
	BROKER_TAPPED_SETS = 1024,	   /* lists of tapped streams */
};

enum broker_what {
	BROKER_ALLOW, /* a stream starts */
	BROKER_DENY,  /* refused, no stream starts */
	BROKER_END,   /* an allowed stream has ended */
	BROKER_WHAT_MAX,
};

enum broker_reason {
	BROKER_OK,	     /* allowed; or closed by both sides */
	BROKER_RULES,	     /* no rule allows it, or a rule denies it */
	BROKER_ADDRESS,	     /* its address must not be dialled */
	BROKER_BUDGET,	     /* the detail names the budget */
	BROKER_LOOKUP,	     /* no address found */
	BROKER_DIAL,	     /* no address answered */
	BROKER_CONTENT,	     /* the first bytes name another host */
	BROKER_TIME,	     /* first bytes too late, idle, or open for too long */
	BROKER_POLICY,	     /* new rules no longer allow it */
	BROKER_RESET_INSIDE, /* reset by the sandbox's side */
	BROKER_RESET_OUTSIDE,
	BROKER_FAULT,	   /* out of memory or descriptors */
	BROKER_UNRECORDED, /* may_begin() returned false */
	BROKER_TAP,	   /* hutch-tap ended it: the detail says why */
	BROKER_STOPPED,
	BROKER_REASON_MAX,
};

struct broker_event {
	enum broker_what what;
	enum broker_reason reason;
	uint64_t stream; /* unique number, also for denied streams */
	const struct target *target;
	const struct addr *addr; /* connected, or tried first; NULL: nothing was dialled */
	const char *rule;	 /* the deciding rule, in policy syntax; "" for none */
	uint32_t rule_id;	 /* set if `rule` is */
	const char *detail; /* more about the reason; may hold bytes of the sandbox: escape it */
	uint64_t bytes_out, bytes_in;
	uint64_t ns; /* since the request */
	void *cookie;
};

/* A connected stream whose bytes hutch-tap moves. */
struct broker_handover {
	uint64_t stream;
	const struct target *target;
	enum rule_proto proto; /* that the policy requires */
	int client, server;    /* the broker's */
	const void *early;     /* first bytes of the client, already read */
	size_t n_early;
};

struct broker_ops {
	/* Called for every verdict and every end. Must not call the broker. */
	void (*report)(void *arg, const struct broker_event *ev);
	/* Called after report() of an ALLOW: may the stream start? NULL: yes. */
	bool (*may_begin)(void *arg);
	/*
	 * For proxy requests: called once, before the first byte (ok) or before `fd` is closed. May
	 * write an answer to `fd`, which the broker still owns.
	 */
	void (*reply)(void *arg, void *cookie, int fd, bool ok, enum broker_reason reason);
	/* Is hutch-tap to carry the stream? NULL: none. Asked once, for an allowed stream. */
	bool (*is_tapped)(void *arg, const struct target *t, enum rule_proto proto);
	/* Must streams that ask for this name be tapped? Asked if conf.has_tap. */
	bool (*is_name_tapped)(void *arg, const struct name *name);
	/*
	 * Passes both ends of a connected stream to hutch-tap, as duplicates. -EAGAIN: not now,
	 * call broker_offer() later; any other error ends the stream.
	 */
	int (*hand_over)(void *arg, const struct broker_handover *h);
};

struct broker_conf {
	struct loop *loop;
	const struct broker_ops *ops;
	void *arg;
	bool has_tap; /* some streams are tapped, so /tcp must not lead around that */
	struct budget_limits limits;
	const char *resolver; /* "ADDRESS:PORT" instead of /etc/resolv.conf; usually NULL */
	uint64_t idle_ms, life_ms, peek_ms; /* 0: the defaults above */
	/* An HTTP proxy for all streams; port 0: none. The proxy then resolves the names, so their
	 * addresses are not checked here. */
	struct target upstream;
};

struct broker_request {
	int fd; /* non-blocking; the broker owns it from now on */
	struct target target;
	bool proxy;	   /* call reply() */
	const void *early; /* bytes of the stream already read, at most BROKER_EARLY_MAX */
	size_t n_early;
	void *cookie;
};

struct broker;

/*
 * Takes ownership of `rules`. Opens files (resolv.conf), so call it before the process locks itself
 * down; all later calls open none.
 */
int broker_new(const struct broker_conf *c, struct ruleset *rules, struct broker **ret,
	       struct err *e);

/* Ends all streams and reports them. Must not be called from a callback. */
struct broker *broker_free(struct broker *b);

/* Handles a request; its result is reported, maybe before this returns. */
void broker_open(struct broker *b, const struct broker_request *req);

/* The sandbox's side has reset the stream with that cookie: ends and reports the stream, if it
 * exists. Must not be called from a callback. */
void broker_reset(struct broker *b, const void *cookie);

/* ---- streams that hutch-tap carries; not to be called from a callback ---- */

/* Calls hand_over() for the streams that wait for it. */
void broker_offer(struct broker *b);

/* hutch-tap has closed its ends of a stream. BROKER_OK or BROKER_TAP with a detail. */
void broker_tap_ended(struct broker *b, uint64_t stream, enum broker_reason reason,
		      const char *detail);

/* hutch-tap has ended, or did not start: ends all streams that it has or should get. */
void broker_tap_lost(struct broker *b, const char *detail);

/* The target of a tapped stream; NULL: there is no such stream. */
const struct target *broker_tapped(const struct broker *b, uint64_t stream);

/* Replaces the rules at once and takes ownership; streams that they do not allow are cut. */
void broker_set_rules(struct broker *b, struct ruleset *rules);

/* Returns the budget: limits left, and the number of streams. */
struct budget *broker_budget(struct broker *b);

const char *broker_what_name(enum broker_what i);
const char *broker_reason_text(enum broker_reason r);

static inline void cleanup_broker(struct broker **b)
{
	(void)broker_free(*b);
}

#define _cleanup_broker_ _cleanup_(cleanup_broker)
