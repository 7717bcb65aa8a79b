/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacks a tar archive of somebody else's below a directory, as whoever runs it: in a sandbox for
 * what is copied in, in a child without power on the host for what is copied out. Owners in the
 * archive mean nothing. Refused, with the entry's name: "..", absolute names, what lies behind a
 * symbolic link, hard links to what is not below the directory, devices, FIFOs, set-ID bits, a
 * directory in the place of something else and the reverse, and more than the limits allow.
 *
 * A file appears under its name when it is complete, in the place of the file or link of that name
 * if there is one. Directories that are there already stay as they are, with what is in them.
 */
#pragma once

#include <sys/types.h>

#include "tar.h"

enum {
	EXTRACT_BUFFER = 256 * 1024,
	EXTRACT_LEVELS = TAR_DEPTH_MAX + 1,
};

#define EXTRACT_ENTRIES_MAX UINT64_C(1000000)	 /* where nobody says otherwise */
#define EXTRACT_BYTES_MAX   (UINT64_C(64) << 30) /* of the archive, with its headers */

/* What a file is called before it is complete: whether it replaces something is in its name. */
#define EXTRACT_TEMP_NEW ".hutch-new-"
#define EXTRACT_TEMP_OLD ".hutch-old-"

/* A directory on the way to where entries are written. */
struct extract_level {
	int fd;
	size_t len; /* of its name in `dir` */
	bool fresh; /* made by us: the rest is set when it is left */
	bool has_times;
	mode_t mode;
	uint64_t mtime;
};

struct extract {
	int root; /* stays the caller's */
	/*
	 * What the archive's one top is to be called, whatever it is called there: "." puts what is
	 * in it into the root. NULL: any number of tops, under the names that they have.
	 */
	const char *top;
	bool directory;	   /* the top must be one */
	tar_read_fn *read; /* need not fill what it is given: this buffers */
	void *arg;
	int pipe; /* what `read` reads, if that is a pipe: large files go past it. Else -EBADF */
	uint64_t max_entries, max_bytes;
	void (*tick)(struct extract *x); /* now and then; may be NULL */
	uint64_t entries, bytes;	 /* written so far: bytes of files */
	/* private */
	struct tar tar;
	struct tar_entry entry;
	char name[TAR_NAME_MAX + 1], target[TAR_NAME_MAX + 1]; /* below `root` */
	char first[TAR_PART_MAX + 1];			       /* what the archive calls its top */
	char dir[TAR_NAME_MAX + 1];			       /* of the last level */
	struct extract_level levels[EXTRACT_LEVELS];
	size_t n_levels;
	uint64_t raw; /* bytes of the archive */
	uint64_t temp;
	size_t have, taken;
	char buffer[EXTRACT_BUFFER], chunk[EXTRACT_BUFFER];
};

/*
 * Reads the archive to its end; all that is private is zero before. The mask of the process
 * (umask(2)) becomes 0. What was written before a failure stays, but no half of a file.
 */
int extract_archive(struct extract *x, struct err *e);

/* ---- extract-dirs.c: for extract.c ---- */

/*
 * The directory of the clean name `name`, opened step by step without following a link; missing
 * ones are made. *ret_base is the last component. The descriptor stays that of `x`; -errno, and
 * -ELOOP for a symbolic link on the way.
 */
int extract_parent(struct extract *x, const char *name, const char **ret_base);

/* Makes or enters the directory `name` itself, which gets mode and time when it is left. */
int extract_enter(struct extract *x, const char *name, mode_t mode, uint64_t mtime);

/* Leaves every directory but the first `n` levels. 0 or -errno. */
int extract_leave(struct extract *x, size_t n);
