/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quotas: what one owner's sandboxes take together. Nothing is counted anywhere: what an owner has
 * are the sandboxes whose specs name it and that have not ended, so a place is free again however
 * one ends, and whoever was killed on the way. A sandbox in which a template is built ends with its
 * builder (spec.once), so it is none that stays. One that starts counts from the moment its spec
 * stands in its directory; one that is paused or suspended keeps its place.
 */
#pragma once

#include "state/state.h"

/*
 * Whether `spec` (its api names the owner, its quota the limits) fits beside what the owner has.
 * Then *ret_lock is to be held until its spec stands in a directory: no other sandbox of this owner
 * is let in meanwhile. -EUSERS: it does not fit; the text is for the owner.
 */
int quota_enter(const struct state_root *root, const struct spec *spec, int *ret_lock,
		struct err *e);

/* -EUSERS if `owner` has `has` of this kind, may have `most` (0: no limit), and would have `with`.
 */
int quota_compare(const char *owner, enum quota_kind kind, uint64_t most, uint64_t has,
		  uint64_t with, struct err *e);
