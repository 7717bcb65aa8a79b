/* SPDX-License-Identifier: Apache-2.0 */
/* Directory trees: their digest, and their removal. Symbolic links are never followed. */
#pragma once

#include "base/err.h"
#include "image/image.h"

enum {
	TREE_DEPTH_MAX = 256
};

/*
 * Reads every file below `root_fd` and returns the SHA-256 of the tree's listing, as described in
 * hutch-image(5). -EINVAL for a tree with set-ID bits or with anything but directories, regular
 * files and symbolic links. `tick` (may be NULL) is called now and then.
 */
int tree_digest(int root_fd, void (*tick)(void *arg, uint64_t files, uint64_t bytes), void *arg,
		struct tree_info *ret, struct err *e);

/* Removes `name` below `dirfd` with its contents; a missing name is no error. 0 or -errno. */
int tree_remove(int dirfd, const char *name);

/* Removes the contents of a directory. 0 or -errno. */
int tree_empty(int fd);
