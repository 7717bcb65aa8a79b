/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agents and presets of this version, compiled in: the program needs no data files, and a name
 * means one thing.
 */
#pragma once

#include "store.h"

extern const struct builtin_file builtin_files[];
extern const size_t builtin_files_n;
