/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates of the E2B API: images that a recipe builds in a sandbox. All state is in files below
 * templates/, beside the image store, so the server may be killed at any time. Each owner (the name
 * of an API key) has a store with its own names, templates/owners/OWNER; the operator's store is
 * templates/ itself:
 *
 *   lock                  flock held while files below change
 *
 *   names/NAME.json       a template: its id, and the build of each of its tags
 *
 *   builds/BUILD.json     a build: its template, tags and status
 *
 *   builds/BUILD.log      its log, one entry per line; append-only
 *
 *   files/TEMPLATE-HASH   an archive that a recipe copies, named by the sender's hash
 *
 *   files/.new-RANDOM     an upload in progress; the receiver holds a flock on it. It is created
 *                         under a flock on files/, not under `lock`
 *
 *   shared/NAME.json      operator's store only: owner and id of the template that all owners may
 *                         use under this name
 *
 * The result of a ready build is an image named TEMPLATE:BUILD.
 *
 * Every file except the log is replaced atomically, by a rename. Files are parsed as strictly as
 * untrusted input.
 */
#pragma once

#include "image/image-store.h"

enum {
	TEMPLATE_ID = 20,	/* [a-z0-9] */
	TEMPLATE_BUILD_ID = 36, /* a UUID */
	TEMPLATE_NAME_MAX = 63,
	TEMPLATE_HASH = 64, /* hex digits */

	/* limits per owner */
	TEMPLATE_NAMES_MAX = 1024,
	TEMPLATE_TAGS_MAX = 64,	 /* per template */
	TEMPLATE_ASKED_MAX = 16, /* tags per build */
	TEMPLATE_BUILDS_MAX = 4096,
	TEMPLATE_CPUS_MAX = 1024,
	TEMPLATE_MEMORY_MAX = 1024 * 1024, /* MiB */
	TEMPLATE_TEXT_MAX = 4096,	   /* bytes of a message; longer ones are cut */
	TEMPLATE_STEP_MAX = 64,
	TEMPLATE_LOG_MAX = 4 * 1024 * 1024, /* bytes of a build's log; later entries are dropped */
	TEMPLATE_PAGE_MAX = 1000,	    /* log entries per read */
	TEMPLATE_PAGE_BYTES = 512 * 1024,   /* a read ends with the entry that reaches this size */
	TEMPLATE_UPLOADS_MAX = 16,	    /* at once */
	TEMPLATE_FILES_MAX = 1024,
	TEMPLATE_SHARED_MAX = 1024,
};

#define TEMPLATE_FILE_BYTES  (UINT64_C(1) << 30) /* per archive */
#define TEMPLATE_FILES_BYTES (UINT64_C(8) << 30) /* per owner; least recently used are removed */
#define TEMPLATE_KEEP_SEC    UINT64_C(86400)	 /* lifetime of a build without a tag */

struct template_store {
	char path[IMAGE_HOME_MAX]; /* for messages */
	char owner[TEMPLATE_NAME_MAX + 1];
	int dir, names, builds, files;
};

#define TEMPLATE_STORE_INIT                                                       \
	{                                                                         \
		.dir = -EBADF, .names = -EBADF, .builds = -EBADF, .files = -EBADF \
	}
#define _cleanup_template_store_ _cleanup_(template_store_close)

/*
 * Opens an owner's store, or the operator's (""). Like image_store_open(): creates missing
 * directories if `make`, otherwise -ENOENT.
 */
int template_store_open(struct template_store *s, const char *owner, bool make, struct err *e);
void template_store_close(struct template_store *s);

/* Calls `fn` with every existing store until it returns nonzero, and returns that value. */
int template_each_store(int (*fn)(const struct template_store *s, void *arg, struct err *e),
			void *arg, struct err *e);

/* Opens the store that contains the template of this id; ignores a tag after it. -ENOENT. */
int template_store_with(struct template_store *s, const char *ref, struct err *e);

/* ---- builds ---- */

enum template_status {
	TEMPLATE_WAITING, /* for its recipe */
	TEMPLATE_BUILDING,
	TEMPLATE_READY,
	TEMPLATE_ERROR,
	TEMPLATE_STATUS_MAX,
};

extern const char *const template_status_names[TEMPLATE_STATUS_MAX];

struct template_build {
	char template[TEMPLATE_ID + 1];
	char build[TEMPLATE_BUILD_ID + 1];
	char name[TEMPLATE_NAME_MAX + 1];
	char tags[TEMPLATE_ASKED_MAX][TEMPLATE_NAME_MAX + 1];
	size_t n_tags;
	enum template_status status;
	bool tagged;			    /* its tags point to it; only if ready */
	char reason[TEMPLATE_TEXT_MAX + 1]; /* error message */
	char step[TEMPLATE_STEP_MAX + 1];   /* recipe step that failed, or "" */
	uint64_t created, ended;	    /* wall clock, ns; 0: not yet */
	uint64_t cpus, memory;		    /* MiB; 0: not given */
};

struct template_request {
	const char *name;	 /* NAME or NAME:TAG; the default tag is "default" */
	const char *const *tags; /* more tags, NULL-terminated; may be NULL */
	uint64_t cpus, memory;
};

/*
 * Creates a build that waits for its recipe, and the template if the name is new. -EINVAL for an
 * invalid name or number, -EUSERS at the limits above.
 */
int template_begin(const struct template_store *s, const struct template_request *q,
		   struct template_build *ret, struct err *e);

/* Is this a well-formed build id? */
bool template_build_valid(const char *build);

/* Reads a template's build. -ENOENT. */
int template_get(const struct template_store *s, const char *template, const char *build,
		 struct template_build *ret, struct err *e);

/* The recipe has arrived: waiting becomes building. -EALREADY if the build was not waiting. */
int template_building(const struct template_store *s, const char *template, const char *build,
		      struct err *e);

/*
 * Ends a build: with a `reason` as failed (at `step`, which may be NULL), without one as ready, and
 * moves its tags to it. -EALREADY if it was not building.
 */
int template_end(const struct template_store *s, const char *template, const char *build,
		 const char *reason, const char *step, struct err *e);

/*
 * Cleans up after a server that was killed: unfinished builds become errors with this reason, and
 * ready builds get the tags that they still lack.
 */
int template_recover(const struct template_store *s, const char *reason, struct err *e);

/*
 * Removes builds without a tag that ended, or were created and never begun, at least a day ago.
 * Calls `took` (may be NULL) with the image of each, which the caller must remove.
 */
int template_clean(const struct template_store *s, uint64_t now,
		   void (*took)(const char *image, void *arg), void *arg, struct err *e);

/* Name of the build's image in the store. */
void template_image(const struct template_build *b, char ret[static IMAGE_NAME_MAX + 1]);

/* ---- names and tags ---- */

/*
 * Finds the image that `ref` means when `owner` creates a sandbox. In this order: the build in the
 * owner's store; the operator's image of that name; the shared template of that name; otherwise
 * `ref` itself, although it does not exist. Returns -EINVAL, the error of reading one of these, or
 * -ENOENT for the image name of a build, which can only be reached through its template.
 */
int template_find_image(const char *owner, const char *ref, char ret[static IMAGE_NAME_MAX + 1],
			struct err *e);

/* Does the name have the form of a build's image, TEMPLATE:BUILD? */
bool template_is_image(const char *name);

/* Finds the ready build for NAME, NAME:TAG, ID or ID:TAG. -ENOENT if there is none. */
int template_resolve(const struct template_store *s, const char *ref, struct template_build *ret,
		     struct err *e);

/* Returns the id of the template NAME or ID, which need not have a build. -ENOENT. */
int template_find(const struct template_store *s, const char *ref, char ret[static TEMPLATE_ID + 1],
		  struct err *e);

/* Points more tags to the build that `ref` means; *ret is that build. */
int template_tag(const struct template_store *s, const char *ref, const char *const *tags,
		 struct template_build *ret, struct err *e);

/* Removes tags of the template NAME or ID. -ENOENT, and no change, if one of them is missing. */
int template_untag(const struct template_store *s, const char *ref, const char *const *tags,
		   struct err *e);

/*
 * Lists the template `ref`, or all (NULL) sorted by name:
 * [{id, name, when, tags: {TAG: {build, when}}}], times in ns.
 */
int template_list(const struct template_store *s, const char *ref, json_t **ret, struct err *e);

/* Removes the template NAME or ID. The next template_clean() removes its builds. */
int template_remove(const struct template_store *s, const char *ref, struct err *e);

/* ---- templates shared with all owners ---- */

/* Shares the template NAME or ID of this store under its name. -EEXIST if the name is in use. */
int template_share(const struct template_store *s, const char *ref, struct err *e);

/* Stops sharing a template. -ENOENT if it was not shared. */
int template_unshare(const char *name, struct err *e);

/* Returns owner and id of the template shared under this name. -ENOENT, also if it was removed. */
int template_shared(const char *name, char owner[static TEMPLATE_NAME_MAX + 1],
		    char id[static TEMPLATE_ID + 1], struct err *e);

/* Lists the shared names as a sorted array of strings. */
int template_shared_list(json_t **ret, struct err *e);

/* ---- the log of a build ---- */

enum template_level {
	TEMPLATE_DEBUG,
	TEMPLATE_INFO,
	TEMPLATE_WARN,
	TEMPLATE_FAILURE,
	TEMPLATE_LEVEL_MAX,
};

/* Appends an entry; `step` may be NULL. What is not UTF-8 becomes '?'. 0 also where the log is
 * full.
 */
int template_log(const struct template_store *s, const char *build, enum template_level level,
		 const char *step, const char *message, struct err *e);

/*
 * Returns [{time (ns), level, message, step?}]: at most `max` entries from number `from` on, fewer
 * if they are long. A missing log reads as an empty one.
 */
int template_log_read(const struct template_store *s, const char *build, uint64_t from, size_t max,
		      json_t **ret, struct err *e);

/* ---- files of recipes ---- */

/* Opens an archive for reading, and marks it as used now. -ENOENT. */
int template_file_open(const struct template_store *s, const char *template, const char *hash,
		       int *ret_fd, struct err *e);

struct template_upload {
	const struct template_store *store;
	char name[TEMPLATE_ID + TEMPLATE_HASH + 2];
	char temp[TEMPLATE_BUILD_ID + 8];
	int fd;
	uint64_t size;
};

#define TEMPLATE_UPLOAD_INIT  \
	{                     \
		.fd = -EBADF, \
	}
#define _cleanup_template_upload_ _cleanup_(template_upload_drop)

/*
 * Begins an upload of `expected` bytes (0: unknown), and removes the files of interrupted uploads.
 * -EFBIG above TEMPLATE_FILE_BYTES, -EBUSY above TEMPLATE_UPLOADS_MAX. Never waits for a lock:
 * -EAGAIN if another process begins an upload at this moment.
 */
int template_upload_begin(const struct template_store *s, const char *template, const char *hash,
			  uint64_t expected, struct template_upload *ret, struct err *e);
int template_upload_write(struct template_upload *u, const void *data, size_t n, struct err *e);

/*
 * Completes an upload: gives the file its name, and removes the least recently used files if space
 * is needed. Waits for the disk and for the lock, so a child process may call it, with a store that
 * the child opened itself. It does not use u->fd; the process that began the upload still calls
 * template_upload_drop().
 */
int template_upload_end(const struct template_store *s, const struct template_upload *u,
			struct err *e);

/* Removes the file of an incomplete upload, and closes its file descriptor. */
void template_upload_drop(struct template_upload *u);
