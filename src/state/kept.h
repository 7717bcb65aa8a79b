/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept sandboxes: ended/ID is the directory of an ended sandbox, moved from sandboxes/ID by one
 * rename after everything else is cleaned up and recorded. A kill leaves it in one place or the
 * other, and processes that have its files open continue to read.
 *
 *   ended/ID/kept    time of the end, size and owner: "TIME BYTES whole|cut OWNER"
 *   ended/ID.gone    a sandbox that is being removed
 *   ended/since      grows with each new sandbox; a trim empties it. Its size says whether a trim
 *                    is due; its flock is held during a trim
 *   ended/trimmed    its mtime is the time of the last trim
 *
 * Nothing here follows links. A damaged directory, whose files cannot be read, is still listed and
 * can be removed.
 */
#pragma once

#include "state/end.h"
#include "state/state.h"

struct kept {
	uint64_t time;	/* end of the sandbox: wall clock, ns */
	uint64_t bytes; /* on disk */
	bool cut;	/* its records were removed because they exceeded its owner's share */
	char owner[SPEC_OWNER_MAX + 1];
};

/*
 * Moves the directory of an ended sandbox to ended/. Called by its warden, as its last step, or by
 * the process that has claimed the sandbox. Returns 0 also if another process has moved it.
 */
int kept_move(const struct state_root *r, const char *id, int dir, struct err *e);

/* Opens a kept sandbox by its full id: a descriptor, -ENOENT, or -ELOOP or -ENOTDIR if damaged. */
int kept_open(const struct state_root *r, const char *id);

/* Reads the file `kept`; if it is unreadable, determines the values and rewrites it. */
int kept_read(int dir, struct kept *ret, struct err *e);

/* Were its records removed to make room? */
bool kept_is_cut(int dir);

/* Lists all ids, sorted; the caller frees the array. */
int kept_list(const struct state_root *r, char (**ret)[SPEC_ID + 1], size_t *ret_n, struct err *e);

/* Finds a kept sandbox by its id or a prefix of it, like state_find(). */
int kept_find(const struct state_root *r, const char *prefix, char ret_id[static SPEC_ID + 1],
	      int *ret_dir, struct err *e);

/* Removes a kept sandbox, even a damaged one. Returns 0 also if there is none, or -errno. */
int kept_remove(const struct state_root *r, const char *id);

/* ---- making room ---- */

struct kept_limits {
	uint64_t time;	 /* ns; older sandboxes are removed; 0: all, even damaged ones */
	uint64_t space;	 /* total bytes */
	uint64_t number; /* of kept sandboxes; 0: KEPT_NUMBER */
};

enum {
	KEPT_NUMBER = 10000,
};

/* Is a trim due? After many new sandboxes, after a minute if there are any, and every hour. */
bool kept_is_due(const struct state_root *r);

/*
 * Removes sandboxes that are too old. While the limits are still exceeded, removes the oldest
 * sandbox of the owner who has most, so that an owner within an equal share loses nothing to
 * others. A sandbox larger than its owner's share first loses its records. Calls `took` (may be
 * NULL) for each removed sandbox. Returns 0 without trimming if another process trims; with `wait`,
 * waits for that process and then trims.
 */
int kept_trim(const struct state_root *r, const struct kept_limits *limits, bool wait,
	      void (*took)(void *arg, const char *id), void *arg, struct err *e);
