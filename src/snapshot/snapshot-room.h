/* SPDX-License-Identifier: Apache-2.0 */
/* Limit on the disk space of snapshots: hutch-host(5). */
#pragma once

#include "snapshot/snapshot.h"

/* Checks that a snapshot of at most `need` bytes fits into `space`, which is for all of them.
 * -EDQUOT, with advice. */
int snapshot_room(int home, uint64_t space, uint64_t need, struct err *e);
