/* SPDX-License-Identifier: Apache-2.0 */
/* Confines a child that reads a sandbox's bytes and may write files. It keeps its user and drops
 * the rest:
 *
 *   - Descriptors: only those it is given, nothing on 0 and 1.
 *   - Capabilities, including the bounding and ambient sets; no new privileges; not dumpable.
 *   - Limits: descriptors, processes, memory, no core.
 *   - Landlock, where the kernel has it: it may make and remove files, directories and links below
 *     one directory. No reading or executing files, no devices, sockets or FIFOs, no TCP, no
 *     signals.
 *   - seccomp: the system calls of that work; any other kills the process. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct jail {
	int dir; /* directory that it may write below; -EBADF: none */
	int keep[3];
	/* Keeps CAP_DAC_OVERRIDE: only when root copies into another user's directory. */
	bool override;
};

int jail_enter(const struct jail *j, struct err *e);
