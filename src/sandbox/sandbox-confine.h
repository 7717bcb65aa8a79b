/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For a child that reads what a sandbox says, and perhaps writes files: it keeps its user and loses
 * the rest.
 *   - Descriptors: only those it is given, nothing on 0 and 1.
 *   - Capabilities, also the bounding and ambient sets; no new privileges; nobody may look into it.
 *   - Limits: descriptors, processes, memory, no core.
 *   - Landlock, where the kernel has it: files, directories and links may be made and removed below
 *     one directory. No file is read or executed, no device, socket or FIFO made, no TCP, no
 * signal.
 *   - seccomp: the system calls of that work, and death for any other.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct jail {
	int dir; /* what it may write below; -EBADF: nothing at all */
	int keep[3];
	/* Keep the right to write in directories of others: only where root copies into one. */
	bool override;
};

int jail_enter(const struct jail *j, struct err *e);
