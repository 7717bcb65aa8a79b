/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"

/* Copies `from` to an unnamed file in the file system of `dir`: *ret_fd, for reading and writing.
 * The file is gone with its last descriptor, so it cannot leak. */
int disk_new(int dir, int from, int *ret_fd, struct err *e);

/* The same for a file by its path. */
int disk_new_from(int dir, const char *path, int *ret_fd, struct err *e);

/* The same, in the directory of that file. */
int disk_new_beside(const char *path, int *ret_fd, struct err *e);

/* Copies the data of a file into an empty one. */
int disk_copy(int from, int to, struct err *e);
