/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a VM, and the seed of its random numbers. */
#pragma once

#include "base/buf.h"

struct keeper;

struct guest_clock {
	uint64_t ping_sent; /* when the last PING was sent, which is its token; 0: its PONG came */
	uint64_t last_sent; /* when the time was last sent */
	unsigned int times_sent;
};

/* Puts a new random seed and the time, which no two VMs and no two wake-ups may share. */
void guest_clock_put(struct buf *b);

/* Wakes a VM with a new seed and the time; keeper_wake_if_old() only if the time was sent too
 * long ago. */
void keeper_wake(struct keeper *k);
void keeper_wake_if_old(struct keeper *k);

/* The guest's PONG came. True: its clock is right now. */
bool guest_clock_heard(struct keeper *k, uint64_t token);
