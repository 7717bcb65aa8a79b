/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where images are stored:
 *
 *   lock                held (flock) while something below changes
 *   trees/sha256-HEX/   meta.json, and the tree in root/
 *   names/NAME.json     the tree of a name, its origin, how to run it
 *   logs/NAME.log       mmdebstrap's messages of the last build
 *   tmp/RANDOM/         a tree being built or removed, locked by the process that does so;
 *                       the next build removes unlocked ones
 *
 * A tree appears in trees/ by one rename, complete and synced, and a name by another: a crash never
 * leaves half an image.
 */
#pragma once

#include "base/json-util.h"
#include "image/ids.h"
#include "image/image.h"

enum {
	WORK_NAME = 32,
	IMAGE_NAME_MAX = 127, /* NAME:TAG */
	IMAGE_HOME_MAX = 1024,
};

/*
 * NAME or NAME:TAG. NAME has 1 to 63 of a-z, 0-9, '_' and '-'; a tag may also have capitals and
 * '.'; neither starts with a sign. So every name is a valid and unique file name.
 */
bool image_name_valid(const char *name);

/* The rule of image_name_valid(), for messages. */
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
 * Opens a directory of this user's state, $HUTCH_STATE_DIR/NAME and so on as below; `path` is for
 * messages. -EPERM if other users can write to it.
 */
int image_home_open(const char *name, bool make, char path[static IMAGE_HOME_MAX], int *ret_fd,
		    struct err *e);

/* The same for a directory inside such a directory. */
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
 * Opens this user's store: $HUTCH_STATE_DIR/images, as root /var/lib/hutch/images, else
 * $XDG_DATA_HOME/hutch/images. Creates missing directories if `make`, else -ENOENT. -EPERM if other
 * users can write to it.
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

/* Removes the directory and its contents. */
int image_work_drop(const struct image_store *s, struct image_work *w, const struct id_ranges *ids,
		    struct err *e);

/* Removes what dead processes left in tmp/; calls `took`, if not NULL, with each name. */
int image_store_clean(const struct image_store *s, const struct id_ranges *ids,
		      void (*took)(const char *name, void *arg), void *arg, struct err *e);

/* Called before a tree is removed: -EBUSY, with its user in `e`, if the tree must stay. */
typedef int image_needed_fn(const char *digest, struct err *e);

/* Removes trees without a name that no process uses or needs: a process died between storing and
 * naming a tree, or the name now refers to another tree. */
int image_store_clean_trees(const struct image_store *s, const struct id_ranges *ids,
			    image_needed_fn *needed, void (*took)(const char *name, void *arg),
			    void *arg, struct err *e);

/* A finished tree and its metadata. */
struct image_record {
	const char *name;
	const char *digest; /* hex */
	json_t *info;	    /* contents of the name's file; name and digest are added */
	const json_t *meta; /* metadata of the tree */
};

/*
 * Stores the tree in `w` under its digest, unless it exists, and writes the name. `w` is gone
 * afterwards. *ret_new: the tree did not exist.
 */
int image_store_keep(const struct image_store *s, struct image_work *w, const struct id_ranges *ids,
		     const struct image_record *record, bool *ret_new, struct err *e);

/* Metadata of an image: the name's file and meta.json, plus `root`, the path of its tree. -ENOENT
 * if the name does not exist. */
int image_store_get(const struct image_store *s, const char *name, json_t **ret, struct err *e);

/* 0 if this user's store has an image of that name, -ENOENT if not. Any other error means unknown
 * and must not be treated as "no". */
int image_find(const char *name, struct err *e);

/* The same for all names, sorted, in an array. */
int image_store_list(const struct image_store *s, json_t **ret, struct err *e);

/*
 * Removes the name, and the tree if no other name refers to it; *ret_tree says whether the tree was
 * removed. -EBUSY while a sandbox has the tree locked, or if `needed` says so.
 */
int image_store_remove(const struct image_store *s, const char *name, const struct id_ranges *ids,
		       image_needed_fn *needed, bool *ret_tree, struct err *e);
