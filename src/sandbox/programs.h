/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <limits.h>

#include "base/err.h"

/* The programs that sandboxes are started with. */
struct programs {
	char keeper[PATH_MAX], guest[PATH_MAX];
};

/* Looks in $HUTCH_LIBEXEC_DIR; else beside our own program, as installed; else in the build
 * tree. */
int programs_find(struct programs *ret, struct err *e);
