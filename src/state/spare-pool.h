/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spares: sandboxes that are ready and verified, and held there until somebody wants one that is
 * planned in the same way. Below the run directory, beside sandboxes/:
 *
 *   pool/KEY/want          how many there should be; `filling` is locked by who sees to that
 *   pool/KEY/spec.json     the plan, and policy.json what it is held to
 *   pool/KEY/ID            the socket of a spare's warden, which listens there from the moment it
 *                          has that name: handover.h
 *
 * KEY is a hash of the plan without what is its owner's: id, times, deadline, what the API noted.
 * A spare is told these when it is taken (sandbox/start.c, keeper/spare.c); it is used once.
 */
#pragma once

#include "state.h"

enum {
	SPARE_KEY = 32, /* hex digits */
	SPARES_MAX = 256,
};

/* Written into a sandbox's directory before its warden starts: the key of the pool that it is for.
 * It goes when the spare is taken. */
#define STATE_SPARE "spare"

bool spare_key_valid(const char *key);

/* The directory of a pool, or of all of them (`key` NULL); made if `make`. 0 or -errno. */
int spare_pool_open(const struct state_root *r, const char *key, bool make, int *ret_fd);
