/* SPDX-License-Identifier: Apache-2.0 */
/* The capabilities of this process. A set of them is a mask. All functions return 0 or -errno. */
#pragma once

#include <linux/capability.h>
#include <stdint.h>

#define CAPS_BIT(capability) (UINT64_C(1) << (capability))

/* Removes all but `keep` from the bounding set. -EPERM without CAP_SETPCAP. */
int caps_bound(uint64_t keep);

/*
 * Permits exactly `keep`, all of them in effect. None stays inheritable or ambient. -EPERM if one
 * of `keep` is not permitted now.
 */
int caps_only(uint64_t keep);

/* Keeps of the permitted ones those in `keep`, of which those in `use` are in effect. None stays
 * inheritable, and so none ambient. */
int caps_limit(uint64_t keep, uint64_t use);

/* -EPERM if any but `keep` is permitted, in effect or inheritable. */
int caps_check(uint64_t keep);
