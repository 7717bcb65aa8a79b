/* SPDX-License-Identifier: Apache-2.0 */
/* Debian packages that contain kernels. */
#pragma once

#include <limits.h>

#include "vm/machine.h"

struct kernel_package {
	char name[128], version[128];
	char file[PATH_MAX]; /* path of the package; "": must be fetched */
};

/*
 * Finds the package for a kernel of that kind: in the directory `from`, or the one apt has for this
 * Debian release. -ENOENT, -EINVAL with advice.
 */
int package_find(enum machine_kernel_kind kind, const char *from, struct kernel_package *ret,
		 struct err *e);

/*
 * Fetches it, unless it has a file, into the directory `dir`. Uses apt-get, which accepts only
 * packages listed with their hash in the release's signed index. `hold`: as in struct tool.
 */
int package_fetch(struct kernel_package *p, const char *dir, const int *hold, struct err *e);

/* Unpacks its files below `dir`. */
int package_unpack(const struct kernel_package *p, const char *dir, const int *hold, struct err *e);
