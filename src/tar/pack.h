/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs a file, a symbolic link or a directory with all that is in it into a tar archive. Symbolic
 * links are packed, never followed. Sockets, FIFOs and devices are left out; so is what cannot be
 * read, is deeper than readers take or has a longer name. Set-ID bits are not packed. All of that
 * is counted.
 *
 * With `owners` it is a root tree that is packed, for an image: entries have the owners that they
 * have on disk; of /dev, /proc, /sys, /tmp and of every other mount only the directory is packed,
 * of /run all directories; and what is gone by the time it is looked at is not missed.
 */
#pragma once

#include <sys/types.h>

#include "tar-write.h"

enum {
	PACK_BUFFER = 256 * 1024,
	PACK_ID_MAX = 65534, /* the last owner that an image has */
};

/* Takes all of the bytes. 0 or -errno: then nothing more is packed. */
typedef int pack_write_fn(void *arg, const void *data, size_t n);

struct pack {
	pack_write_fn *write;
	void *arg;
	int pipe; /* what `write` writes to, if that is a pipe: large files go past it. Else -EBADF
		   */
	void (*tick)(struct pack *p); /* now and then; may be NULL */
	bool owners;
	const char *blank; /* the name of a file that is packed as empty; or NULL */
	uint64_t entries, bytes;
	uint64_t special;	 /* sockets, FIFOs, devices */
	uint64_t setids;	 /* entries that lost such bits */
	uint64_t failed;	 /* could not be read, or changed while it was */
	char first[ERR_MSG_MAX]; /* of `failed`: which and why */
	/* private */
	char name[TAR_NAME_MAX + 1];
	char link[TAR_NAME_MAX + 1];
	size_t used;
	char out[PACK_BUFFER];
};

/*
 * Packs `path` below `dirfd` (AT_FDCWD allowed; the last component is not followed) under the name
 * `top`: "." for a directory packs what is in it. The end of the archive is written too.
 */
int pack_tree(struct pack *p, int dirfd, const char *path, const char *top, struct err *e);

/* What was left out, for people; "" if nothing was. */
void pack_note(const struct pack *p, char *out, size_t n);
