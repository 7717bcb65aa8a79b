/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the entries of a tar archive below a directory. The rules that hold for every image live
 * here; hutch-image(5) lists them. No path is resolved through a symbolic link, so nothing can be
 * written outside the directory, in whatever order the entries come.
 */
#pragma once

#include "image.h"
#include "tar.h"

enum unpack_pass {
	UNPACK_TAR,	  /* an archive by itself */
	UNPACK_WHITEOUTS, /* of a layer: only removes what the layers below have */
	UNPACK_LAYER,	  /* of a layer: everything else */
};

struct unpack {
	int root; /* the directory */
	struct image_counts counts;
	void (*tick)(void *arg, const struct image_counts *counts); /* may be NULL */
	void *arg;
};

/* Reads the archive to its end and writes it. -EINVAL for what the rules refuse, or -errno. */
int unpack_archive(struct unpack *u, enum unpack_pass pass, tar_read_fn *read, void *read_arg,
		   struct err *e);

/* Makes the directories that every sandbox mounts something on, and refuses what is no directory.
 */
int unpack_mount_points(int root, struct err *e);

/* Is the clean name dev, proc, sys or run? *ret_below: it lies in one of the first three. */
bool unpack_is_mount_point(const char *name, bool *ret_below);

/*
 * Opens (O_PATH) the directory of a clean name below `root`, and makes what is missing if `make`;
 * *ret_base is the last component. -ELOOP if a symbolic link is on the way, or -errno.
 */
int unpack_open_parent(int root, const char *name, bool make, const char **ret_base);
