/* SPDX-License-Identifier: Apache-2.0 */
/* hutch cp: copies in by packing here and unpacking in the sandbox, copies out the other way round.
 */
#pragma once

#include "cli/cli.h"
#include "client/transfer.h"

struct copy {
	struct transfer t;
	const char *user;		 /* user in the sandbox; NULL: its default */
	uint64_t max_entries, max_bytes; /* limits for copying out */
	uint64_t entries, bytes;	 /* so far */
	char note[ERR_MSG_MAX];		 /* omitted files; from the sandbox: escape it */
	/* progress line on the terminal */
	bool show, drawn;
	uint64_t began, told; /* clock_mono() */
};

#define COPY_INIT                          \
	{                                  \
		.t = TRANSFER_INIT(-EBADF) \
	}

/* Packs the local `src` ("-": standard input is the archive) into `dst` of the sandbox. */
int copy_in(struct copy *c, const char *src, const char *dst, struct err *e);

/* Unpacks `src` of the sandbox at the local `dst` ("-": writes the archive to standard output). */
int copy_out(struct copy *c, const char *src, const char *dst, struct err *e);

/* Shows progress, if stderr is a terminal. */
void copy_tick(struct copy *c, uint64_t entries, uint64_t bytes);

/*
 * Returns the name for the target of a path: the last component, or "." for the contents of a
 * directory: "/", "a/.", "..". False if it is too long.
 */
bool copy_base(const char *path, char *out, size_t n);
