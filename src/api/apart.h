/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers that wait for files: on the loop they would keep everybody waiting (route.apart). */
#pragma once

#include "api/request.h"

/* Calls `handle` apart from the loop, and answers what it answers. */
void request_apart(struct request *r, void (*handle)(struct request *r));
