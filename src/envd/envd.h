/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/api-config.h"

/* SDK requests to a sandbox, answered as by E2B's envd, and its ports. */
extern const struct api_part envd_part;
