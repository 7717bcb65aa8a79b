/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hypervisor's version, for receipts. Running the program takes tens of milliseconds, so the
 * answer is stored in `machine/hypervisor.json` until the program's file changes.
 */
#pragma once

#include "base/err.h"

enum {
	HYPERVISOR_MAX = 128,
};

/* "QEMU 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)" */
int hypervisor_version(char ret[static HYPERVISOR_MAX], struct err *e);

/* The same for the program at `path`; `dir` has the stored answer. For tests. */
int hypervisor_version_at(int dir, const char *path, char ret[static HYPERVISOR_MAX],
			  struct err *e);
