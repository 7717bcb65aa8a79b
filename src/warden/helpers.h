/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that get values of the sandbox's secrets from the warden: hutch-tap, with the
 * budgets that it asks for, hutch-filter and hutch-token. */
#pragma once

#include <limits.h>

#include "base/buf.h"
#include "base/loop.h"
#include "base/proc.h"
#include "ledger/ledger.h"
#include "secret/secret.h"
#include "tap-link/tap-link.h"

struct warden;

/* Starting hutch-tap: tapping.c. Nothing of it is set if the policy needs no hutch-tap. */
struct tapping {
	char program[PATH_MAX];
	struct secret_store store;
	int changes;	    /* inotify: the store has changed */
	struct buf roots;   /* CAs trusted beside the host's own, PEM */
	struct buf ca, key; /* the sandbox's own CA, PEM */
	struct proc proc;   /* hutch-tap, or not running */
	int sock;	    /* to it */
	struct loop *loop;  /* NULL: `src` is not watched */
	struct loop_fd src; /* `sock`, if there are budgets */
	uint64_t started;   /* clock_mono() of the last start; 0: none */
};

/* A rule of `llm`, and the use of its budget: budgets.c. */
struct budget {
	struct ledger_counter limit; /* 0: none */
	char at[96];
};

struct budgets {
	struct budget rules[TAP_LLM_MAX];
	size_t n; /* 0: no rule has a budget */
	struct ledger ledger;
	struct budget_call *calls; /* reserved or waiting, the oldest first */
	size_t n_calls;
	bool is_shared; /* a fork or a snapshot of the sandbox has the ledger, too */
};

/* Starting hutch-filter: filtering.c. */
struct filtering {
	char program[PATH_MAX]; /* "": the policy needs none */
	struct proc proc;	/* hutch-filter, or not running */
	int sock;		/* to it */
	uint64_t started;	/* clock_mono() of the last start; 0: none */
};

/* Secrets that are refreshed: tokens.c. */
struct tokens {
	char program[PATH_MAX];		 /* "": missing */
	struct proc proc;		 /* hutch-token, or not running */
	int from;			 /* a pipe from it */
	struct buf text;		 /* its output so far */
	size_t which;			 /* the secret that is refreshed, or is due next */
	bool wanted;			 /* NOTE_WANT_TAP waits for a token */
	uint64_t retry[TAP_SECRETS_MAX]; /* clock_mono(), after a failure */
};

/*
 * tapping.c: hutch-tap, for a policy with secrets or rules on HTTP requests. tapping_begin() makes
 * the sandbox's CA; call it after warden_take_snapshots() and
 * before entering namespaces. tapping_start() answers NOTE_WANT_TAP.
 */
int tapping_begin(struct warden *w, struct err *e);
int tapping_save(const struct warden *w, int box, struct err *e); /* the CA, for a snapshot */
void tapping_start(struct warden *w);
bool tapping_changed(struct warden *w); /* `changes` is readable: passes on the new values;
					   true if there are any */
void tapping_refill(struct warden *w);	/* passes the values on again */
void tapping_used(struct warden *w, uint64_t secret);
void tapping_end(struct warden *w);

/* Appends {"NAME":"value",...} with the sandbox's secrets, for hutch-tap and hutch-filter. */
void tapping_put_values(const struct warden *w, struct buf *b);

/* The user id of hutch-tap and hutch-filter. */
uint32_t tapping_user(const struct warden *w);

/*
 * filtering.c: hutch-filter, for a policy with an output filter. Call warden_filter_begin() after
 * tapping_begin(), whose store has the values. warden_filter_start() answers NOTE_WANT_FILTER.
 */
int warden_filter_begin(struct warden *w, struct err *e);
void warden_filter_start(struct warden *w);
void warden_filter_refill(struct warden *w); /* passes the values of secrets on again */
void warden_filter_end(struct warden *w);

/*
 * budgets.c: budgets for language models. budgets_take() reads messages of hutch-tap and returns
 * false at its end, or after an invalid one. After budgets_drop(), calls in progress count as
 * reserved.
 */
int budgets_begin(struct warden *w, struct err *e); /* before entering namespaces */
bool budgets_take(struct warden *w);
void budgets_drop(struct warden *w);
void budgets_end(struct warden *w);

/*
 * tokens.c: refreshes tokens. tokens_next() returns when (clock_mono()) tokens_start() is due;
 * tokens.from is then a pipe. tokens_read() reads it and returns true at the end of hutch-token.
 * While tokens_must_wait(), a start of hutch-tap would have no token.
 */
void tokens_begin(struct warden *w);
bool tokens_must_wait(const struct warden *w);
uint64_t tokens_next(struct warden *w);
bool tokens_start(struct warden *w);
bool tokens_read(struct warden *w);
void tokens_close(struct warden *w); /* of tokens.from, after the end */
void tokens_end(struct warden *w);
