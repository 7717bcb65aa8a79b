/* SPDX-License-Identifier: Apache-2.0 */
/* New images: built from a spec with mmdebstrap, imported from a file, or sent by a sandbox. */
#pragma once

#include "image-spec.h"
#include "image-store.h"
#include "job.h"

struct image_done {
	char digest[IMAGE_DIGEST_HEX + 1];
	bool up_to_date; /* nothing was done */
	bool is_new;	 /* no image had this tree before */
	struct image_counts counts;
	struct tree_info tree;
};

struct image_build {
	const struct image_store *store;
	const struct image_spec *spec;
	const char *mirror; /* instead of those of the spec; may be NULL */
	bool force;	    /* also when nothing has changed */
	struct image_reporter reporter;
};

/*
 * Builds the image and names it. What mmdebstrap says is kept in logs/NAME.log. -EINVAL: what it
 * made was refused; -EIO: it failed; -ENOENT: something is not installed, or -errno.
 */
int image_build(const struct image_build *b, struct image_done *ret, struct err *e);

/*
 * Imports a root tree: `path` is a tar archive, as it is or compressed with gzip, zstd or xz, or
 * the directory of an OCI layout, with ":TAG" behind it if it has several images.
 */
int image_import(const struct image_store *store, const char *name, const char *path,
		 struct image_reporter reporter, struct image_done *ret, struct err *e);

/* How an image is run, where that differs from the image it comes from. NULL: as that says. */
struct image_config {
	const char *const *env; /* NAME=value, NULL-terminated; over that one's, name by name */
	const char *user, *workdir;
	const char *start,
		*ready; /* for /bin/sh -c: what runs in it, and what tells that it does */
};

/* A root tree that somebody is sending. */
struct image_stream {
	const struct image_store *store;
	const char *name;
	int input;	     /* a pipe with the archive as it is; closed in any case */
	const json_t *from;  /* what image_store_get() says of the image it comes from */
	const char *sandbox; /* that it was in */
	struct image_config config;
	/*
	 * Called when the archive has been read or refused (`r`), before anything is kept: 0 if the
	 * sender has ended well; else what it returns with `e` set is the result. Only where a
	 * failure of the sender is but a consequence of `r` does it return 0 for that.
	 */
	int (*ended)(void *arg, int r, struct err *e);
	void *arg;
	struct image_reporter reporter;
};

/* Makes an image of it. The archive is held to the rules of every import. */
int image_import_stream(const struct image_stream *s, struct image_done *ret, struct err *e);

/* For all of these: runs the job in a new work directory and keeps what it makes under `name`. */
struct image_making {
	const struct image_store *store;
	struct id_ranges ids;
	struct image_work work;
	struct image_job job;
	struct job_result result;
};

#define IMAGE_MAKING_INIT(s)                           \
	{                                              \
		.store = (s), .work = IMAGE_WORK_INIT, \
		.job = {.input = -EBADF,               \
			.layout = -EBADF,              \
			.news = -EBADF,                \
			.log = -EBADF }                \
	}

/* Removes left-overs, and makes the work directory. */
int image_making_start(struct image_making *m, const struct image_store *store, struct err *e);

/* After a successful job. Takes `info`: what the name says of itself. */
int image_making_keep(struct image_making *m, const char *name, json_t *info,
		      struct image_done *ret, struct err *e);

/* Always, at the end. */
void image_making_done(struct image_making *m);

#define _cleanup_making_ _cleanup_(image_making_done)
