/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/api-config.h"

/* The requests of SDKs to a sandbox, as E2B's envd answers them, and its ports. */
extern const struct api_part envd_part;
