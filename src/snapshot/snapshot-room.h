/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the disk snapshots may take: hutch-host(5). */
#pragma once

#include "snapshot.h"

/* Whether one that needs that many bytes at most may be made where `space` is for all of them.
 * -EDQUOT, with what to do. */
int snapshot_room(int home, uint64_t space, uint64_t need, struct err *e);
