/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of machines: a directory below machine/snapshots/, written beside its place and put
 * there by one rename, when all of it is on disk. Two kinds:
 *
 *   template   a machine that has booted up to its agent, and nobody's yet. `memory` (as large as
 *              the machine's, with holes), `state` (of the devices) and `disk` (with holes). Its
 *              name is the key of all that it depends on: the engine and its arguments, kernel,
 *              initrd, image, CPU, sizes (template-key.c).
 *   saved      a sandbox that ran. `state` (all of its memory too), `disk` (with holes), and in
 *              box/ the spec.json, policy.json and api.json of its state directory, and `commands`:
 *              the headers of the records of what ran. The records are not there.
 *
 * meta.json, the last to be written:
 *
 *   format   1
 *   id       the directory's name
 *   kind     "template", "saved"
 *   created  when
 *   files    name: {"size", "blake2b"} of each file there is, as pages.h has it
 *   info     what its maker says about it
 *   sum      BLAKE2b of the canonical text of all of the above
 *
 * Nothing is loaded that does not agree with it: what is cut off, flipped, half written, missing or
 * of another snapshot is refused, before anybody gets a descriptor.
 *
 * Locks (flock on the directory): its maker has it alone; whoever has opened it holds it shared,
 * with the descriptor `dir`; whoever removes it wants it alone. What is in the making or on its way
 * out is called tmp-RANDOM.
 */
#pragma once

#include "err.h"
#include "json-util.h"
#include "state.h"

#define MACHINE_HOME "machine" /* below image_home_open(): kernels, disks and snapshots of VMs */

enum {
	SNAPSHOT_FORMAT = 1,
	SNAPSHOT_KEY = 64,	   /* hex digits, or the id of a snapshot: [a-z][a-z0-9]{15} */
	SNAPSHOT_FILES_MAX = 8192, /* that a meta.json may name */
	SNAPSHOT_META_MAX = 4 * 1024 * 1024,
	SNAPSHOT_PATH_MAX = 4096,
};

enum snapshot_kind {
	SNAPSHOT_TEMPLATE,
	SNAPSHOT_SAVED,
	SNAPSHOT_KINDS,
};

/* Whether this can be the name of one, as a whole. */
bool snapshot_key_valid(const char *key);

/* One that was opened and agrees with its meta.json. Files are read only and at their beginning. */
struct snapshot {
	enum snapshot_kind kind;
	int dir; /* keeps it from being removed */
	int state;
	int memory; /* template: a sealed memfd, which all clones of this host share; -EBADF */
	int disk;
	json_t *meta;
};

#define SNAPSHOT_INIT                                                             \
	{                                                                         \
		.dir = -EBADF, .state = -EBADF, .memory = -EBADF, .disk = -EBADF, \
	}
#define _cleanup_snapshot_ _cleanup_(snapshot_done)

/*
 * Opens the snapshot of that absolute path and checks all of it. The memory of a template comes
 * from the process that has it, which is started if there is none (hold.h): so this is to be called
 * before namespaces and groups of a sandbox are entered. Where that cannot be had, or `run` is
 * NULL, it is a copy of one's own. -ENOENT; -EBUSY: it is being removed; -EBADMSG: damaged.
 */
int snapshot_open(const char *path, const struct state_root *run, struct snapshot *ret,
		  struct err *e);
void snapshot_done(struct snapshot *s);

/* What its meta.json says, without looking at the files. `dir`: the directory. */
int snapshot_read_meta(int dir, const char *key, json_t **ret, struct err *e);

/* ---- snapshot-store.c: those of this user ---- */

/* One in the making. */
struct snapshot_new {
	int dir;  /* to put files in, and a directory box/; locked */
	int home; /* machine/snapshots */
	char name[64];
};

#define SNAPSHOT_NEW_INIT                      \
	{                                      \
		.dir = -EBADF, .home = -EBADF, \
	}
#define _cleanup_snapshot_new_ _cleanup_(snapshot_drop)

int snapshot_begin(struct snapshot_new *ret, struct err *e);

/* The same for one who will not be able to open the directory by its path: snapshot_home() before,
 * which makes it if it is not there. */
int snapshot_home(int *ret_fd, struct err *e);
int snapshot_begin_at(int home, struct snapshot_new *ret, struct err *e);

/* Hashes the files, writes meta.json, syncs, renames to `key`. -EEXIST: somebody else was first,
 * which is as good. */
int snapshot_finish(struct snapshot_new *n, enum snapshot_kind kind, const char *key,
		    const json_t *info, struct err *e);

/* Removes what was not finished. */
void snapshot_drop(struct snapshot_new *n);

/* The absolute path of one; -EINVAL for what is no key. Whether it is there is not looked at. */
int snapshot_path(const char *key, char ret[static SNAPSHOT_PATH_MAX], struct err *e);

/* What the sandbox was that a saved one was made of: its files, its spec. -ENOENT; -EINVAL: it was
 * none. */
int snapshot_open_box(const char *key, int *ret, struct err *e);
int snapshot_spec(const char *key, struct spec *ret, struct err *e);

/* All, sorted: [{"id", "kind", "created", "bytes", "info"}]; "error" in place of what cannot be
 * read. `bytes` is what it takes of the disk. */
int snapshot_list(json_t **ret, struct err *e);
int snapshot_remove(const char *key, struct err *e); /* -ENOENT, -EBUSY: in use */

/*
 * Removes what dead makers left, what a fork was made of (info.fork) and nobody holds, and
 * templates that nobody can use any more: one of the files in info.needs, [{"path", "size",
 * "mtime"}], is gone or another. `took` is told each name.
 */
int snapshot_clean(void (*took)(const char *name, void *arg), void *arg, struct err *e);

/* ---- inside ---- */

#define SNAPSHOT_META "meta.json"
#define SNAPSHOT_TMP  "tmp-"

extern const char *const snapshot_kind_names[SNAPSHOT_KINDS + 1];

/* "memory", "state", "disk", "box/NAME". */
bool snapshot_file_valid(const char *name);

/* The text of meta.json without `sum` becomes one with it; the caller frees it. */
char *snapshot_seal_meta(json_t *meta);

/* machine/snapshots, and the path of machine (IMAGE_HOME_MAX) for messages. -ENOENT. */
int snapshot_home_open(bool make, char path[static 1024], int *ret_fd, struct err *e);

/* Opens it, locked as its users do. */
int snapshot_lock_shared(const char *path, int *ret_fd, struct err *e);

/* 0; -ENOENT; -EBUSY: somebody works on it or with it. */
int snapshot_remove_at(int home, const char *name);
