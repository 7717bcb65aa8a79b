/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a sandbox as seen from outside: what hutch and hutchd do. Plan (policy and
 * image become a spec), start (a keeper), connect, commit, kill, look, reclaim.
 */
#pragma once

#include "base/proc.h"
#include "engine/cgroup.h"
#include "image/image-make.h"
#include "policy/policy.h"
#include "state/end.h"
#include "state/state.h"
#include "wire/wire.h"

struct sandbox_options {
	const char *agent;	      /* NULL: "default" */
	const char *image;	      /* NULL: the agent's own if it was built, else "base" */
	const char *resources[10][2]; /* "memory", "256MiB"; checked like a policy file's. NULL at
					the end */
	const char *level;	      /* at least this; NULL: as the policy says */
	const char *snapshot;	      /* to begin as; NULL: as the image */
	const char *user;	      /* NULL: the image's, or the guest's choice */
	const char *const *env;	      /* NAME=value, over the policy's; NULL-terminated, or NULL */
	const char *api;	      /* spec.api; NULL: "" */
	const char *const *narrow;    /* less than the policy lets out: names/narrow.h; or NULL */
	uint64_t deadline;	      /* ms; 0: none but the ttl */
	enum on_timeout on_timeout;
	bool once, remove;
	bool must_limit;  /* without a host that enforces the resources it does not start */
	bool best_effort; /* despite must_limit, it does; the receipt notes both */
};

/*
 * Compiles the policy (the agent's, with the resources of the command line on top) and finds the
 * image. Errors of the policy are in `d`. The result is spec_done()d by the caller; its id is ""
 * until sandbox_start().
 */
int sandbox_plan(struct policy_store *store, const struct sandbox_options *asked, struct diags *d,
		 struct spec *ret, struct err *e);

/* What the sandbox of that directory is held to now, as a plan for others. */
int sandbox_read_plan(int dir, struct spec *ret, struct err *e);

/* The absolute path of the hutch-guest that sandboxes are started with (PATH_MAX bytes). -ENOENT.
 */
int sandbox_find_guest(char ret[static 4096], struct err *e);

/* The disk of a container that runs, as df shows it inside. */
struct sandbox_disk {
	uint64_t total, used; /* bytes */
	bool full, inodes_full;
};

/* Of the sandbox with that directory. False: it is not known, and nothing is written. */
bool sandbox_disk(int dir, const struct spec *spec, struct sandbox_disk *ret);

/* A sandbox that has been found or started. */
struct sandbox {
	char id[SPEC_ID + 1];
	int dir;    /* its state directory */
	bool ended; /* it has, and this is what is kept of it: kept.h */
};

#define SANDBOX_INIT          \
	{                     \
		.dir = -EBADF \
	}
#define _cleanup_sandbox_ _cleanup_(sandbox_close)

/*
 * Starts a keeper and waits until the sandbox is ready, or has said why not. `ret_client`, if not
 * NULL, gets a connection that the keeper has from its beginning (for `once`). Reclaims what dead
 * ones left, if any.
 *
 * The keeper stays a child of the calling process, in a session of its own, and goes on after that
 * one's end. Nobody here waits for it: a caller that lives longer than its sandboxes gets SIGCHLD
 * and reaps (waitid with P_ALL). Nothing else depends on that: the warden's lock goes when it
 * ends, not when it is reaped.
 */
int sandbox_start(const struct state_root *root, const struct spec *spec, struct sandbox *ret,
		  int *ret_client, struct err *e);

/* By its id, or the beginning of it: of those that live, else of those that are kept. */
int sandbox_find(const struct state_root *root, const char *prefix, struct sandbox *ret,
		 struct err *e);
void sandbox_close(struct sandbox *s);

/* Connects to the keeper's socket. -ESRCH with a message that says how it ended, if it has. */
int sandbox_connect(const struct sandbox *s, int *ret_fd, struct err *e);

/*
 * widen.c: lets an allow rule, which the keeper has taken, through the keeper's guard as well, and
 * writes it down for the guard of the next run. Not by the keeper: what it may dial at most is not
 * its to say.
 */
int sandbox_widen(const struct state_root *root, const struct sandbox *s, const struct rule *rule,
		  struct err *e);

struct sandbox_commit {
	const char *name; /* of the image */
	struct image_config config;
	uint64_t max_bytes; /* of the archive; 0: twice the image and what the sandbox may write */
	struct image_reporter reporter;
};

/*
 * Makes an image of what the sandbox's file system is now. It goes on running: what it writes
 * meanwhile may be there or not. *ret_note says what was left out ("" if nothing): text from the
 * sandbox.
 */
int sandbox_commit(const struct sandbox *s, const struct sandbox_commit *c,
		   char ret_note[static ERR_MSG_MAX], struct image_done *ret, struct err *e);

enum {
	SANDBOX_SNAPSHOT = 64, /* a name, with its NUL */
};

/* Makes a snapshot of a machine that runs, and lets it go on, or, to be suspended, ends it. *ret is
 * its name. */
int sandbox_save(const struct sandbox *s, enum wire_save what_for,
		 char ret[static SANDBOX_SNAPSHOT], struct err *e);

/* Starts one again that is suspended, from its snapshot, which its warden removes then. If that
 * fails it stays as it was. */
int sandbox_resume(const struct state_root *root, const struct sandbox *b, uint64_t deadline,
		   struct err *e);

/* Puts back the directories of suspended sandboxes that a restart of the host has taken away. */
int sandbox_restore(const struct state_root *root, struct err *e);

/* -EBUSY if something that is saved begins with the image of that digest; who, and what to do. */
int sandbox_needs_image(const char *digest, struct err *e);

/* -EBUSY if a sandbox is suspended in that snapshot. */
int sandbox_needs_snapshot(const char *name, struct err *e);

/* Makes a plan one for a sandbox that begins as that snapshot. */
int sandbox_use_snapshot(const char *name, struct spec *plan, struct err *e);

/* Copies of a machine that runs: begin makes the snapshot, one starts a copy, end forgets it. */
struct sandbox_fork {
	struct spec plan;
	char snapshot[SANDBOX_SNAPSHOT];
	int held; /* while it is, no gc takes the snapshot */
};

#define SANDBOX_FORK_INIT       \
	{                       \
		.held = -EBADF, \
	}
int sandbox_fork_begin(const struct sandbox *s, struct sandbox_fork *ret, struct err *e);
/* `api`: what hutchd knows of the copy; "": nothing, and so not the original's tokens. */
int sandbox_fork_one(const struct state_root *root, const struct sandbox_fork *f, const char *api,
		     struct sandbox *ret, struct err *e);
void sandbox_fork_end(struct sandbox_fork *f);

/*
 * Ends it and waits until everything is given back; what is worth keeping is in ended/ then. `by`
 * says who asked for it, in words such as "uid 0", or is NULL. 0 also when it had ended before,
 * and when that could not be recorded: then *owed says why, and its directory must stay until a
 * sweep does it.
 */
int sandbox_kill(const struct state_root *root, const struct sandbox *s, const char *by,
		 struct err *owed, struct err *e);

/* Takes back what wardens that were killed left behind: processes, groups, directories. A dead one
 * without --rm becomes an ended one. Now and then makes room among those. */
int sandbox_reclaim(const struct state_root *root, struct err *e);

/* What sandbox_reclaim_all() took back. */
enum sandbox_left {
	LEFT_DEAD,     /* a sandbox whose warden was killed */
	LEFT_ENDED,    /* the record of one that had ended */
	LEFT_GROUP,    /* a control group without a sandbox */
	LEFT_IMAGE,    /* a tree of the image store that nobody works on, or that has no name */
	LEFT_SNAPSHOT, /* one that was not finished, or a template that nobody can use any more */
	LEFT_MEMORY,   /* of a template, kept for those who clone it: hold.h */
	LEFT_IDS,      /* ranges of ids that nobody has: the name is their number */
	LEFT_MAX,
};

struct sandbox_gc {
	void (*took)(void *arg, enum sandbox_left what, const char *name);
	void *arg;
	bool ended; /* all that is kept of sandboxes goes, not only what host.yaml says */
};

/* Takes back everything that has no living warden; what has ended is kept as host.yaml says. What
 * it took is told one by one; an error is the first of those met. */
int sandbox_reclaim_all(const struct state_root *root, const struct sandbox_gc *gc, struct err *e);
