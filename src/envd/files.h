/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/request.h"

extern const struct route envd_files_routes[];
