/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the disk snapshots may take: hutch-host(5). */
#pragma once

#include "snapshot.h"

/* Whether one that needs that many bytes at most may be made. -EDQUOT, with what to do. */
int snapshot_room(uint64_t need, struct err *e);
