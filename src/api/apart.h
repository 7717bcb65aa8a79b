/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers that wait for files run in a child, to not block the loop (route.apart). */
#pragma once

#include "api/request.h"

/* Calls `handle` in a child, and sends its answer. */
void request_apart(struct request *r, void (*handle)(struct request *r));
