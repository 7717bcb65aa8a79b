/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State is files: one directory a sandbox below $HUTCH_RUN_DIR (absolute), as root /run/hutch, else
 * $XDG_RUNTIME_DIR/hutch (without that, /tmp/hutch-UID, made 0700 and checked to be ours).
 *
 *   sandboxes/ID/spec.json     what it is to be; there before anything else starts
 *   sandboxes/ID/policy.json   the policy that the spec was made from, as its digest is of it
 *   sandboxes/ID/lock          a POSIX record lock held by the living warden: it goes exactly with
 *                              that process
 *   sandboxes/ID/sock          the keeper's socket
 *   sandboxes/ID/receipt.json  once it runs
 *   sandboxes/ID/life.json     whether it is paused, and its deadline: life.h
 *   sandboxes/ID/cmd-N         the record of a command: record.h
 *   sandboxes/ID/end.json      once it has ended: when, why, which limits it met
 *   sandboxes/ID/suspended     it is a snapshot of this name now: paused, and no warden lives
 *   sandboxes/ID/widened       rules that were added for its keeper's guard, for its next run
 *   sandboxes/ID/spare         it is one, and nobody's yet: spare-pool.h
 *   sandboxes/ID/remove        it was to be removed (--rm), but its client may read the end first
 *   sandboxes/ID/killer        who asked for its end, in words: "uid 0", "key alice"
 *   sandboxes/ID/unsealed      it has ended, but the audit log could not be written: a sweep does
 *   sandboxes/ID/log           what its processes said on stderr
 *   ended/ID                   what is kept of one that has ended: kept.h
 *   ids/N                      flock held by the warden that has the N-th range of 65,536 ids (root
 *                              only)
 *
 * Whoever makes a directory holds flock(LOCK_SH) on it, and so does the warden, which inherits the
 * descriptor: there is no moment between the two. Whoever takes it back wants LOCK_EX (state_claim)
 * and so leaves it alone.
 *
 * Of a process and a file, POSIX locks go when *any* descriptor of that file is closed: in the
 * warden nobody may open `lock` again, so state_warden(), state_phase() and state_claim() are not
 * for it.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "spec.h"

enum {
	STATE_GROUP_MAX = 64,
};

struct state_root {
	char path[512]; /* for messages */
	char tag[40];	/* which directory it is, for whatever is not kept in it */
	int dir;	/* sandboxes/ */
	int ended;	/* ended/: kept.h */
	int ids;	/* ids/ */
};

#define STATE_ROOT_INIT                                        \
	{                                                      \
		.dir = -EBADF, .ended = -EBADF, .ids = -EBADF, \
	}
#define _cleanup_state_root_ _cleanup_(state_root_close)

/* The path of the run directory, as state_root_open() finds it. Makes and opens nothing. */
int state_root_path(char *out, size_t n, struct err *e);

/* Makes what is missing; -EPERM if others could write there. To be called before a user namespace
 * is entered: there everybody is root. */
int state_root_open(struct state_root *ret, struct err *e);
void state_root_close(struct state_root *r);

/*
 * What the control groups of a sandbox are called: its id, and which run directory it belongs to.
 * All sandboxes of a host have their groups in one place, and a directory may be a copy of another:
 * whoever takes back knows by the name which are its own.
 */
const char *state_group(const struct state_root *r, const char *id,
			char out[static STATE_GROUP_MAX]);

/* The other way round: whether a group is of this directory, and of which id. */
bool state_group_is_ours(const struct state_root *r, const char *group,
			 char ret_id[static SPEC_ID + 1]);

#define STATE_SUSPENDED "suspended"
#define STATE_REMOVE	"remove"
#define STATE_UNSEALED	"unsealed"
#define STATE_KILLER	"killer"
/* Allow rules that the operator has added while it ran, a line each, and that the keeper's guard
 * lets through: not the keeper's to write. */
#define STATE_WIDENED "widened"
enum {
	STATE_WIDENED_MAX = 4 * 1024 * 1024
};

/* Writes a file of a sandbox: a reader sees the old contents or the new, whole. Nothing is synced
 * to a disk: a run directory does not outlive the boot, and starting a sandbox should not wait. */
int state_write(int dir, const char *name, const void *data, size_t n, struct err *e);

/*
 * Reads the JSON of a file of a sandbox, of at most `max` bytes, with `read`. -ENOENT means that
 * there is no such file, and never that something is missing in it.
 */
int state_read(int dir, const char *name, size_t max,
	       int (*read)(const json_t *j, void *ret, struct err *e), void *ret, struct err *e);

/* A random id. 0 or -EIO. */
int state_draw_id(char id[static SPEC_ID + 1]);

/* The directory of that id, made anew, with flock(LOCK_SH) held on *ret_dir. 0 or -errno. */
int state_make(const struct state_root *r, const char *id, int *ret_dir);

/* A new directory with a random id, flock(LOCK_SH) held on *ret_dir. */
int state_new(const struct state_root *r, char ret_id[static SPEC_ID + 1], int *ret_dir,
	      struct err *e);

/* Finds a sandbox by its id or the beginning of it (at least 2 letters, one match). -ENOENT with
 * advice ("hutch ps -a"), -EINVAL for what cannot be an id, -ENOTUNIQ. */
int state_find(const struct state_root *r, const char *prefix, char ret_id[static SPEC_ID + 1],
	       int *ret_dir, struct err *e);

/* All ids, sorted; the caller frees the array (one block). */
int state_list(const struct state_root *r, char (**ret)[SPEC_ID + 1], size_t *ret_n, struct err *e);

/* The same of any directory with a name for each sandbox; `what` it is, for messages. */
int state_find_in(int top, const char *what, const char *prefix, char ret_id[static SPEC_ID + 1],
		  int *ret_dir, struct err *e);
int state_list_in(int top, const char *what, char (**ret)[SPEC_ID + 1], size_t *ret_n,
		  struct err *e);

/* For the warden: takes the lock; keeps it until the process ends. -EBUSY if somebody has it. */
int state_lock(int dir, int *ret_fd, struct err *e);

/* The living warden: its pidfd, or -ESRCH. Checked twice around pidfd_open(2), so that it is never
 * another process. */
int state_warden(int dir, int *ret_pidfd, pid_t *ret_pid);

enum state_phase {
	STATE_STARTING, /* somebody makes it, or is taking it back right now */
	STATE_HELD,	/* a spare: it waits for somebody who wants it */
	STATE_RUNNING,	/* warden alive and receipt.json there */
	STATE_PAUSED,	/* the same, and life.json says so; or it is suspended */
	STATE_ENDED,	/* end.json there, nobody alive */
	STATE_DEAD,	/* nobody alive and no end.json: killed with -9, to be reclaimed */
};
enum state_phase state_phase(int dir);
/* Whether it names the snapshot that it is, or, while it is resumed or ends, was: see the phase. */
bool state_is_suspended(int dir);
extern const char *const state_phase_names[];

/* For one who takes back: 0 if it is STATE_DEAD or STATE_ENDED, and stays so while *ret_fd is open;
 * -EBUSY if somebody lives, makes it or takes it back; -ENOENT if it has been removed. */
int state_claim(int dir, int *ret_fd);

/* Removes the directory of a sandbox with all (flat) that is in it. 0 or -errno. */
int state_remove(const struct state_root *r, const char *id);

/* For the warden as root: a free range; *ret_fd holds it. First id of the range in *ret. */
#define STATE_IDS_FIRST UINT32_C(0x70010000)
enum {
	STATE_IDS_MAX =
		4095, /* ranges; all below 2^31, where some programs take ids for negative */
	STATE_IDS_SIZE = 65536,
};
int state_take_ids(const struct state_root *r, uint32_t *ret, int *ret_fd, struct err *e);

/* Removes the files of ranges that nobody has; how many. */
int state_clean_ids(const struct state_root *r, size_t *ret_n, struct err *e);

/* Keeps the image's tree at `root` from being removed: a shared flock on the directory that it
 * stands in, held by *ret_fd; image_store_remove() wants it alone. -ENOENT if it is gone. */
int state_lock_tree(const char *root, int *ret_fd, struct err *e);
