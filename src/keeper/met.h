/* SPDX-License-Identifier: Apache-2.0 */
/* Which limits the users of a machine have met. */
#pragma once

#include "base/loop.h"
#include "state/life.h"
#include "wire/message.h"

struct keeper;

struct met_told {
	struct met now;
	bool changed, waiting; /* since the warden was told; to tell it again */
	struct loop_timer again;
};

/* A guest's WIRE_MSG_LIMIT. False if it is not for it to say. */
bool met_said(struct keeper *k, const struct fields *f);
void met_done(struct keeper *k); /* the last word goes to the warden */
