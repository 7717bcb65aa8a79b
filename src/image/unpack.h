/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the entries of a tar archive below a directory. Implements the rules for all images;
 * hutch-image(5) lists them. No path is resolved through a symbolic link, so nothing can be written
 * outside the directory, in whatever order the entries come.
 */
#pragma once

#include "image/image.h"
#include "tar/tar.h"

enum unpack_pass {
	UNPACK_TAR,	  /* a complete archive */
	UNPACK_WHITEOUTS, /* a layer: only its whiteouts */
	UNPACK_LAYER,	  /* a layer: everything else */
};

struct unpack {
	int root; /* the directory */
	struct image_counts counts;
	void (*tick)(void *arg, const struct image_counts *counts); /* may be NULL */
	void *arg;
};

/* Reads the archive to its end and writes it. -EINVAL if the rules reject it, or -errno. */
int unpack_archive(struct unpack *u, enum unpack_pass pass, tar_read_fn *read, void *read_arg,
		   struct err *e);

/* Creates the directories that every sandbox mounts over; rejects anything that is not a directory.
 */
int unpack_mount_points(int root, struct err *e);

/* Is the clean name dev, proc, sys or run? *ret_below: it is inside one of the first three. */
bool unpack_is_mount_point(const char *name, bool *ret_below);

/*
 * Opens (O_PATH) the parent directory of a clean name below `root`, and creates it if `make`;
 * *ret_base is the last component. -ELOOP if a symbolic link is in the path, or -errno.
 */
int unpack_open_parent(int root, const char *name, bool make, const char **ret_base);
