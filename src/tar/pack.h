/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs a file, a symbolic link or a directory tree into a tar archive. Symbolic links are packed,
 * never followed. Left out and counted: sockets, FIFOs, devices, unreadable files, names that are
 * too long or too deep for readers, and set-ID bits.
 *
 * With `owners` it packs a root tree for an image: entries keep their owners; /dev, /proc, /sys,
 * /tmp and all other mounts become empty directories; /run keeps only its directories. The tree is
 * in use, so files that vanish during packing are no error.
 */
#pragma once

#include <sys/types.h>

#include "tar/tar-write.h"

enum {
	PACK_BUFFER = 256 * 1024,
	PACK_ID_MAX = 65534, /* highest owner id in an image */
};

/* Writes all bytes. Returns 0, or -errno, which ends the packing. */
typedef int pack_write_fn(void *arg, const void *data, size_t n);

struct pack {
	pack_write_fn *write;
	void *arg;
	int pipe; /* pipe that `write` writes to, used to splice large files; else -EBADF */
	void (*tick)(struct pack *p); /* called after each write; may be NULL */
	bool owners;
	const char *blank; /* name of a file that is packed as empty, or NULL */
	uint64_t entries, bytes;
	uint64_t special;	 /* sockets, FIFOs, devices */
	uint64_t setids;	 /* entries that lost their set-ID bits */
	uint64_t failed;	 /* unreadable, or shortened while they were read */
	char first[ERR_MSG_MAX]; /* name and error of the first failure */
	/* private */
	char name[TAR_NAME_MAX + 1];
	char link[TAR_NAME_MAX + 1];
	size_t used;
	char out[PACK_BUFFER];
};

/*
 * Packs `path` below `dirfd` (AT_FDCWD allowed; the last component is not followed) under the name
 * `top`, or a directory's contents if `top` is ".". Writes the end of the archive too.
 */
int pack_tree(struct pack *p, int dirfd, const char *path, const char *top, struct err *e);

/* Describes for users what was left out; "" if nothing was. */
void pack_note(const struct pack *p, char *out, size_t n);
