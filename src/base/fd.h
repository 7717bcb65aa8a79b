/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors: complete, bounded reads and writes, and atomic replacement of files. */
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Writes all `n` bytes, over EINTR and short writes. The descriptor must be blocking. 0 or -errno.
 */
int fd_write_all(int fd, const void *data, size_t n);

/* Appends all bytes up to end of file to `b`; -EFBIG beyond b->max. 0 or -errno. */
int fd_read_all(int fd, struct buf *b);

/*
 * Reads the regular file `path` below `dirfd` (AT_FDCWD allowed) into `b`, at most b->max bytes.
 * Rejects other file types: a FIFO would block, a device may do anything. Files of /proc and /sys
 * are regular.
 */
int fd_read_file(int dirfd, const char *path, struct buf *b, struct err *e);

/*
 * Reads the first line of a small file (at most 4 KiB) without its newline, for /proc and /sys. 0
 * or -errno.
 */
int fd_read_line(int dirfd, const char *path, char *out, size_t n);

/*
 * Replaces `path` below `dirfd` with `n` bytes: temporary file in the same directory, fsync,
 * rename, fsync of the directory. A reader sees the old or the new contents in full, even after a
 * power cut.
 */
int fd_replace_file(int dirfd, const char *path, mode_t mode, const void *data, size_t n,
		    struct err *e);

/*
 * Closes every descriptor from `first` on except those in `kept`, which it sorts; negative entries
 * there are ignored. 0 or -errno.
 */
int fd_close_others(int first, int *kept, size_t n);

/* Makes two connected sockets of `type` (SOCK_STREAM, SOCK_SEQPACKET), CLOEXEC. 0 or -errno. */
int fd_socket_pair(int type, int *ret_a, int *ret_b);

/* pipe2(2) with O_CLOEXEC and `flags`. 0 or -errno. */
int fd_pipe(int flags, int *ret_from, int *ret_to);

/* Lists the directory `fd` from its beginning, with a file position of its own. The caller calls
 * closedir(). NULL with errno set on failure. */
DIR *fd_list(int fd);
