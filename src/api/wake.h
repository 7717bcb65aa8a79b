/* SPDX-License-Identifier: Apache-2.0 */
/* Deadline, pause and resume of a box: shared by both planes. */
#pragma once

#include "api/request.h"

enum {
	WAKE_TIMEOUT_S = 300, /* for a box resumed without a timeout */
};

/*
 * Asks the keeper of r->box, or of `b`, to change its life (wire op LIFE): the deadline in
 * milliseconds from now (0: unchanged), and paused or running (0: unchanged). Calls `then` with the
 * answer's code, and its text unless that is WIRE_DONE.
 */
void box_life(struct request *r, struct box *b, uint64_t timeout_ms, unsigned int want,
	      void (*then)(struct request *r, struct box *b, enum wire_code code,
			   const char *text));

/* Whether the box's deadline, set by the first client that resumed it, is about as late as this
 * one. Then other clients that asked at the same time need not ask the keeper. */
bool box_is_as_late(const struct box *b, uint64_t seconds);

/* Resumes a paused box and calls `then`, with the box as r->box; or answers with the error. */
void box_wake(struct request *r, struct box *b, void (*then)(struct request *r));
