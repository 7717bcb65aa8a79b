/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a VM, and the seed of its random numbers. */
#pragma once

#include "base/buf.h"

struct keeper;

struct guest_clock {
	uint64_t told_at; /* when the VM was told the time; 0: it has heard it */
	uint64_t told_last;
	unsigned int tellings;
};

/* What no two VMs may have in common, and no VM twice: a seed, and the time. */
void guest_clock_put(struct buf *b);

/* Lets a VM continue, with a new seed and the time; the second, if it was told too long ago. */
void keeper_wake(struct keeper *k);
void keeper_wake_if_old(struct keeper *k);

/* The guest's PONG. True: its clock is right now. */
bool guest_clock_heard(struct keeper *k, uint64_t token);
