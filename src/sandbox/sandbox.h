/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a sandbox as seen from outside, for hutch and hutchd: plan (make a spec of policy and
 * image), start (a keeper), connect, commit, kill, inspect, reclaim. */
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
	const char *resources[10][2]; /* "memory", "256MiB", as in a policy; ends with NULL */
	const char *level;	      /* minimum; NULL: the policy's */
	const char *snapshot;	      /* to start from; NULL: from the image */
	const char *user;	      /* NULL: the image's, or the guest's choice */
	const char *const *env;	      /* NAME=value, over the policy's; NULL-terminated, or NULL */
	const char *api;	      /* spec.api; NULL: "" */
	const char *const *narrow;    /* restricts the policy's egress: names/narrow.h; or NULL */
	uint64_t deadline;	      /* ms; 0: none but the ttl */
	enum on_timeout on_timeout;
	bool once, remove;
	bool must_limit;  /* fail if the host cannot enforce the resources */
	bool best_effort; /* start despite must_limit; the receipt notes both */
};

/* Compiles the policy (the agent's, overridden by the command line's resources) and finds the
 * image. `d` gets errors of the policy. The caller calls spec_done() on the result; its id is ""
 * until sandbox_start(). */
int sandbox_plan(struct policy_store *store, const struct sandbox_options *asked, struct diags *d,
		 struct spec *ret, struct err *e);

/* -EINVAL if one of `n` NAME=value sets the variable of a secret, which holds a placeholder. */
int sandbox_check_env(const struct spec *s, const char *const *env, size_t n, struct err *e);

/* Reads the current spec of the sandbox with that directory, as a plan for other sandboxes. */
int sandbox_read_plan(int dir, struct spec *ret, struct err *e);

/* The absolute path of the hutch-guest that sandboxes start with (PATH_MAX bytes). -ENOENT. */
int sandbox_find_guest(char ret[static 4096], struct err *e);

/* The same for hutch-tap or hutch-token. */
int sandbox_find_program(const char *name, char ret[static 4096], struct err *e);

/* The disk of a running container, as df shows it inside. */
struct sandbox_disk {
	uint64_t total, used; /* bytes */
	bool full, inodes_full;
};

/* Measures the sandbox with that directory. False: unknown, *ret is unchanged. */
bool sandbox_disk(int dir, const struct spec *spec, struct sandbox_disk *ret);

/* A sandbox that was found or started. */
struct sandbox {
	char id[SPEC_ID + 1];
	int dir;    /* its state directory */
	bool ended; /* ended; `dir` is the kept directory: kept.h */
};

#define SANDBOX_INIT          \
	{                     \
		.dir = -EBADF \
	}
#define _cleanup_sandbox_ _cleanup_(sandbox_close)

/* Starts a keeper and waits until the sandbox is ready or has failed. `ret_client`, if not NULL,
 * gets a connection that the keeper has from its beginning (for `once`). Reclaims dead sandboxes
 * first.
 *
 * The keeper stays a child of the calling process, in its own session, and outlives it. No function
 * here waits for it: a caller that outlives its sandboxes gets SIGCHLD and must reap them (waitid
 * with P_ALL). Nothing else depends on that: the warden's lock is released when it ends, not when
 * it is reaped. */
int sandbox_start(const struct state_root *root, const struct spec *spec, struct sandbox *ret,
		  int *ret_client, struct err *e);

/* Finds a sandbox by id or id prefix, among the existing ones first, then among the kept ones. */
int sandbox_find(const struct state_root *root, const char *prefix, struct sandbox *ret,
		 struct err *e);
void sandbox_close(struct sandbox *s);

/* Connects to the keeper's socket. -ESRCH if the sandbox has ended; the message says how. */
int sandbox_connect(const struct sandbox *s, int *ret_fd, struct err *e);

/* widen.c: adds an allow rule, which the keeper has accepted, to the keeper's dial guard, and saves
 * it for the guard of the next run. The keeper cannot do that: it must not extend its own guard. */
int sandbox_widen(const struct state_root *root, const struct sandbox *s, const struct rule *rule,
		  struct err *e);

struct sandbox_commit {
	const char *name; /* name of the image */
	struct image_config config;
	uint64_t max_bytes; /* limit of the archive; 0: twice the image plus the disk */
	struct image_reporter reporter;
};

/* Makes an image of the sandbox's current file system. The sandbox keeps running: the image may or
 * may not contain its writes in the meantime. *ret_note, text from the sandbox, says what was left
 * out ("" if nothing). */
int sandbox_commit(const struct sandbox *s, const struct sandbox_commit *c,
		   char ret_note[static ERR_MSG_MAX], struct image_done *ret, struct err *e);

enum {
	SANDBOX_SNAPSHOT = 64, /* name size, with its NUL */
};

/* Makes a snapshot of a running VM, which then continues or, for suspend, ends. *ret is the
 * snapshot's name. */
int sandbox_save(const struct sandbox *s, enum wire_save what_for,
		 char ret[static SANDBOX_SNAPSHOT], struct err *e);

/* Starts a suspended sandbox from its snapshot, which the warden then removes. On failure the
 * sandbox stays suspended. */
int sandbox_resume(const struct state_root *root, const struct sandbox *b, uint64_t deadline,
		   struct err *e);

/* Restores the directories of suspended sandboxes after a restart of the host has removed them. */
int sandbox_restore(const struct state_root *root, struct err *e);

/* -EBUSY if a sandbox or a saved VM needs the image of that digest; the message names it and what
 * to do. */
int sandbox_needs_image(const char *digest, struct err *e);

/* -EBUSY if a sandbox is suspended in that snapshot. */
int sandbox_needs_snapshot(const char *name, struct err *e);

/* Changes a plan so that its sandbox starts from that snapshot. */
int sandbox_use_snapshot(const char *name, struct spec *plan, struct err *e);

/* Forks of a running VM: begin makes the snapshot, one starts a copy, end removes the snapshot. */
struct sandbox_fork {
	struct spec plan;
	char snapshot[SANDBOX_SNAPSHOT];
	int held; /* lock that keeps gc from the snapshot */
};

#define SANDBOX_FORK_INIT       \
	{                       \
		.held = -EBADF, \
	}
int sandbox_fork_begin(const struct sandbox *s, struct sandbox_fork *ret, struct err *e);
/* `api`: hutchd's data about the copy; "": none, and so not the original's tokens. */
int sandbox_fork_one(const struct state_root *root, const struct sandbox_fork *f, const char *api,
		     struct sandbox *ret, struct err *e);
void sandbox_fork_end(struct sandbox_fork *f);

/* Ends a sandbox and waits until its resources are released; its files are then in ended/, if they
 * are kept. `by` names who asked, such as "uid 0", or is NULL. 0 also if it had ended before, or if
 * the end could not be recorded: then *owed says why, and the directory must stay until a sweep
 * records it. */
int sandbox_kill(const struct state_root *root, const struct sandbox *s, const char *by,
		 struct err *owed, struct err *e);

/* Reclaims what killed wardens left behind: processes, groups, directories. A dead sandbox without
 * --rm becomes an ended one. Sometimes deletes old ended ones. */
int sandbox_reclaim(const struct state_root *root, struct err *e);

/* The kinds of things that sandbox_reclaim_all() reclaims. */
enum sandbox_left {
	LEFT_DEAD,     /* a sandbox whose warden was killed */
	LEFT_ENDED,    /* the directory of an ended sandbox */
	LEFT_GROUP,    /* a control group without a sandbox */
	LEFT_IMAGE,    /* an unused or unnamed tree of the image store */
	LEFT_SNAPSHOT, /* an unfinished snapshot or an unusable template */
	LEFT_LEDGER,   /* the use of a budget that no sandbox and no snapshot continues */
	LEFT_IDS,      /* unused id ranges: `name` is their number */
	LEFT_MAX,
};

struct sandbox_gc {
	void (*took)(void *arg, enum sandbox_left what, const char *name);
	void *arg;
	bool ended; /* delete all ended sandboxes, not only by host.yaml */
};

/* Reclaims everything without a living warden; keeps ended sandboxes by host.yaml. Calls `took` for
 * each item; returns the first error. */
int sandbox_reclaim_all(const struct state_root *root, const struct sandbox_gc *gc, struct err *e);
