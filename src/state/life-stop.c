/* SPDX-License-Identifier: Apache-2.0 */
#include "base/util.h"
#include "state/life.h"

const char *const life_stop_names[] = { "", "disk-full", "unknown", NULL };
const char *const life_stop_texts[] = { "", "the host's disk is full", "for an unknown reason",
					NULL };

static_assert(ARRAY_SIZE(life_stop_names) == LIFE_STOPS + 1, "a name for each");
static_assert(ARRAY_SIZE(life_stop_texts) == LIFE_STOPS + 1, "a text for each");
