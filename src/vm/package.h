/* SPDX-License-Identifier: Apache-2.0 */
/* Debian's packages with kernels in them. */
#pragma once

#include <limits.h>

#include "machine.h"

struct kernel_package {
	char name[128], version[128];
	char file[PATH_MAX]; /* of the package; "": it has to be fetched */
};

/*
 * Which package a kernel of that kind is made of: the one that is in the directory `from`, or the
 * one that apt knows for this release of Debian. -ENOENT, -EINVAL with advice.
 */
int package_find(enum machine_kernel_kind kind, const char *from, struct kernel_package *ret,
		 struct err *e);

/*
 * Fetches it, if it has no file yet, into the directory `dir`. Only by apt-get, which takes nothing
 * but what the signed index of the release names, by its hash. `hold`: as in struct tool.
 */
int package_fetch(struct kernel_package *p, const char *dir, const int *hold, struct err *e);

/* Unpacks its files below `dir`. */
int package_unpack(const struct kernel_package *p, const char *dir, const int *hold, struct err *e);
