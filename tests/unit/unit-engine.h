/* SPDX-License-Identifier: Apache-2.0 */
/* Engines for tests of the keeper, which only uses their traits. */
#pragma once

#include "engine/engine.h"

static const struct engine unit_container = { .name = "container",
					      .level = LEVEL_CONTAINER,
					      .traits = ENGINE_SCRATCH };
static const struct engine unit_vm = { .name = "vm",
				       .level = LEVEL_MICROVM,
				       .traits = ENGINE_OWN_KERNEL | ENGINE_SNAPSHOTS |
						 ENGINE_FORKS };
