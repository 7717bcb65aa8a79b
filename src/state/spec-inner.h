/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of spec.json. */
#pragma once

#include <limits.h>

#include "base/path.h"
#include "base/str.h"
#include "state/spec.h"

/* An absolute path in canonical form. */
static inline bool spec_is_path(const char *s)
{
	char out[PATH_MAX];

	return path_canonical(s, out, sizeof(out)) == 0 && str_eq(s, out);
}

/* spec-tap.c */
int spec_check_tap(const struct spec *s, struct err *e);
