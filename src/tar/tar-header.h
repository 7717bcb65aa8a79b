/* SPDX-License-Identifier: Apache-2.0 */
/* The header of POSIX.1-2017, pax(1), "ustar Interchange Format"; tar(5) describes GNU's variant.
 */
#pragma once

#include "tar/tar.h"

struct tar_header {
	char name[100];
	char mode[8], uid[8], gid[8];
	char size[12], mtime[12];
	char checksum[8];
	char type;
	char link[100];
	char magic[8]; /* with the version */
	char uname[32], gname[32];
	char major[8], minor[8];
	char prefix[155];
	char rest[12];
};

static_assert(sizeof(struct tar_header) == TAR_BLOCK, "a header is a block");
