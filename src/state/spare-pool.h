/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spares: sandboxes that are started and verified, and wait for a request with the same plan. In
 * the run directory, beside sandboxes/:
 *
 *   pool/KEY/want          number of spares to keep; the process that fills up locks `filling`
 *   pool/KEY/spec.json     the plan; policy.json is its policy
 *   pool/KEY/ID            the socket of a spare's warden; it listens before it gets that name:
 *                          handover.h
 *
 * KEY is a hash of the plan without the owner's values: id, times, deadline, and the API's data. A
 * spare receives these values when it is taken (sandbox/start.c, keeper/spare.c). It is used once.
 */
#pragma once

#include "state/state.h"

enum {
	SPARE_KEY = 32, /* hex digits */
	SPARES_MAX = 256,
};

/* File in a spare's directory: the key of its pool. Written before the warden starts, removed when
 * the spare is taken. */
#define STATE_SPARE "spare"

bool spare_key_valid(const char *key);

/* Opens the directory of a pool, or of all pools (`key` NULL); `make` creates it. 0 or -errno. */
int spare_pool_open(const struct state_root *r, const char *key, bool make, int *ret_fd);
