/* SPDX-License-Identifier: Apache-2.0 */
/* Creates images: built from a spec with mmdebstrap, imported from a file, or sent by a sandbox. */
#pragma once

#include "image/image-spec.h"
#include "image/image-store.h"
#include "image/job.h"

struct image_done {
	char digest[IMAGE_DIGEST_HEX + 1];
	bool up_to_date; /* nothing had to be done */
	bool is_new;	 /* no image had this tree before */
	struct image_counts counts;
	struct tree_info tree;
};

struct image_build {
	const struct image_store *store;
	const struct image_spec *spec;
	const char *mirror; /* overrides the spec's mirrors; may be NULL */
	bool force;	    /* build even if nothing changed */
	struct image_reporter reporter;
};

/*
 * Builds the image and names it. Keeps mmdebstrap's messages in logs/NAME.log. -EINVAL: the built
 * tree was refused; -EIO: mmdebstrap failed; -ENOENT: a program is not installed; or -errno.
 */
int image_build(const struct image_build *b, struct image_done *ret, struct err *e);

/*
 * Imports `path`: a tar archive, uncompressed or with gzip, zstd or xz, that holds a root tree or
 * images; or the directory of an OCI layout. ":TAG" after the path selects one of several images.
 */
int image_import(const struct image_store *store, const char *name, const char *path,
		 struct image_reporter reporter, struct image_done *ret, struct err *e);

/* How to run an image, as far as it differs from its base image. NULL: as the base image. */
struct image_config {
	const char *const
		*env; /* NAME=value, NULL-terminated; overrides the base image's, name by name */
	const char *user, *workdir;
	const char *start, *ready; /* for /bin/sh -c: start command, and its readiness check */
};

/* A root tree sent as a stream. */
struct image_stream {
	const struct image_store *store;
	const char *name;
	int input;	     /* a pipe with an uncompressed archive; closed in any case */
	const json_t *from;  /* image_store_get() of the base image */
	const char *sandbox; /* id of the sending sandbox */
	struct image_config config;
	/*
	 * Called when the archive was read or refused (`r`), before anything is stored: 0 if the
	 * sender succeeded; otherwise its return value, with `e` set, is the result. It also
	 * returns 0 if the sender's failure only follows from `r`.
	 */
	int (*ended)(void *arg, int r, struct err *e);
	void *arg;
	struct image_reporter reporter;
};

/* Creates an image from it. The archive must pass the rules for imports. */
int image_import_stream(const struct image_stream *s, struct image_done *ret, struct err *e);

/* Shared by all of these: runs the job in a new work directory and stores the result under `name`.
 */
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

/* Removes leftovers and creates the work directory. */
int image_making_start(struct image_making *m, const struct image_store *store, struct err *e);

/* Call after a successful job. Takes `info`, the contents of the name's file. */
int image_making_keep(struct image_making *m, const char *name, json_t *info,
		      struct image_done *ret, struct err *e);

/* Call at the end in any case. */
void image_making_done(struct image_making *m);

#define _cleanup_making_ _cleanup_(image_making_done)
