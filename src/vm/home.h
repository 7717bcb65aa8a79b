/* SPDX-License-Identifier: Apache-2.0 */
/* The directories of `machine.h`, and their locks. */
#pragma once

#include "vm/machine.h"

/* Opens `machine/SUB` and returns its path. Creates it if `make`, else -ENOENT. */
int machine_home_open(const char *sub, bool make, char path[static IMAGE_HOME_MAX], int *ret_fd,
		      struct err *e);

/* Waits for the lock `name` in `machine/tmp`; held until the descriptor is closed. */
int machine_home_lock(const char *name, int *ret_fd, struct err *e);

/* BLAKE2b of the file below `dir`, in hex. */
int machine_file_digest(int dir, const char *name, char ret[static 65], struct err *e);
