/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a root directory that an image or its users have filled. Links are followed inside the
 * root directory only, and never into /proc or another mount, whose files PID 1 may read and users
 * may not. Files are replaced by rename(2), so a program never sees half a file. Functions return 0
 * or -errno; directories keep their modes.
 */
#pragma once

#include <limits.h>
#include <sys/stat.h>

#include "base/buf.h"

/* Nothing of use is at the path; other errors are failures. */
bool ca_file_missing(int r);

/* The caller closes *ret. */
int ca_file_dir(int root, const char *path, int *ret);

/* Replaces the file `name` of a directory by one with the mode and owner of `as`. */
int ca_file_replace(int dir, const char *name, const struct stat *as, const char *data, size_t n);

/* Mode and owner of a file of ours. */
struct stat ca_file_new(void);

/* Reads a regular file of at most b->max bytes, otherwise -EFBIG; anything else is -ENOENT. */
int ca_file_read(int dir, const char *name, struct buf *b, struct stat *ret);

/* Writes a file of ours unless it has these contents already: that keeps what Landlock allows. */
int ca_file_put(int dir, const char *name, const char *data, size_t n);

/* Makes a symbolic link. */
int ca_file_link(int dir, const char *name, const char *target);

/* Where a path leads: a name that is no link, in an open directory. */
struct ca_place {
	int dir;
	char name[NAME_MAX + 1];
};

/* Follows the links at the end of a path. The caller calls ca_place_done(), also after an error. */
int ca_place_find(int root, const char *path, struct ca_place *ret);
void ca_place_done(struct ca_place *p);
