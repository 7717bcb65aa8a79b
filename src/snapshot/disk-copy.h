/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* Copies `from` to an unnamed file in the file system of `dir`: *ret_fd, for reading and writing.
 * The file is gone with its last descriptor, so it cannot leak. */
int disk_new(int dir, int from, int *ret_fd, struct err *e);

/* The same for a file by its path. */
int disk_new_from(int dir, const char *path, int *ret_fd, struct err *e);

/* The same, in the directory of that file. */
int disk_new_beside(const char *path, int *ret_fd, struct err *e);

/* Room that reservations leave on the file system, for the audit log and everything else that is
 * kept there: this many bytes, or this share if it is more. */
#define DISK_HEADROOM	    (UINT64_C(1) << 30)
#define DISK_HEADROOM_SHARE UINT64_C(50)

/*
 * Reserves room for all of a disk's size, so that no write to it can fail for lack of room; `where`
 * is for messages. The contents do not change, and reserved blocks without data still look like
 * holes. -ENOSPC: there is no room besides the headroom; blocks that the file system keeps for root
 * do not count. A file system that cannot reserve is an error too. After an error, close the disk:
 * it may hold room. Of processes that reserve the last room at the same time, all may fail, but
 * together they take at most 64 MiB of the headroom each.
 */
int disk_reserve(int disk, const char *where, struct err *e);

/* Says that a disk of this size does not fit; returns -ENOSPC. */
int disk_no_room(const char *where, uint64_t size, struct err *e);

/* Copies the data of a file into an empty one. */
int disk_copy(int from, int to, struct err *e);
