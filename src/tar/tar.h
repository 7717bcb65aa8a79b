/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict reader of tar archives: ustar, pax and GNU long names. Pure: bytes come from a callback,
 * nothing is allocated and no system call is made. What is ambiguous is refused, because two
 * readers that understand one archive differently are how files get past a check: wrong checksums,
 * numbers that are not octal, two names for one entry, NUL in a name, sparse files, old formats
 * without a magic, a missing end, bytes behind the end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

enum {
	TAR_BLOCK = 512,
	TAR_NAME_MAX = 4095,	    /* bytes of a name or link target */
	TAR_PART_MAX = 255,	    /* of one component */
	TAR_DEPTH_MAX = 128,	    /* components */
	TAR_PAX_MAX = 1024 * 1024,  /* of one extended header */
	TAR_RECORD_MAX = 64 * 1024, /* of a record in it that is read rather than skipped */
};

#define TAR_SIZE_MAX (UINT64_C(1) << 42) /* of one file, as a header may claim */
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
	char link[TAR_NAME_MAX + 1]; /* hard link: clean; symbolic link: as it is */
	uint32_t mode;		     /* 07777 */
	uint32_t uid, gid;
	uint64_t size; /* TAR_FILE: bytes to be read with tar_read() */
	uint64_t mtime;
	unsigned int xattrs; /* extended attributes, of which nothing is kept */
};

/* Gives 1 to n bytes, 0 at the end, or -errno with `e` set. */
typedef int64_t tar_read_fn(void *arg, void *buf, size_t n, struct err *e);

struct tar {
	tar_read_fn *read;
	void *arg;
	bool relative;	  /* absolute names are refused, rather than taken as relative ones */
	uint64_t entries; /* headers so far, for messages */
	uint64_t left;	  /* of the entry's data */
	uint32_t padding; /* behind it */
	bool ended;
};

/* The next entry: 1, 0 at the end of the archive, or -EINVAL for what is not an archive. */
int tar_next(struct tar *t, struct tar_entry *ret, struct err *e);

/* Data of the entry at hand: 1 to n bytes, 0 at its end, or -errno. */
int64_t tar_read(struct tar *t, void *buf, size_t n, struct err *e);

/*
 * The name of an entry in its one form: leading "/" and "./" go, "//" and "/./" become "/", a slash
 * at the end goes, nothing at all becomes ".". Refused: "..", NUL, what is too long or too deep.
 */
int tar_clean_name(const char *name, size_t n, char out[static TAR_NAME_MAX + 1], struct err *e);
