/* SPDX-License-Identifier: Apache-2.0 */
/* The modules that a packaged kernel needs in a VM, with their dependencies, in load order. */
#pragma once

#include "base/err.h"
#include "vm/cpio.h"

/*
 * Adds lib/modules/NAME.ko and lib/modules-list (one path per line, in load order) to the archive.
 * `dir` is the kernel's directory lib/modules/VERSION. -EINVAL: a module is missing.
 */
int modules_add(int dir, struct cpio *c, struct err *e);

/* Dependencies of a module, "a,b" or "", from its .modinfo; NULL if it is not a module. */
const char *module_depends(const char *data, size_t n);
