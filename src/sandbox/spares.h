/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of spares, from outside; what they are: state/spare-pool.h. */
#pragma once

#include "sandbox/sandbox.h"
#include "state/spare-pool.h"

/* Which pool a plan's spares are in. `guest`: the path of hutch-guest. */
int spares_key(const struct spec *plan, const char *guest, char ret[static SPARE_KEY + 1],
	       struct err *e);

/* Starts a sandbox of this plan that waits in the pool of that key: sandbox_start_spare(). */
typedef int spares_start_fn(const struct state_root *root, const struct spec *plan, const char *key,
			    struct err *e);

/* From now on there are to be `want` (1 to SPARES_MAX) spares of this plan. Returns when they are
 * there; `say` is told how many. */
int spares_fill(const struct state_root *root, const struct spec *plan, unsigned int want,
		spares_start_fn *start, void (*say)(unsigned int there, unsigned int want),
		struct err *e);

/* The same for an existing pool, in a process of its own that nobody waits for. */
void spares_refill_later(const char *key, spares_start_fn *start);

struct spares {
	char key[SPARE_KEY + 1];
	char agent[64], image[64];
	unsigned int there, want;
	enum level level;
};

/* All pools; the caller frees the array. */
int spares_list(const struct state_root *root, struct spares **ret, size_t *ret_n, struct err *e);

/* Ends the spares of a pool and forgets it. */
int spares_drain(const struct state_root *root, const char *key, struct err *e);

/* A spare of a pool, whose directory the caller has locked (flock): 1, its id and its directory; 0:
 * there is none. What is left of those whose warden has gone is taken away. */
int spares_next(const struct state_root *root, int pool, char ret[static SPEC_ID + 1],
		int *ret_dir);

/* start.c */
spares_start_fn sandbox_start_spare;
