/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict reader of tar archives: ustar, pax and GNU long names. Bytes come from a callback; the
 * reader allocates nothing and makes no syscalls. It rejects everything ambiguous, because files
 * can get past a check if two readers interpret an archive differently: wrong checksums, numbers
 * that are not octal, two names for one entry, NUL in a name, sparse files, old formats without a
 * magic, a missing end, bytes after the end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
	TAR_BLOCK = 512,
	TAR_NAME_MAX = 4095,	    /* bytes of a name or link target */
	TAR_PART_MAX = 255,	    /* bytes of one component */
	TAR_DEPTH_MAX = 128,	    /* components of a name */
	TAR_PAX_MAX = 1024 * 1024,  /* bytes of one extended header */
	TAR_RECORD_MAX = 64 * 1024, /* longer records of it are skipped or rejected unread */
};

#define TAR_SIZE_MAX (UINT64_C(1) << 42) /* largest file size accepted in a header */
#define TAR_ID_MAX   UINT64_C(0xffffffff)

enum tar_type {
	TAR_FILE,
	TAR_HARDLINK,
	TAR_SYMLINK,
	TAR_DIR,
	TAR_DEVICE,
	TAR_FIFO,
};

struct tar_entry {
	enum tar_type type;
	char name[TAR_NAME_MAX + 1]; /* clean: relative, no ".", "..", "//"; "." is the root */
	char link[TAR_NAME_MAX + 1]; /* hard link: clean; symbolic link: verbatim */
	uint32_t mode;		     /* 07777 */
	uint32_t uid, gid;
	uint64_t size; /* TAR_FILE: bytes to be read with tar_read() */
	uint64_t mtime;
	unsigned int xattrs; /* number of extended attributes, which are dropped */
};

/* Returns 1 to n bytes read, 0 at the end, or -errno with `e` set. */
typedef int64_t tar_read_fn(void *arg, void *buf, size_t n, struct err *e);

struct tar {
	tar_read_fn *read;
	void *arg;
	bool relative;	  /* reject absolute names; otherwise drop their leading slash */
	uint64_t entries; /* headers so far, for messages */
	uint64_t left;	  /* unread bytes of the entry's data */
	uint32_t padding; /* bytes after the data */
	bool ended;
};

/* Reads the next entry: 1, 0 at the end of the archive, -EINVAL for an invalid one, or -errno. */
int tar_next(struct tar *t, struct tar_entry *ret, struct err *e);

/* Reads data of the current entry: 1 to n bytes, 0 at the end, or -errno. */
int64_t tar_read(struct tar *t, void *buf, size_t n, struct err *e);

/*
 * Converts an entry's name to its canonical form: removes leading "/" and "./" and a final slash,
 * turns "//" and "/./" into "/" and an empty name into ".". Rejects "..", NUL, and names that are
 * too long or too deep.
 */
int tar_clean_name(const char *name, size_t n, char out[static TAR_NAME_MAX + 1], struct err *e);
