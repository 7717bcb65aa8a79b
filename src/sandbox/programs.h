/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <limits.h>

#include "base/err.h"

/* What sandboxes are started with. */
struct programs {
	char keeper[PATH_MAX], guest[PATH_MAX];
};

/* Where $HUTCH_LIBEXEC_DIR says; or beside us, as installed; or in the tree where we were built. */
int programs_find(struct programs *ret, struct err *e);
