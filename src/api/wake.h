/* SPDX-License-Identifier: Apache-2.0 */
/* Deadline, pause and resume of a box: shared by both planes. */
#pragma once

#include "api/request.h"

enum {
	WAKE_TIMEOUT_S = 300, /* the deadline of a box that is resumed without one */
};

/*
 * Asks the keeper of r->box, or of `b`, to change its life (wire op LIFE): a deadline in
 * milliseconds from now (0: none is set), paused or running (0: as it is). `then` is called with
 * the code of the answer, and the text where it is not WIRE_DONE.
 */
void box_life(struct request *r, struct box *b, uint64_t timeout_ms, unsigned int want,
	      void (*then)(struct request *r, struct box *b, enum wire_code code,
			   const char *text));

/* Whether the deadline of a resumed box, set by the first client that asked, is about as late as
 * this one. Then a hundred clients that asked together need not all ask the keeper. */
bool box_is_as_late(const struct box *b, uint64_t seconds);

/* Resumes a box that is paused, and then calls `then`, with it as r->box; or answers why not. */
void box_wake(struct request *r, struct box *b, void (*then)(struct request *r));
