/* SPDX-License-Identifier: Apache-2.0 */
/* openapi.json, compiled in. */
#pragma once

#include <stddef.h>

extern const char openapi_json[];
extern const size_t openapi_json_n;
