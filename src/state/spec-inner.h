/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of spec.json. */
#pragma once

#include "state/spec.h"

/* An absolute path in canonical form. */
bool spec_is_path(const char *s);

/* spec-tap.c */
int spec_check_tap(const struct spec *s, struct err *e);
