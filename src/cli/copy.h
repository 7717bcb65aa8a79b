/* SPDX-License-Identifier: Apache-2.0 */
/* hutch cp: what goes in is packed here and unpacked in the sandbox, what comes out the other way.
 */
#pragma once

#include "cli/cli.h"
#include "client/transfer.h"

struct copy {
	struct transfer t;
	const char *user;		 /* in the sandbox; NULL: its own */
	uint64_t max_entries, max_bytes; /* of what comes out */
	uint64_t entries, bytes;	 /* so far */
	char note[ERR_MSG_MAX];		 /* what was left out; from the sandbox: escape it */
	/* A line on the terminal. */
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

/* Shows how far it is, where somebody looks at it. */
void copy_tick(struct copy *c, uint64_t entries, uint64_t bytes);

/*
 * The name that a path gives to what it leads to: the last component, or "." for what is in a
 * directory: "/", "a/.", "..". False if it is too long.
 */
bool copy_base(const char *path, char *out, size_t n);
