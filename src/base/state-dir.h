/* SPDX-License-Identifier: Apache-2.0 */
/* Where hutch keeps what outlives a boot: images, keys. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* The path of hutch's own directory, as state_dir_open() finds it. Makes and opens nothing. */
int state_dir_path(char *out, size_t n, struct err *e);

/*
 * Opens the directory that hutch's own stands in, and says its path and what comes in front of a
 * name in it: $HUTCH_STATE_DIR and "", as root /var/lib and "hutch/", else $XDG_DATA_HOME or
 * ~/.local/share and "hutch/". Links on the way are the administrator's; with `make` missing
 * directories are made, 0700. The caller owns *ret_fd.
 */
int state_dir_open(bool make, char *path, size_t n, const char **ret_prefix, int *ret_fd,
		   struct err *e);
