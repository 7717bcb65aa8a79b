/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas: limits for all sandboxes of one owner together. There are no counters: an owner's usage
 * is the sum over the sandboxes that name the owner in their spec and have not ended. So a place
 * becomes free however a sandbox ends, even if processes were killed. A template's build sandbox
 * ends with its builder (spec.once). A starting sandbox counts from the moment its spec is in its
 * directory; a paused or suspended one keeps its place. */
#pragma once

#include "state/state.h"

/* Checks whether `spec` (its api names the owner, its quota the limits) fits in addition to the
 * owner's sandboxes. On success, the caller holds *ret_lock until the spec is in its directory, so
 * that no other sandbox of this owner enters meanwhile. -EUSERS: it does not fit; the message is
 * for the owner. */
int quota_enter(const struct state_root *root, const struct spec *spec, int *ret_lock,
		struct err *e);

/* -EUSERS if `with` exceeds `most` (0: no limit); `has` is what `owner` uses now. */
int quota_compare(const char *owner, enum quota_kind kind, uint64_t most, uint64_t has,
		  uint64_t with, struct err *e);
