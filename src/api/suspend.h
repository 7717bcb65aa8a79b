/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/request.h"

/* A virtual machine goes to disk, and 204 is answered; and comes back, for `then`. The request is
 * of no box meanwhile. */
void box_suspend(struct request *r, const struct box *b);
void box_unsuspend(struct request *r, const struct box *b, uint64_t deadline,
		   void (*then)(struct request *r, struct box *b));
