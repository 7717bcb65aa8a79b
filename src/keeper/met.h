/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that a VM's users have reached: met.c. */
#pragma once

#include "base/loop.h"
#include "state/life.h"
#include "wire/message.h"

struct keeper;

struct met_told {
	struct met now;
	bool changed, waiting; /* changed: not yet reported; waiting: the timer runs */
	struct loop_timer again;
};

/* The guest's WIRE_MSG_LIMIT. False if this engine's guest may not report limits. */
bool met_said(struct keeper *k, const struct fields *f);
void met_done(struct keeper *k); /* sends the last change to the warden */
