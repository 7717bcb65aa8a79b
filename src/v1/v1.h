/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/api-config.h"

extern const struct api_part v1_part;
