/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State is files: one directory per sandbox below $HUTCH_RUN_DIR (absolute), as root /run/hutch,
 * else $XDG_RUNTIME_DIR/hutch (without that, /tmp/hutch-UID, created 0700; its owner is checked).
 *
 *   sandboxes/ID/spec.json     the plan; exists before anything else starts
 *   sandboxes/ID/policy.json   the policy of the spec, exactly the bytes of its digest
 *   sandboxes/ID/lock          POSIX record lock of the living warden; disappears with that process
 *   sandboxes/ID/sock          the keeper's socket
 *   sandboxes/ID/receipt.json  exists once the sandbox runs
 *   sandboxes/ID/life.json     whether it is paused, and its deadline: life.h
 *   sandboxes/ID/cmd-N         the record of a command: record.h
 *   sandboxes/ID/end.json      exists after the end: when, why, which limits it reached
 *   sandboxes/ID/suspended     name of its snapshot: it is on disk, without a warden
 *   sandboxes/ID/widened       rules added for its keeper's dial guard, for its next run
 *   sandboxes/ID/spare         it is a spare without an owner: spare-pool.h
 *   sandboxes/ID/remove        remove it (--rm), after its client has read the end
 *   sandboxes/ID/killer        who requested its end: "uid 0", "key alice"
 *   sandboxes/ID/unsealed      it has ended, but the audit log was not writable: a sweep retries
 *   sandboxes/ID/log           stderr of its processes
 *   ended/ID                   the kept sandbox: kept.h
 *   ids/N                      flock of the warden that uses the N-th range of 65,536 ids (root
 *                              only)
 *
 * The process that creates a directory holds flock(LOCK_SH) on it. The warden inherits that
 * descriptor, so the lock is held without a gap. A process that reclaims takes LOCK_EX
 * (state_claim), and fails while the directory is in use.
 *
 * The kernel drops a process's POSIX locks on a file when the process closes *any* descriptor of
 * the file. The warden must therefore not open `lock` again: it must not call state_warden(),
 * state_phase() or state_claim().
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "state/spec.h"

enum {
	STATE_GROUP_MAX = 64,
};

struct state_root {
	char path[512]; /* for messages */
	char tag[40];	/* identifies the directory in names outside it: state_group() */
	int dir;	/* sandboxes/ */
	int ended;	/* ended/: kept.h */
	int ids;	/* ids/ */
};

#define STATE_ROOT_INIT                                        \
	{                                                      \
		.dir = -EBADF, .ended = -EBADF, .ids = -EBADF, \
	}
#define _cleanup_state_root_ _cleanup_(state_root_close)

/* Returns the path of the run directory, as state_root_open() finds it, without opening it. */
int state_root_path(char *out, size_t n, struct err *e);

/*
 * Opens the run directory and creates missing parts. -EPERM if others could write there. Call it
 * before entering a user namespace, where geteuid() is 0 for every user.
 */
int state_root_open(struct state_root *ret, struct err *e);
void state_root_close(struct state_root *r);

/*
 * Name of a sandbox's control groups: its id and the tag of its run directory. All sandboxes of a
 * host have their groups in one place, and a run directory may be a copy of another: the name shows
 * which groups a sweep may reclaim.
 */
const char *state_group(const struct state_root *r, const char *id,
			char out[static STATE_GROUP_MAX]);

/* The reverse: does a group belong to this run directory, and to which id? */
bool state_group_is_ours(const struct state_root *r, const char *group,
			 char ret_id[static SPEC_ID + 1]);

#define STATE_SUSPENDED "suspended"
#define STATE_REMOVE	"remove"
#define STATE_UNSEALED	"unsealed"
#define STATE_KILLER	"killer"
/* Allow rules that the operator has added at run time and that the dial guard lets through, one per
 * line. The keeper must not write it. */
#define STATE_WIDENED "widened"
enum {
	STATE_WIDENED_MAX = 4 * 1024 * 1024
};

/*
 * Replaces a file of a sandbox atomically. It does not sync: the run directory does not survive a
 * reboot, and starting a sandbox must not wait for the disk.
 */
int state_write(int dir, const char *name, const void *data, size_t n, struct err *e);

/*
 * Parses a JSON file of a sandbox, of at most `max` bytes, with `read`. -ENOENT means that the file
 * is missing, and never that a key is.
 */
int state_read(int dir, const char *name, size_t max,
	       int (*read)(const json_t *j, void *ret, struct err *e), void *ret, struct err *e);

/* Draws a random id. Returns 0 or -EIO. */
int state_draw_id(char id[static SPEC_ID + 1]);

/* Creates the directory of this id; *ret_dir holds flock(LOCK_SH). Returns 0 or -errno. */
int state_make(const struct state_root *r, const char *id, int *ret_dir);

/* Creates a directory with a random id; *ret_dir holds flock(LOCK_SH). */
int state_new(const struct state_root *r, char ret_id[static SPEC_ID + 1], int *ret_dir,
	      struct err *e);

/* Finds a sandbox by its id or a unique prefix of at least 2 characters. -ENOENT with advice
 * ("hutch ps -a"), -EINVAL for a malformed id, -ENOTUNIQ. */
int state_find(const struct state_root *r, const char *prefix, char ret_id[static SPEC_ID + 1],
	       int *ret_dir, struct err *e);

/* Lists all ids, sorted; the caller frees the array (one block). */
int state_list(const struct state_root *r, char (**ret)[SPEC_ID + 1], size_t *ret_n, struct err *e);

/* The same for any directory with one entry per sandbox; `what` is its name in messages. */
int state_find_in(int top, const char *what, const char *prefix, char ret_id[static SPEC_ID + 1],
		  int *ret_dir, struct err *e);
int state_list_in(int top, const char *what, char (**ret)[SPEC_ID + 1], size_t *ret_n,
		  struct err *e);

/* Takes the warden's lock, which is held until the process ends. -EBUSY if it is taken. */
int state_lock(int dir, int *ret_fd, struct err *e);

/* Returns a pidfd of the living warden, or -ESRCH. Checks the lock before and after pidfd_open(2),
 * so that a reused pid is never returned. */
int state_warden(int dir, int *ret_pidfd, pid_t *ret_pid);

enum state_phase {
	STATE_STARTING, /* being created, or being reclaimed at this moment */
	STATE_HELD,	/* a spare that waits for an owner */
	STATE_RUNNING,	/* the warden lives and receipt.json exists */
	STATE_PAUSED,	/* the same, and life.json says paused */
	STATE_STOPPED,	/* the same, and life.json says stopped: the host's disk is full */
	STATE_ON_DISK,	/* suspended: no warden; the file `suspended` names its snapshot */
	STATE_ENDED,	/* no warden; end.json exists */
	STATE_DEAD,	/* no warden and no end.json: the warden was killed; to be reclaimed */
};
enum state_phase state_phase(int dir);
/* Waits while the sandbox is in `phase`, at most until this time of clock_mono(). Returns the next
 * phase. */
enum state_phase state_wait(int dir, enum state_phase phase, uint64_t until);
/* Running, paused, stopped or suspended: it can be used, perhaps after a resume. */
bool state_phase_lives(enum state_phase phase);
/* Does the file `suspended` exist? It also does while the sandbox resumes or ends: see the phase.
 */
bool state_is_suspended(int dir);
extern const char *const state_phase_names[];

/*
 * Claims a sandbox to reclaim it: 0 if it is STATE_DEAD or STATE_ENDED, which then does not change
 * while *ret_fd is open. -EBUSY if its warden lives, or another process creates or reclaims it;
 * -ENOENT if it was removed.
 */
int state_claim(int dir, int *ret_fd);

/* Removes the directory of a sandbox and its files; it has no subdirectories. 0 or -errno. */
int state_remove(const struct state_root *r, const char *id);

/* For a warden as root: takes a free range of ids, held by *ret_fd; *ret is its first id. */
#define STATE_IDS_FIRST UINT32_C(0x70010000)
enum {
	STATE_IDS_MAX = 4095, /* ranges, below 2^31: some programs take higher ids for negative */
	STATE_IDS_SIZE = 65536,
};
/* The user id of the sandbox's hutch-tap: below all ranges, one for each. */
static inline uint32_t state_tap_id(uint32_t ids)
{
	return STATE_IDS_FIRST - STATE_IDS_SIZE + (ids - STATE_IDS_FIRST) / STATE_IDS_SIZE;
}
int state_take_ids(const struct state_root *r, uint32_t *ret, int *ret_fd, struct err *e);

/* Removes the files of unused ranges; *ret_n is their number. */
int state_clean_ids(const struct state_root *r, size_t *ret_n, struct err *e);

/*
 * Protects the image's tree at `root` from removal: *ret_fd holds a shared flock on its parent
 * directory; image_store_remove() needs an exclusive one. -ENOENT if the tree is gone.
 */
int state_lock_tree(const char *root, int *ret_fd, struct err *e);
