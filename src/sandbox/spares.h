/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of spares, from outside; state/spare-pool.h describes them. */
#pragma once

#include "sandbox/sandbox.h"
#include "state/spare-pool.h"

/* The key of the pool for a plan. `guest`: the path of hutch-guest. */
int spares_key(const struct spec *plan, const char *guest, char ret[static SPARE_KEY + 1],
	       struct err *e);

/* Starts a spare of this plan in the pool of that key: sandbox_start_spare(). */
typedef int spares_start_fn(const struct state_root *root, const struct spec *plan, const char *key,
			    struct err *e);

/* Sets the pool's size to `want` (1 to SPARES_MAX) and returns when it is full. Calls `say` before
 * each start. */
int spares_fill(const struct state_root *root, const struct spec *plan, unsigned int want,
		spares_start_fn *start, void (*say)(unsigned int there, unsigned int want),
		struct err *e);

/* The same for an existing pool, in a separate process, without waiting. */
void spares_refill_later(const char *key, spares_start_fn *start);

struct spares {
	char key[SPARE_KEY + 1];
	char agent[64], image[64];
	unsigned int there, want;
	enum level level;
};

/* All pools; the caller frees the array. */
int spares_list(const struct state_root *root, struct spares **ret, size_t *ret_n, struct err *e);

/* Ends the spares of a pool and removes it. */
int spares_drain(const struct state_root *root, const char *key, struct err *e);

/* Finds a spare in a pool whose directory the caller has locked (flock). 1, with its id and
 * directory; 0: none. Removes entries whose warden has ended. */
int spares_next(const struct state_root *root, int pool, char ret[static SPEC_ID + 1],
		int *ret_dir);

/* start.c */
spares_start_fn sandbox_start_spare;
