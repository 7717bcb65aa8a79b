/* SPDX-License-Identifier: Apache-2.0 */
/* From HELLO to "go". */
#pragma once

#include "base/buf.h"

struct keeper;

/* The fields of HELLO; errors stay in `b`. */
void greet_put(const struct keeper *k, struct buf *b);

/* Says HELLO to a guest that runs, and waits for its own. 0 or -errno. */
int greet_guest(struct keeper *k);

/* The guest's HELLO, and its PONGs: a VM is ready when it knows the time. */
void keeper_ready(struct keeper *k, uint32_t landlock);
void keeper_heard(struct keeper *k, uint64_t token);

/* "go". `first`: a client that is there already, or -EBADF; it is taken over. */
void greet_clients(struct keeper *k, int first);
