/* SPDX-License-Identifier: Apache-2.0 */
/* The root directory of a confined process. All functions return 0 or -errno. */
#pragma once

/* Makes the mount `path` the root of all processes in the mount namespace, and removes the old root
 * with all its mounts. */
int root_enter(const char *path);

/* Mounts an empty, read-only file system at the directory `path`, whose only inode is its root, and
 * enters it. */
int root_enter_empty(const char *path);

/* -EPERM unless the root is such a file system. */
int root_check_empty(void);
