/* SPDX-License-Identifier: Apache-2.0 */
/* Greeting the guest: from HELLO to "go". */
#pragma once

#include "base/buf.h"

struct keeper;

/* The fields of HELLO; errors stay in `b`. */
void greet_put(const struct keeper *k, struct buf *b);

/* Sends HELLO to a running guest and starts the timeout for its answer. 0 or -errno. */
int greet_guest(struct keeper *k);

/* The guest's HELLO and PONG came. A VM is ready once its clock is set. */
void keeper_ready(struct keeper *k, uint32_t landlock);
void keeper_heard(struct keeper *k, uint64_t token);

/* The warden said "go": serves clients. Takes `first`, an already connected client, or -EBADF. */
void greet_clients(struct keeper *k, int first);
