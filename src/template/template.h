/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates: images that are built by a recipe, in a sandbox. Nothing of them is kept in memory;
 * all is below templates/, beside the store of images, so whoever serves them may be killed at any
 * time. Each owner (the name of an API key) has a store with names of its own, in
 * templates/owners/OWNER; that of the operator is templates/ itself:
 *
 *   lock                  held (flock) while something below changes
 *
 *   names/NAME.json       a template: its id, and which build each of its tags means
 *
 *   builds/BUILD.json     a build: of which template, for which tags, how far it is
 *
 *   builds/BUILD.log      what it said, a line an entry; only ever appended to
 *
 *   files/TEMPLATE-HASH   an archive that a recipe copies, by the hash that its sender gave it
 *
 *   files/.new-RANDOM     one that is being sent; locked (flock) by who receives it; made while
 *                         files/ itself is locked, and not `lock`
 *
 *   shared/NAME.json      in the operator's alone: whose template, by its id, everybody may use
 *                         under this name
 *
 * The tree of a build that is ready is an image of the store, called TEMPLATE:BUILD.
 *
 * Every file but the log appears whole, by a rename. What is found there is read as strictly as
 * what comes from elsewhere.
 */
#pragma once

#include "image-store.h"

enum {
	TEMPLATE_ID = 20,	/* of [a-z0-9] */
	TEMPLATE_BUILD_ID = 36, /* a UUID */
	TEMPLATE_NAME_MAX = 63,
	TEMPLATE_HASH = 64, /* hex digits */

	/* of one owner */
	TEMPLATE_NAMES_MAX = 1024,
	TEMPLATE_TAGS_MAX = 64,	 /* of one template */
	TEMPLATE_ASKED_MAX = 16, /* tags of one build */
	TEMPLATE_BUILDS_MAX = 4096,
	TEMPLATE_CPUS_MAX = 1024,
	TEMPLATE_MEMORY_MAX = 1024 * 1024, /* MiB */
	TEMPLATE_TEXT_MAX = 4096,	   /* of a message; more is cut */
	TEMPLATE_STEP_MAX = 64,
	TEMPLATE_LOG_MAX =
		4 * 1024 * 1024,	  /* bytes of a build's log; what comes later is dropped */
	TEMPLATE_PAGE_MAX = 1000,	  /* entries that are read at once */
	TEMPLATE_PAGE_BYTES = 512 * 1024, /* of them, and one more */
	TEMPLATE_UPLOADS_MAX = 16,	  /* at once */
	TEMPLATE_FILES_MAX = 1024,
	TEMPLATE_SHARED_MAX = 1024,
};

#define TEMPLATE_FILE_BYTES (UINT64_C(1) << 30) /* of one archive */
#define TEMPLATE_FILES_BYTES \
	(UINT64_C(8) << 30)		  /* of an owner: those not used for longest go first */
#define TEMPLATE_KEEP_SEC UINT64_C(86400) /* for a build that no tag means */

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

/* As image_store_open(): what is missing is made if `make`, else -ENOENT. The operator is "". */
int template_store_open(struct template_store *s, const char *owner, bool make, struct err *e);
void template_store_close(struct template_store *s);

/* Calls `fn` with the store of every owner that has one, until it gives something else than 0,
 * which is returned. */
int template_each_store(int (*fn)(const struct template_store *s, void *arg, struct err *e),
			void *arg, struct err *e);

/* Opens the store that has the template of this id; a tag behind it does not matter. -ENOENT. */
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
	bool tagged;			    /* its tags mean it; only of one that is ready */
	char reason[TEMPLATE_TEXT_MAX + 1]; /* of an error */
	char step[TEMPLATE_STEP_MAX + 1];   /* of the recipe, where it happened; or "" */
	uint64_t created, ended;	    /* wall clock, ns; 0: not yet */
	uint64_t cpus, memory;		    /* MiB; 0: nobody has said */
};

struct template_request {
	const char *name;	 /* NAME or NAME:TAG; without a tag, "default" */
	const char *const *tags; /* more of them, NULL-terminated; may be NULL */
	uint64_t cpus, memory;
};

/*
 * A new build, which waits for its recipe, of a template that is made if there is none of that
 * name. -EINVAL for what is no name or number; -EUSERS at the limits above.
 */
int template_begin(const struct template_store *s, const struct template_request *q,
		   struct template_build *ret, struct err *e);

/* Can this be the id of a build? */
bool template_build_valid(const char *build);

/* The build of a template. -ENOENT. */
int template_get(const struct template_store *s, const char *template, const char *build,
		 struct template_build *ret, struct err *e);

/* Its recipe has come: waiting becomes building; -EALREADY if it was not waiting. */
int template_building(const struct template_store *s, const char *template, const char *build,
		      struct err *e);

/*
 * It is over: with a `reason`, an error (at `step`, unless that is NULL); without one ready, and
 * its tags mean it from now on. -EALREADY if it was not building.
 */
int template_end(const struct template_store *s, const char *template, const char *build,
		 const char *reason, const char *step, struct err *e);

/*
 * After the end of whoever served: builds that nobody builds any more are errors, with this reason;
 * one that became ready gets the tags that it has not got yet.
 */
int template_recover(const struct template_store *s, const char *reason, struct err *e);

/*
 * Removes builds that are over, or were never begun, for a day, and that no tag means. `took` is
 * told the image of each: whoever calls removes that.
 */
int template_clean(const struct template_store *s, uint64_t now,
		   void (*took)(const char *image, void *arg), void *arg, struct err *e);

/* The name of its image in the store. */
void template_image(const struct template_build *b, char ret[static IMAGE_NAME_MAX + 1]);

/* ---- names and tags ---- */

/*
 * What `ref` means to an owner who wants a sandbox: the build that it means in the owner's store,
 * else the image of that name, which is the operator's, else what is shared under that name, else
 * that name, which nobody has. -EINVAL, or what keeps one of these from being read; -ENOENT for the
 * image of a build, which is found by its template only.
 */
int template_find_image(const char *owner, const char *ref, char ret[static IMAGE_NAME_MAX + 1],
			struct err *e);

/* Whether it is what the image of a build is called. */
bool template_is_image(const char *name);

/*
 * The build that NAME, NAME:TAG, ID or ID:TAG means. -ENOENT if there is none, or none that is
 * ready.
 */
int template_resolve(const struct template_store *s, const char *ref, struct template_build *ret,
		     struct err *e);

/* The id of the template NAME or ID, whether it has a build or not. -ENOENT. */
int template_find(const struct template_store *s, const char *ref, char ret[static TEMPLATE_ID + 1],
		  struct err *e);

/* Lets more tags mean what `ref` means; *ret is that build. */
int template_tag(const struct template_store *s, const char *ref, const char *const *tags,
		 struct template_build *ret, struct err *e);

/* Takes tags from the template NAME or ID. -ENOENT if it has not got one of them: none is taken. */
int template_untag(const struct template_store *s, const char *ref, const char *const *tags,
		   struct err *e);

/* [{id, name, when, tags: {TAG: {build, when}}}] (times in ns): of one, or of all (NULL), sorted.
 */
int template_list(const struct template_store *s, const char *ref, json_t **ret, struct err *e);

/* The template NAME or ID is no more. Its builds go with the next template_clean(). */
int template_remove(const struct template_store *s, const char *ref, struct err *e);

/* ---- what everybody may use ---- */

/* The template NAME or ID of this store, under its name. -EEXIST if another one of that name is
 * shared already. */
int template_share(const struct template_store *s, const char *ref, struct err *e);

/* -ENOENT if it was not shared. */
int template_unshare(const char *name, struct err *e);

/* Whose template, and which, is shared under this name. -ENOENT, also if it is gone. */
int template_shared(const char *name, char owner[static TEMPLATE_NAME_MAX + 1],
		    char id[static TEMPLATE_ID + 1], struct err *e);

/* The names, an array of texts, sorted. */
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

/* [{time (ns), level, message, step?}]: at most `max` entries from number `from` on, and fewer if
 * they are long. No log is an empty one. */
int template_log_read(const struct template_store *s, const char *build, uint64_t from, size_t max,
		      json_t **ret, struct err *e);

/* ---- files of recipes ---- */

/* For reading; it counts as used now. -ENOENT. */
int template_file_open(const struct template_store *s, const char *template, const char *hash,
		       int *ret_fd, struct err *e);

/* One that is being sent. */
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
 * `expected`: how many bytes come, 0 if nobody knows. -EFBIG for more than one may have, -EBUSY for
 * too many at once. What others left of uploads that were cut short is removed. Never waits for a
 * lock: -EAGAIN if another process begins one at this moment.
 */
int template_upload_begin(const struct template_store *s, const char *template, const char *hash,
			  uint64_t expected, struct template_upload *ret, struct err *e);
int template_upload_write(struct template_upload *u, const void *data, size_t n, struct err *e);

/*
 * All has come: it is kept, and what was not used for longest goes if that is needed. It waits for
 * the disk and for the lock. A child may call it, with a store that it has opened itself: `u` is
 * read only, its descriptor is not used, and whoever began it calls template_upload_drop().
 */
int template_upload_end(const struct template_store *s, const struct template_upload *u,
			struct err *e);

/* Gives up what has not ended, and closes its descriptor. */
void template_upload_drop(struct template_upload *u);
