/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of sandboxes that have ended: ended/ID is the directory that was sandboxes/ID, moved
 * by one rename once everything else is given back and recorded. So names, places and lists are
 * free at once, a kill in the middle leaves the one or the other, and whoever has a file of it open
 * reads on.
 *
 *   ended/ID/kept    when it ended, its bytes and its owner: "TIME BYTES WHOLE|CUT OWNER"
 *   ended/ID.gone    one that is being removed
 *   ended/since      grows with each that comes in, and is emptied by whoever makes room: its size
 *                    says whether that is due, and its lock that somebody is at it
 *   ended/trimmed    written when room was last made
 *
 * Nothing here follows a link. A directory whose files cannot be read is damaged: it is listed, and
 * can be removed.
 */
#pragma once

#include "end.h"
#include "state.h"

struct kept {
	uint64_t time;	/* of its end: wall clock, ns */
	uint64_t bytes; /* on disk */
	bool cut;	/* its records were removed: they alone took more than its owner's share */
	char owner[SPEC_OWNER_MAX + 1];
};

/*
 * Moves the directory of a sandbox that has ended there. For its warden, as the last thing, or for
 * whoever has claimed it. 0 also if somebody else has done it.
 */
int kept_move(const struct state_root *r, const char *id, int dir, struct err *e);

/* Opens one by its whole id: a descriptor, -ENOENT, or -ELOOP, -ENOTDIR of one that is damaged. */
int kept_open(const struct state_root *r, const char *id);

/* As `kept` says; if that cannot be read, it is found out, and written anew. */
int kept_read(int dir, struct kept *ret, struct err *e);

/* Whether its records were removed to make room. */
bool kept_is_cut(int dir);

/* All ids that are there, sorted; the caller frees the array. */
int kept_list(const struct state_root *r, char (**ret)[SPEC_ID + 1], size_t *ret_n, struct err *e);

/* By its id or the beginning of it, as state_find(). */
int kept_find(const struct state_root *r, const char *prefix, char ret_id[static SPEC_ID + 1],
	      int *ret_dir, struct err *e);

/* Removes one, whatever it is. 0 also if there is none; -errno. */
int kept_remove(const struct state_root *r, const char *id);

/* ---- making room ---- */

struct kept_limits {
	uint64_t time;	 /* ns; older ones go; 0: all, whatever they are */
	uint64_t space;	 /* bytes of all together */
	uint64_t number; /* of all together; 0: KEPT_NUMBER */
};

enum {
	KEPT_NUMBER = 10000,
};

/* Whether it is time to: many have come in, or some and a minute has passed, or an hour. */
bool kept_is_due(const struct state_root *r);

/*
 * Removes what is too old, and then, while there is more than fits, the oldest of the owner who has
 * most: who has no more than an equal share loses nothing to others. Of one that is alone larger
 * than its owner's share, the records go first. `took`, if not NULL, hears of each. 0 also if
 * somebody else is at it; with `wait`, only after that.
 */
int kept_trim(const struct state_root *r, const struct kept_limits *limits, bool wait,
	      void (*took)(void *arg, const char *id), void *arg, struct err *e);
