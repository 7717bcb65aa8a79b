/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images in one file: the output of `docker save` (docker-archive), or an OCI layout as a tar
 * archive (oci-archive). Used inside a worker only: the bytes are untrusted.
 *
 * Members are copied to numbered files in the work directory and found by name in a table. So no
 * name from the archive, or from a manifest in it, is ever used as a path.
 */
#pragma once

#include "image/unpack.h"
#include "image/worker.h"

enum {
	ARCHIVE_MEMBERS_MAX = 4096,
};

enum archive_kind {
	ARCHIVE_ROOT, /* a root tree */
	ARCHIVE_DOCKER,
	ARCHIVE_OCI,
};

/*
 * Detects the kind of the regular file `input` by its member names. The first directory identifies
 * a root tree. -EINVAL for an image that cannot be imported.
 */
int archive_look(int input, enum archive_kind *ret, struct err *e);

struct archive_member {
	char *name, *link; /* link: target of a symbolic link, or NULL */
};

struct archive {
	int dir; /* directory with the members, by number */
	struct archive_member *v;
	size_t n;
};

#define ARCHIVE_INIT          \
	{                     \
		.dir = -EBADF \
	}
#define _cleanup_archive_ _cleanup_(archive_done)

/* Name of the members' directory in the work directory. */
#define ARCHIVE_PARTS "parts"

/* Copies all members of `input`. Rejects duplicate names, and members that are neither file nor
 * link. */
int archive_read(struct archive *a, int work, int input, struct worker *w, struct err *e);

/* Opens a member by name, or its link target. The caller owns *ret_fd. */
int archive_open(const struct archive *a, const char *name, int *ret_fd, struct err *e);

/* Unpacks the image `tag` (NULL: the only one) of a docker-archive. */
int docker_unpack(struct worker *w, struct unpack *u, const char *tag, struct err *e);

void archive_done(struct archive *a);
