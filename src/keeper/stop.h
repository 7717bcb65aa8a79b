/* SPDX-License-Identifier: Apache-2.0 */
/* Ending the keeper or one of its clients. */
#pragma once

#include "keeper/keeper.h"

struct client;
struct keeper;

/* Ends the keeper after this round; the first reason counts. */
void keeper_stop(struct keeper *k, enum keeper_end end);

/* Checks the result of a link_*() call on the guest's link. -ESTALE (channel closed) is no
 * error. */
void keeper_check(struct keeper *k, int r);
void client_check(struct client *c, int r); /* the same for a client's link */

/* Sends a note without files. A failure ends the keeper: without a warden there is no sandbox. */
void keeper_tell(struct keeper *k, enum note_kind kind, uint64_t value);

/* Starts the idle timer if the sandbox is idle. */
void idle_arm(struct keeper *k);
