/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacks an untrusted tar archive below a directory with the rights of the process: in the sandbox
 * for `hutch cp` into it, in an unprivileged child on the host for copies out of it. Owners in the
 * archive are ignored. Rejected, with the entry's name: "..", absolute names, names that lead
 * through a symbolic link, hard links to files outside the directory, devices, FIFOs, set-ID bits,
 * a directory in place of a non-directory and the reverse, and archives beyond the limits.
 *
 * A file appears under its name when it is complete, and replaces a file or link of that name.
 * Existing directories keep their mode, time and contents.
 */
#pragma once

#include <sys/types.h>

#include "tar/tar.h"

enum {
	EXTRACT_BUFFER = 256 * 1024,
	EXTRACT_LEVELS = TAR_DEPTH_MAX + 1,
};

#define EXTRACT_ENTRIES_MAX UINT64_C(1000000)	 /* default limits */
#define EXTRACT_BYTES_MAX   (UINT64_C(64) << 30) /* includes the archive's headers */

/* Prefixes of incomplete files: NEW, or OLD if the file will replace an existing one. */
#define EXTRACT_TEMP_NEW ".hutch-new-"
#define EXTRACT_TEMP_OLD ".hutch-old-"

/* An open directory on the path from the root to the current directory. */
struct extract_level {
	int fd;
	size_t len; /* length of its name in `dir` */
	bool fresh; /* created here: gets mode and time when it is left */
	bool has_times;
	mode_t mode;
	uint64_t mtime;
};

struct extract {
	int root; /* owned by the caller */
	/*
	 * New name of the archive's only top-level entry; "." unpacks that directory's contents
	 * into the root. NULL: any number of top-level entries, under their own names.
	 */
	const char *top;
	bool directory;	   /* the top-level entry must be a directory */
	tar_read_fn *read; /* short reads are fine: this struct buffers */
	void *arg;
	int pipe; /* pipe that `read` reads, used to splice large files; -EBADF if not a pipe */
	uint64_t max_entries, max_bytes;
	void (*tick)(struct extract *x); /* called after each read; may be NULL */
	uint64_t entries, bytes;	 /* written so far; bytes of file contents */
	/* private */
	struct tar tar;
	struct tar_entry entry;
	char name[TAR_NAME_MAX + 1], target[TAR_NAME_MAX + 1]; /* below `root` */
	char first[TAR_PART_MAX + 1];			       /* top-level name in the archive */
	char dir[TAR_NAME_MAX + 1];			       /* name of the last level */
	struct extract_level levels[EXTRACT_LEVELS];
	size_t n_levels;
	uint64_t raw; /* archive bytes read */
	uint64_t temp;
	size_t have, taken;
	char buffer[EXTRACT_BUFFER], chunk[EXTRACT_BUFFER];
};

/*
 * Unpacks the archive to its end. The private members must be zero. Sets the umask of the process
 * to 0. After a failure, entries written before it remain, but no incomplete file.
 */
int extract_archive(struct extract *x, struct err *e);

/* ---- extract-dirs.c: for extract.c ---- */

/*
 * Opens the parent directory of the clean name `name` step by step without following links, and
 * creates missing directories. *ret_base is the last component. Returns a file descriptor that `x`
 * owns, or -errno; -ELOOP for a symbolic link in the path.
 */
int extract_parent(struct extract *x, const char *name, const char **ret_base);

/* Creates or enters the directory `name`. A created one gets mode and time when it is left. */
int extract_enter(struct extract *x, const char *name, mode_t mode, uint64_t mtime);

/* Leaves all directories except the first `n` levels. Returns 0 or the first -errno. */
int extract_leave(struct extract *x, size_t n);
