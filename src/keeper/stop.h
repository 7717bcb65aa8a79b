/* SPDX-License-Identifier: Apache-2.0 */
/* How the keeper ends, or one of its clients. */
#pragma once

#include "keeper/keeper.h"

struct client;
struct keeper;

/* The keeper ends with the round; the first reason counts. */
void keeper_stop(struct keeper *k, enum keeper_end end);

/* For results of link_*() on the guest's link. -ESTALE, the channel is gone, is nothing. */
void keeper_check(struct keeper *k, int r);
void client_check(struct client *c, int r); /* the same for a client's link */

/* Tells the warden something, without files. Without a warden there is no sandbox. */
void keeper_tell(struct keeper *k, enum note_kind kind, uint64_t value);

/* Starts the clock of idleness, if the sandbox is idle. */
void idle_arm(struct keeper *k);
