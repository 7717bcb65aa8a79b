/* SPDX-License-Identifier: Apache-2.0 */
/* Paths: opens them beneath a directory with openat2(2), never outside it, and checks them as text.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

/*
 * Opens `path` strictly beneath `dirfd`: "..", absolute paths and symbolic links that leave it fail
 * with -EXDEV, magic links (/proc/N/fd) with -ELOOP. Adds O_CLOEXEC. Returns a descriptor or
 * -errno.
 */
int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode);

/* Same with `dirfd` as "/": absolute links and ".." resolve inside it. */
int path_open_in_root(int dirfd, const char *path, int flags, mode_t mode);

/* Same, and never onto another mount: -EXDEV, for example for a link into /proc. */
int path_open_in_mount(int dirfd, const char *path, int flags, mode_t mode);

/* Strictly beneath, with no symbolic link in the path: -ELOOP. */
int path_open_nofollow(int dirfd, const char *path, int flags, mode_t mode);

/*
 * Creates every missing directory of `path` beneath `dirfd` with `mode`; rejects symbolic links. 0
 * or -errno.
 */
int path_mkdirs(int dirfd, const char *path, mode_t mode);

/*
 * Writes a file into directory `dir` beneath `dirfd`, creating the directory and replacing an
 * existing file. Rejects symbolic links in `dir`, replaces one called `name`. Only for a tree that
 * no other process uses yet. 0 or -errno.
 */
int path_replace(int dirfd, const char *dir, const char *name, mode_t mode, const char *text,
		 size_t n);

/*
 * Writes the canonical form of an absolute path: one slash between components, none at the end
 * (except "/" itself). -EINVAL for a relative path or one with "." or "..", -ENAMETOOLONG past `n`.
 */
int path_canonical(const char *path, char *out, size_t n);

/* Writes the path without its last component: "a/b" gives "a", "a" gives ".", "/a" gives "/". */
int path_parent(const char *path, char *out, size_t n);
