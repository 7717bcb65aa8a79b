/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/request.h"

/* Suspends a VM and answers 204; resumes it and calls `then`. Detaches the request from its box. */
void box_suspend(struct request *r, const struct box *b);
void box_unsuspend(struct request *r, const struct box *b, uint64_t deadline,
		   void (*then)(struct request *r, struct box *b));

/* True while a box is being resumed, by us or by another process. */
bool box_is_resuming(const struct box *b);

/* If the box is being resumed, waits for that, then calls `again`, and returns true. The caller
 * must not touch the request then. */
bool box_await(struct request *r, const struct box *b, void (*again)(struct request *r));
