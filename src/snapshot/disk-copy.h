/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "err.h"

/* A copy of `from` without a name, in the file system of `dir`: *ret_fd, for reading and writing.
 * Gone with the last descriptor, so nobody has to take it back. */
int disk_new(int dir, int from, int *ret_fd, struct err *e);

/* The same of a file by its path. */
int disk_new_from(int dir, const char *path, int *ret_fd, struct err *e);

/* The same, in the directory of that file. */
int disk_new_beside(const char *path, int *ret_fd, struct err *e);

/* Copies what there is of a file into an empty one. */
int disk_copy(int from, int to, struct err *e);
