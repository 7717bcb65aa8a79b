/* SPDX-License-Identifier: Apache-2.0 */
/* Paths: opened beneath a directory with openat2(2), never followed out of it; and checked as text.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

/*
 * Opens `path` strictly beneath `dirfd`: "..", absolute paths and symbolic links that lead out fail
 * with -EXDEV, magic links (/proc/N/fd) with -ELOOP. O_CLOEXEC is added. Returns a descriptor or
 * -errno.
 */
int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode);

/* The same with `dirfd` as "/": what leads out of it is resolved inside. */
int path_open_in_root(int dirfd, const char *path, int flags, mode_t mode);

/* Strictly beneath, and no symbolic link at all on the way: -ELOOP. */
int path_open_nofollow(int dirfd, const char *path, int flags, mode_t mode);

/*
 * Makes every missing directory of `path` beneath `dirfd` with `mode`; symbolic links are refused.
 * 0 or -errno.
 */
int path_mkdirs(int dirfd, const char *path, mode_t mode);

/*
 * Puts a file with this text into directory `dir` (made if it is not there) beneath `dirfd`, in the
 * place of what has its name; symbolic links are refused on the way and replaced at its end. For a
 * tree that nobody uses yet. 0 or -errno.
 */
int path_replace(int dirfd, const char *dir, const char *name, mode_t mode, const char *text,
		 size_t n);

/*
 * The canonical text of an absolute path: one slash between components, none at the end (but "/"
 * itself). -EINVAL for a relative path or one with "." or ".." in it, -ENAMETOOLONG past `n`.
 */
int path_canonical(const char *path, char *out, size_t n);

/* Everything before the last component: "a/b" gives "a", "a" gives ".", "/a" gives "/". */
int path_parent(const char *path, char *out, size_t n);
