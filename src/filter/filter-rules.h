/* SPDX-License-Identifier: Apache-2.0 */
/* dist/filter-rules/hutch.rules in the program, made by tools/embed.py. */
#pragma once

#include <stddef.h>

extern const char filter_rules_text[];
extern const size_t filter_rules_text_n;
