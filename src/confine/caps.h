/* SPDX-License-Identifier: Apache-2.0 */
/* Capabilities of this process; a set is a bit mask. All functions return 0 or -errno. */
#pragma once

#include <linux/capability.h>
#include <stdint.h>

#define CAPS_BIT(capability) (UINT64_C(1) << (capability))

/* Removes all but `keep` from the bounding set. -EPERM without CAP_SETPCAP. */
int caps_bound(uint64_t keep);

/*
 * Permits exactly `keep`, all of them effective. None stays inheritable or ambient. -EPERM if one
 * of `keep` is not permitted now.
 */
int caps_only(uint64_t keep);

/* Limits the permitted set to `keep`, and the effective set to `use`. None stays inheritable, so
 * none ambient. */
int caps_limit(uint64_t keep, uint64_t use);

/* -EPERM if a capability outside `keep` is permitted, effective or inheritable. */
int caps_check(uint64_t keep);
