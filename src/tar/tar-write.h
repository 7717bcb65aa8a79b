/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the headers of a tar archive: ustar, and pax where a name, a target or a size does not
 * fit. Makes no syscalls and allocates nothing.
 */
#pragma once

#include "tar/tar.h"

enum {
	TAR_HEADER_MAX = 10 * 1024, /* per entry: two names in an extended header, two blocks */
	TAR_END = 2 * TAR_BLOCK,    /* zeros after the last entry */
	TAR_OWNER_MAX = 07777777,   /* limit of the header's fields */
};

struct tar_item {
	enum tar_type type; /* TAR_FILE, TAR_DIR or TAR_SYMLINK */
	const char *name;   /* clean */
	const char *link;   /* target of a symbolic link, verbatim */
	uint32_t mode;	    /* 07777 */
	uint32_t uid, gid;  /* at most TAR_OWNER_MAX */
	uint64_t size, mtime;
};

/* Writes the header of an entry. Returns its length, or 0 if a name is too long for readers. */
size_t tar_write_header(const struct tar_item *item, char out[static TAR_HEADER_MAX]);

/* Number of zeros between `size` bytes of data and the next header. */
size_t tar_padding(uint64_t size);
