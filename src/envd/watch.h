/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/request.h"

extern const struct route envd_watch_routes[];

/* Ends all watchers of a box. */
void watchers_drop(struct box *b);
