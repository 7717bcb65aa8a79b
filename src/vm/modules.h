/* SPDX-License-Identifier: Apache-2.0 */
/* The modules that a packaged kernel needs in a machine, with what they depend on, in load order.
 */
#pragma once

#include "cpio.h"
#include "err.h"

/*
 * Adds lib/modules/NAME.ko and lib/modules-list (a path on each line, in the order of loading) to
 * the archive. `dir` is the kernel's directory, lib/modules/VERSION. -EINVAL: one is missing.
 */
int modules_add(int dir, struct cpio *c, struct err *e);

/* The names that a module depends on, "a,b" or "", from its .modinfo; NULL if it is no module. */
const char *module_depends(const char *data, size_t n);
