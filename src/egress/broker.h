/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker: takes a socket of a sandbox and what it wants to reach, and does all that stands
 * between: policy, budgets, the look-up, the check of every address, the dialling, the look at the
 * first bytes, and the moving of the rest. It logs nothing and knows no sandbox: what it decides it
 * reports.
 */
#pragma once

#include "budget.h"
#include "loop.h"
#include "match.h"

enum {
	BROKER_IDLE_MS = 600 * 1000,	   /* without a byte either way */
	BROKER_LIFE_MS = 24 * 3600 * 1000, /* of a stream */
	BROKER_PEEK_MS = 30 * 1000,	   /* for the first bytes of TLS or HTTP */
	BROKER_EARLY_MAX = 4096,	   /* bytes that came with a request of a proxy */
};

enum broker_what {
	BROKER_ALLOW, /* a stream begins */
	BROKER_DENY,  /* none does */
	BROKER_END,   /* a stream that was allowed has ended */
	BROKER_WHAT_MAX,
};

enum broker_reason {
	BROKER_OK,	     /* allowed; or ended by both sides */
	BROKER_RULES,	     /* no rule allows it, or one denies it */
	BROKER_ADDRESS,	     /* what it resolves to may not be dialled */
	BROKER_BUDGET,	     /* which one is in the detail */
	BROKER_LOOKUP,	     /* no address was found */
	BROKER_DIAL,	     /* nobody answered */
	BROKER_CONTENT,	     /* the first bytes ask for something else */
	BROKER_TIME,	     /* first bytes too late, idle, or too long in all */
	BROKER_POLICY,	     /* new rules do not allow it any more */
	BROKER_RESET_INSIDE, /* the sandbox's side reset it */
	BROKER_RESET_OUTSIDE,
	BROKER_FAULT,	   /* memory or descriptors ran out */
	BROKER_UNRECORDED, /* may_begin() said no */
	BROKER_STOPPED,
	BROKER_REASON_MAX,
};

struct broker_event {
	enum broker_what what;
	enum broker_reason reason;
	uint64_t stream; /* a number of its own, also for those denied */
	const struct target *target;
	const struct addr *addr; /* connected to, or tried first; NULL: nobody was dialled */
	const char *rule;	 /* the rule that decided, as a policy writes it; "" for none */
	uint32_t rule_id;	 /* its id, if there is one */
	const char *detail; /* more about the reason; may hold bytes of the sandbox: escape it */
	uint64_t bytes_out, bytes_in;
	uint64_t ns; /* since the request */
	void *cookie;
};

struct broker_ops {
	/* Every verdict and every end. Must not call the broker. */
	void (*report)(void *arg, const struct broker_event *ev);
	/* Behind the report of an ALLOW: may it be done? NULL: yes. */
	bool (*may_begin)(void *arg);
	/*
	 * For requests of proxies: once, before the first byte (ok) or before `fd` is closed. It
	 * may write an answer to `fd`, which stays the broker's.
	 */
	void (*reply)(void *arg, void *cookie, int fd, bool ok, enum broker_reason reason);
};

struct broker_conf {
	struct loop *loop;
	const struct broker_ops *ops;
	void *arg;
	struct budget_limits limits;
	const char *resolver; /* "ADDRESS:PORT" instead of /etc/resolv.conf; NULL as a rule */
	uint64_t idle_ms, life_ms, peek_ms; /* 0: the values above */
	/* An HTTP proxy through which every stream goes; port 0: none. Names are then looked up by
	 * the proxy, so the addresses that they have are not checked here. */
	struct target upstream;
};

struct broker_request {
	int fd; /* non-blocking; the broker's from now on */
	struct target target;
	bool proxy; /* reply() is called */
	const void
		*early; /* bytes of the stream that were read already, at most BROKER_EARLY_MAX */
	size_t n_early;
	void *cookie;
};

struct broker;

/*
 * Takes over `rules`. Opens files (resolv.conf): before the process locks itself down. All that is
 * done later needs no file.
 */
int broker_new(const struct broker_conf *c, struct ruleset *rules, struct broker **ret,
	       struct err *e);

/* Ends all streams and reports them. Not to be called from a callback. */
struct broker *broker_free(struct broker *b);

/* Takes a request; what becomes of it is reported, maybe before this returns. */
void broker_open(struct broker *b, const struct broker_request *req);

/* The sandbox's side has reset the stream with that cookie, if there is one: it ends, and is
 * reported. Not to be called from a callback. */
void broker_reset(struct broker *b, const void *cookie);

/* Other rules (which it takes over), at once: streams they do not allow are cut. */
void broker_set_rules(struct broker *b, struct ruleset *rules);

/* What is left of its limits, and how many streams there are. */
struct budget *broker_budget(struct broker *b);

const char *broker_what_name(enum broker_what w);
const char *broker_reason_text(enum broker_reason r);

static inline void cleanup_broker(struct broker **b)
{
	(void)broker_free(*b);
}

#define _cleanup_broker_ _cleanup_(cleanup_broker)
