/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images in one file: what `docker save` writes (docker-archive), and an OCI layout as a tar
 * archive (oci-archive). Inside a worker only: the bytes are a stranger's.
 *
 * The members are copied to files of the work directory that are numbered, not named, and found by
 * their names in a table here. So no name of the archive, or of a manifest in it, is ever a path.
 */
#pragma once

#include "unpack.h"
#include "worker.h"

enum {
	ARCHIVE_MEMBERS_MAX = 4096,
};

enum archive_kind {
	ARCHIVE_ROOT, /* a root tree */
	ARCHIVE_DOCKER,
	ARCHIVE_OCI,
};

/*
 * Tells by the names of its members what the regular file `input` is. A root tree is known by its
 * first directory. -EINVAL for what looks like an image and is none that can be imported.
 */
int archive_look(int input, enum archive_kind *ret, struct err *e);

struct archive_member {
	char *name, *link; /* link: NULL, or where a symbolic link points */
};

struct archive {
	int dir; /* where the members are, by number */
	struct archive_member *v;
	size_t n;
};

#define ARCHIVE_INIT          \
	{                     \
		.dir = -EBADF \
	}
#define _cleanup_archive_ _cleanup_(archive_done)

/* The name of the directory of members below the work directory. */
#define ARCHIVE_PARTS "parts"

/* Copies all members of `input`. Refuses two of one name, and what is neither file nor link. */
int archive_read(struct archive *a, int work, int input, struct worker *w, struct err *e);

/* Opens the member of that name, or the one that it links to. The caller owns *ret_fd. */
int archive_open(const struct archive *a, const char *name, int *ret_fd, struct err *e);

/* Unpacks the image `tag` (NULL: the only one) of a docker-archive. */
int docker_unpack(struct worker *w, struct unpack *u, const char *tag, struct err *e);

void archive_done(struct archive *a);
