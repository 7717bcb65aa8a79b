/* SPDX-License-Identifier: Apache-2.0 */
/* The modules that a packaged kernel needs in a VM, with their dependencies, in load order. */
#pragma once

#include "base/err.h"
#include "vm/cpio.h"

/*
 * Adds lib/modules/NAME.ko and lib/modules-list (one path per line, in load order) to the archive
 * `base`, and the further modules of a VM with isolation.nested to `more`, with their own list.
 * `dir` is the kernel's directory lib/modules/VERSION. -EINVAL: a module of `base` is missing.
 */
int modules_add(int dir, struct cpio *base, struct cpio *more, struct err *e);

/* Dependencies of a module, "a,b" or "", from its .modinfo; NULL if it is not a module. */
const char *module_depends(const char *data, size_t n);
