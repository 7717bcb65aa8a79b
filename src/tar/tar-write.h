/* SPDX-License-Identifier: Apache-2.0 */
/* The headers of a tar archive: ustar, and pax where a name, a target or a size does not fit. Pure.
 */
#pragma once

#include "tar.h"

enum {
	TAR_HEADER_MAX = 10 * 1024, /* of one entry: two names in an extended header, two blocks */
	TAR_END = 2 * TAR_BLOCK,    /* zeros behind the last entry */
	TAR_OWNER_MAX = 07777777,   /* what the header has room for */
};

struct tar_item {
	enum tar_type type; /* TAR_FILE, TAR_DIR or TAR_SYMLINK */
	const char *name;   /* clean */
	const char *link;   /* of a symbolic link, as it is */
	uint32_t mode;	    /* 07777 */
	uint32_t uid, gid;  /* at most TAR_OWNER_MAX */
	uint64_t size, mtime;
};

/*
 * Writes the header of an entry. How many bytes that were, or 0 where a name is longer than readers
 * take.
 */
size_t tar_write_header(const struct tar_item *item, char out[static TAR_HEADER_MAX]);

/* Zeros between the end of `size` bytes of data and the next header. */
size_t tar_padding(uint64_t size);
