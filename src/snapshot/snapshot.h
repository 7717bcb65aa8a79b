/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of VMs: directories below `machine/snapshots/`, written under a temporary name and
 * renamed when everything is synced. Two kinds:
 *
 *   template   a VM that has booted up to hutch-guest and has no owner yet. Its name is the key of
 *              all inputs: the engine and its arguments, kernel, initrd, image, CPU, sizes
 *              (template-key.c).
 *   saved      a sandbox that ran. In box/ it has the files spec.json, policy.json and api.json of
 *              its state directory, and `commands`: the headers of its command records. The
 *              records themselves are not saved.
 *
 * Both have `memory` and `disk`, with holes, and `state`, that of the VM's devices. VMs that are
 * started from a snapshot map `memory` privately (ram.h): they share the pages in the host's cache
 * until they write them.
 *
 * meta.json, written last:
 *
 *   format   2
 *   id       the directory's name
 *   kind     "template", "saved"
 *   created  time of creation
 *   files    name: {"size", "blake2b"} of each file, as in pages.h
 *   info     details from its creator
 *   sum      BLAKE2b of the canonical text of all of the above
 *
 * Nothing is loaded that does not match: truncated, modified, missing or foreign files are rejected
 * before the caller gets a descriptor. `verified` remembers that all match (snapshot-seen.c).
 *
 * Locks (flock on the directory): the creator holds it exclusively; a user holds it shared, with
 * the descriptor `dir`; a remover needs it exclusively. Snapshots being created or removed are
 * named tmp-RANDOM.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/json-util.h"
#include "state/state.h"

#define MACHINE_HOME "machine" /* below image_home_open(): kernels, disks and snapshots of VMs */

enum {
	SNAPSHOT_FORMAT = 2,
	SNAPSHOT_KEY = 64,	   /* hex digits, or a snapshot id: [a-z][a-z0-9]{15} */
	SNAPSHOT_FILES_MAX = 8192, /* maximum in a meta.json */
	SNAPSHOT_META_MAX = 4 * 1024 * 1024,
	SNAPSHOT_SEEN_MAX = 4 * 1024 * 1024,
	SNAPSHOT_PATH_MAX = 4096,
};

enum snapshot_kind {
	SNAPSHOT_TEMPLATE,
	SNAPSHOT_SAVED,
	SNAPSHOT_KINDS,
};

/* Is this a valid snapshot name? */
bool snapshot_key_valid(const char *key);

/* An opened and verified snapshot. Files are read-only and at offset 0. */
struct snapshot {
	enum snapshot_kind kind;
	int dir; /* keeps it from being removed */
	int state;
	int memory;
	int disk;
	json_t *meta;
};

#define SNAPSHOT_INIT                                                             \
	{                                                                         \
		.dir = -EBADF, .state = -EBADF, .memory = -EBADF, .disk = -EBADF, \
	}
#define _cleanup_snapshot_ _cleanup_(snapshot_done)

/* Opens the snapshot at an absolute path and verifies all of it, unless that was done since the
 * host booted. -ENOENT; -EBUSY: being removed; -EBADMSG: damaged. */
int snapshot_open(const char *path, struct snapshot *ret, struct err *e);
void snapshot_done(struct snapshot *s);

/* Reads and checks meta.json, without looking at the files. `dir`: the directory. */
int snapshot_read_meta(int dir, const char *key, json_t **ret, struct err *e);

/* ---- snapshot-store.c: this user's snapshots ---- */

/* A snapshot being created. */
struct snapshot_new {
	int dir;	  /* for files and a directory box/; locked */
	int home;	  /* `machine/snapshots` */
	bool passing;	  /* it is not synced */
	uint64_t changed; /* the last change of any file before it was hashed */
	char name[64];
};

#define SNAPSHOT_NEW_INIT                      \
	{                                      \
		.dir = -EBADF, .home = -EBADF, \
	}
#define _cleanup_snapshot_new_ _cleanup_(snapshot_drop)

int snapshot_begin(struct snapshot_new *ret, struct err *e);

/* For a caller that will not be able to open the directory by path: call snapshot_home() first,
 * which creates it if missing. */
int snapshot_home(int *ret_fd, struct err *e);
int snapshot_begin_at(int home, struct snapshot_new *ret, struct err *e);

/* Hashes the files, writes meta.json, renames to `key`. `memory`: the digest of that file, which
 * ram_save_finish() has computed. Syncs everything, unless info.fork is true: that snapshot is used
 * at once and then removed. -EEXIST: another process has created the same snapshot, which the
 * caller can use. */
int snapshot_finish(struct snapshot_new *n, enum snapshot_kind kind, const char *key,
		    const char *memory, const json_t *info, struct err *e);

/* Removes an unfinished snapshot. */
void snapshot_drop(struct snapshot_new *n);

/* The absolute path of a snapshot, which need not exist; -EINVAL for an invalid key. */
int snapshot_path(const char *key, char ret[static SNAPSHOT_PATH_MAX], struct err *e);

/* The box/ directory or the spec of the sandbox that a saved snapshot was made of. -ENOENT;
 * -EINVAL: it was not a sandbox. */
int snapshot_open_box(const char *key, int *ret, struct err *e);
int snapshot_spec(const char *key, struct spec *ret, struct err *e);

/* All snapshots, sorted: [{"id", "kind", "created", "bytes", "info"}]; "error" instead for an
 * unreadable one. `bytes` is its disk usage. */
int snapshot_list(json_t **ret, struct err *e);
int snapshot_remove(const char *key, struct err *e); /* -ENOENT, -EBUSY: in use */

/*
 * Removes leftovers of dead creators, snapshots of forks (info.fork) that no process holds, and
 * unusable templates: those with a file in info.needs, [{"path", "size", "mtime"}], that is gone or
 * has changed. Calls `took` with each name.
 */
int snapshot_clean(void (*took)(const char *name, void *arg), void *arg, struct err *e);

/* ---- internal ---- */

#define SNAPSHOT_META "meta.json"
#define SNAPSHOT_SEEN "verified"
#define SNAPSHOT_TMP  "tmp-"

extern const char *const snapshot_kind_names[SNAPSHOT_KINDS + 1];

/* "memory", "state", "disk", "box/NAME". */
bool snapshot_file_valid(const char *name);

/* snapshot-seen.c: the state of all files that meta.json lists. */
struct snapshot_seen {
	struct buf text;
	uint64_t changed; /* the last change of any of them: clock_wall() */
};

#define SNAPSHOT_SEEN_INIT                           \
	{                                            \
		.text = BUF_INIT(SNAPSHOT_SEEN_MAX), \
	}
#define _cleanup_snapshot_seen_ _cleanup_(snapshot_seen_done)

static inline void snapshot_seen_done(struct snapshot_seen *s)
{
	buf_done(&s->text);
}

/* Looks at the files; call it before they are hashed. */
int snapshot_look(int dir, const json_t *meta, struct snapshot_seen *ret);
bool snapshot_was_verified(int dir, const struct snapshot_seen *s);
void snapshot_set_verified(int dir, const struct snapshot_seen *s);

/* Adds `sum` to meta.json and returns its text; the caller frees it. */
char *snapshot_seal_meta(json_t *meta);

/* `machine/snapshots`, and the path of its parent (IMAGE_HOME_MAX) for messages. -ENOENT. */
int snapshot_home_open(bool make, char path[static 1024], int *ret_fd, struct err *e);

/* Opens a snapshot with the shared lock of a user. */
int snapshot_lock_shared(const char *path, int *ret_fd, struct err *e);

/* 0; -ENOENT; -EBUSY: another process creates or uses it. */
int snapshot_remove_at(int home, const char *name);
