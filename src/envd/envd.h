/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api-config.h"

/* What the SDKs ask of a sandbox, as E2B's envd answers it, and its ports. */
extern const struct api_part envd_part;
