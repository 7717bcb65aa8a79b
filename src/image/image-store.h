/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where images are kept:
 *   lock                     held (flock) while something below changes
 *   trees/sha256-HEX/        meta.json, and the tree in root/
 *   names/NAME.json          which tree a name means, where it comes from, how to run it
 *   logs/NAME.log            what mmdebstrap said when it was last built
 *   tmp/RANDOM/              a tree in the making, or one on its way out; locked by whoever works
 *                            on it. What nobody locks is left over and is removed by the next
 * build. A tree appears in trees/ by one rename, whole and on disk, and a name by another: whenever
 * a process dies, there is no half image.
 */
#pragma once

#include "ids.h"
#include "image.h"
#include "json-util.h"

enum {
	WORK_NAME = 32,
	IMAGE_NAME_MAX = 127, /* NAME:TAG */
	IMAGE_HOME_MAX = 1024,
};

/*
 * NAME or NAME:TAG. NAME has 1 to 63 of a-z, 0-9, '_' and '-', and a tag those, capitals and '.';
 * neither begins with a sign. So a name is also a file's, and no two are one.
 */
bool image_name_valid(const char *name);

/* For messages: what image_name_valid() wants. */
#define IMAGE_NAME_RULE "names have 1 to 63 of a-z, 0-9, '_' and '-', and perhaps a tag: NAME:TAG"

struct image_store {
	char path[IMAGE_HOME_MAX]; /* for messages */
	int dir, trees, names, tmp, logs;
};

#define IMAGE_STORE_INIT                                                                       \
	{                                                                                      \
		.dir = -EBADF, .trees = -EBADF, .names = -EBADF, .tmp = -EBADF, .logs = -EBADF \
	}
#define _cleanup_image_store_ _cleanup_(image_store_close)

/*
 * Opens a directory of what this user's hutch keeps, $HUTCH_STATE_DIR/NAME and so on as below; its
 * path is for messages. -EPERM if others could write there.
 */
int image_home_open(const char *name, bool make, char path[static IMAGE_HOME_MAX], int *ret_fd,
		    struct err *e);

/* The same for a directory in such a one. */
int image_home_dir(int at, const char *name, bool make, int *ret_fd, struct err *e);

/* Locks such a directory, whose `path` is for messages, until the descriptor is closed. */
int image_home_lock(int dir, const char *path, int *ret_fd, struct err *e);

/*
 * Calls `fn` with the NAME of every file NAME.json in the directory names/ of `path`, until it
 * returns something else than 0.
 */
typedef int image_name_fn(const void *store, const char *name, void *arg, struct err *e);
int image_home_names(int names, const char *path, image_name_fn *fn, const void *store, void *arg,
		     struct err *e);

/*
 * Opens the store of this user: $HUTCH_STATE_DIR/images, as root /var/lib/hutch/images, else
 * $XDG_DATA_HOME/hutch/images. What is missing is made if `make`, else -ENOENT. -EPERM if others
 * could write there.
 */
int image_store_open(struct image_store *s, bool make, struct err *e);
void image_store_close(struct image_store *s);

/* Held until the descriptor is closed. */
int image_store_lock(const struct image_store *s, int *ret_fd, struct err *e);

/* A directory of tmp/ for a new tree. */
struct image_work {
	char name[WORK_NAME + 1];
	int fd; /* the directory; locked */
};

#define IMAGE_WORK_INIT       \
	{                     \
		.fd = -EBADF, \
	}

int image_work_new(const struct image_store *s, struct image_work *ret, struct err *e);

/* Removes the directory and what is in it. */
int image_work_drop(const struct image_store *s, struct image_work *w, const struct id_ranges *ids,
		    struct err *e);

/* Removes what dead processes left in tmp/; `took`, if not NULL, is told each name. */
int image_store_clean(const struct image_store *s, const struct id_ranges *ids,
		      void (*took)(const char *name, void *arg), void *arg, struct err *e);

/* Asked before a tree goes: -EBUSY, with who needs it, if it is to stay. */
typedef int image_needed_fn(const char *digest, struct err *e);

/* Removes trees that no name means and nobody has or needs: somebody died between putting a tree in
 * its place and naming it, or the name was given to another. */
int image_store_clean_trees(const struct image_store *s, const struct id_ranges *ids,
			    image_needed_fn *needed, void (*took)(const char *name, void *arg),
			    void *arg, struct err *e);

/* A finished tree, and what is written down about it. */
struct image_record {
	const char *name;
	const char *digest; /* hex */
	json_t *info;	    /* what the name says; name and digest are added to it */
	const json_t *meta; /* what is known of the tree */
};

/*
 * Makes the tree in `w` the tree of that digest, unless there is one already, and writes the name.
 * `w` is gone afterwards. *ret_new: there was no such tree.
 */
int image_store_keep(const struct image_store *s, struct image_work *w, const struct id_ranges *ids,
		     const struct image_record *record, bool *ret_new, struct err *e);

/* What is known of an image: its name's file and meta.json, and `root`, the path of its tree.
 * -ENOENT if there is no such name. */
int image_store_get(const struct image_store *s, const char *name, json_t **ret, struct err *e);

/* 0 if the store of this user has an image of that name, -ENOENT if not. Any other error means that
 * this cannot be known, and must not be taken for "no". */
int image_find(const char *name, struct err *e);

/* The same of all names, sorted, in an array. */
int image_store_list(const struct image_store *s, json_t **ret, struct err *e);

/*
 * Takes the name away, and the tree if no other name means it; *ret_tree says whether it did.
 * -EBUSY while a sandbox has the tree locked, or `needed` says so.
 */
int image_store_remove(const struct image_store *s, const char *name, const struct id_ranges *ids,
		       image_needed_fn *needed, bool *ret_tree, struct err *e);
