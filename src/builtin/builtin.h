/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agents, presets and images of this version, compiled in: the program needs no data files, and
 * built-in names have the same meaning on every host.
 */
#pragma once

#include "policy/store.h"

extern const struct builtin_file builtin_files[];
extern const size_t builtin_files_n;
