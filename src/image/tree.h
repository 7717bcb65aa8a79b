/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of files: their digest, and their end. Symbolic links are never followed. */
#pragma once

#include "err.h"
#include "image.h"

enum {
	TREE_DEPTH_MAX = 256
};

/*
 * Reads every file below `root_fd` and gives the SHA-256 of the tree's listing, as hutch-image(5)
 * describes it. A tree with anything but directories, regular files and symbolic links, or with
 * set-ID bits, has none: -EINVAL. `tick` (may be NULL) is called now and then.
 */
int tree_digest(int root_fd, void (*tick)(void *arg, uint64_t files, uint64_t bytes), void *arg,
		struct tree_info *ret, struct err *e);

/* Removes `name` below `dirfd` with all that is in it; what is not there is no error. 0 or -errno.
 */
int tree_remove(int dirfd, const char *name);

/* Removes what is in the directory, not the directory. 0 or -errno. */
int tree_empty(int fd);
