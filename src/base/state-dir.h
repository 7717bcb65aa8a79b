/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the directory for data that outlives a boot: images, keys. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Writes the path that state_dir_open() uses for Hutch's own directory. Creates and opens nothing.
 */
int state_dir_path(char *out, size_t n, struct err *e);

/*
 * Opens the directory that contains Hutch's own directory, and returns its path and the prefix of
 * names in it: $HUTCH_STATE_DIR and ""; as root /var/lib and "hutch/"; else $XDG_DATA_HOME or
 * ~/.local/share and "hutch/". Follows links, which only the administrator can make. `make` creates
 * missing directories, 0700. The caller owns *ret_fd.
 */
int state_dir_open(bool make, char *path, size_t n, const char **ret_prefix, int *ret_fd,
		   struct err *e);
