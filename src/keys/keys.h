/* SPDX-License-Identifier: Apache-2.0 */
/*
 * API keys of hutchd and their rights. hutch-keys(5) describes the file.
 *
 * A key is "e2b_" and 40 hex digits (160 random bits), and is shown once. The file contains its
 * BLAKE2b-256 hash with our own domain prefix, so a hash leaked from another program is useless
 * here. Slow hashes protect secrets that people choose; 160 random bits cannot be guessed anyway.
 *
 * keys_check() looks for a changed file at most twice a second, so a revoked key stops working
 * within a second, without a signal to hutchd. If the file is unreadable or any part of it is
 * invalid, no key is valid.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/quota.h"

enum {
	KEY_DIGITS = 40,
	KEY_TEXT = 4 + KEY_DIGITS,
	KEY_PREFIX = 8, /* digits stored and shown in clear; 128 bits stay secret */
	KEY_NAME_MAX = 63,
	KEY_HASH = 32,
	KEY_AGENTS_MAX = 16,
	KEY_AGENT_MAX = 63, /* same limit as a policy's name */
	KEY_LEVEL_MAX = 15,
	KEYS_MAX = 1024,
	KEYS_FILE_MAX = 1024 * 1024,
	KEYS_PATH_MAX = 512,
};

#define KEY_START "e2b_"
#define KEYS_FILE "keys.json"

/*
 * Roles. admin: everything. user: the APIs that the E2B SDKs use, limited to the sandboxes of the
 * key's own name. metrics: GET /metrics and nothing else.
 */
enum key_role {
	KEY_ADMIN,
	KEY_USER,
	KEY_METRICS,
	KEY_ROLES
};

extern const char *const key_role_names[KEY_ROLES + 1]; /* ends with NULL */

/* Returns 0, or -EINVAL for an unknown role. */
int key_role_parse(const char *word, enum key_role *ret);

/*
 * Limits on the sandboxes of a user's key; a request can narrow and never widen them. They do not
 * apply to administrators' keys.
 */
struct key_grant {
	/* Agents whose policies the key may use; the first is the default, unless the template has
	 * the name of another. None: only hutchd's default agent. */
	char agents[KEY_AGENTS_MAX][KEY_AGENT_MAX + 1];
	size_t n_agents;
	char level[KEY_LEVEL_MAX + 1]; /* minimum isolation level; "": only the policy's */
	struct quota quota;	       /* for all its sandboxes together */
};

/* Changes to a grant; NULL members change nothing. */
struct key_change {
	const char *agents;		    /* "a,b" */
	const char *level;		    /* "" for none */
	const uint64_t *quota[QUOTA_KINDS]; /* 0 for no limit */
};

struct key_info {
	char name[KEY_NAME_MAX + 1];
	char prefix[KEY_PREFIX + 1];
	enum key_role role;
	uint64_t created, expires; /* clock_wall(); expires 0: never */
	struct key_grant grant;
};

struct key_entry {
	struct key_info info;
	uint8_t hash[KEY_HASH];
};

/* Valid: 1 to 63 of a-z, 0-9 and hyphen, no hyphen first or last, and not 8 hex digits. */
bool key_name_valid(const char *name);

/*
 * Generates a key without storing it; keys_add() does. `name` NULL: "key-PREFIX". The caller shows
 * `ret_text` once and clears it. -EINVAL: invalid name.
 */
int key_draw(const char *name, enum key_role role, uint64_t expires,
	     char ret_text[static KEY_TEXT + 1], struct key_info *ret, struct err *e);

/* ---- the file ---- */

struct keys {
	int dir;
	char path[KEYS_PATH_MAX]; /* path of the file */
	struct key_entry *list;
	size_t n;
	/* private: identity of the file read into `list`, time of the last check, and errors */
	struct {
		uint64_t dev, ino, size, mtime, ctime;
	} stamp;
	uint64_t looked;
	struct err trouble, told;
};

#define KEYS_INIT                                                     \
	{                                                             \
		.dir = -EBADF, .trouble = ERR_INIT, .told = ERR_INIT, \
	}
#define _cleanup_keys_ _cleanup_(keys_close)

/*
 * Opens the state directory (base/state-dir.h); `make` creates a missing one with mode 0700. -EPERM
 * if another user owns it or can write to it. Does not read the file.
 */
int keys_open(struct keys *k, bool make, struct err *e);
void keys_close(struct keys *k);

/* Reads the file into k->list. A missing file means no keys; after an error there are none either.
 */
int keys_load(struct keys *k, struct err *e);

/*
 * Checks `text` in constant time for all stored keys. Returns 0 and the key's data, -ENOKEY for an
 * unknown key, -EKEYEXPIRED, or -EIO if the file is unusable (see keys_trouble()).
 */
int keys_check(struct keys *k, const char *text, size_t n, struct key_info *ret);

/* Returns true and the error, once per new error, if the file is unusable: for the log. */
bool keys_trouble(struct keys *k, struct err *ret);

/*
 * Stores a generated key: replaces the file atomically, under a lock. -EEXIST: name or prefix in
 * use. -E2BIG at KEYS_MAX. An unreadable file is an error and stays unchanged.
 */
int keys_add(struct keys *k, const struct key_info *info, const char *text, struct err *e);

/*
 * Changes the grant of the key with this name or prefix in the file; *ret is the changed key.
 * -ENOENT; -EINVAL for an invalid grant, and for keys of other roles than user.
 */
int keys_set_grant(struct keys *k, const char *which, const struct key_change *c,
		   struct key_info *ret, struct err *e);

/* Removes the key with this name or prefix (with or without "e2b_"). -ENOENT. */
int keys_revoke(struct keys *k, const char *which, struct key_info *ret, struct err *e);

/* Returns the loaded key with this name or prefix, or NULL. */
const struct key_entry *keys_find(const struct keys *k, const char *which);

/* ---- the file's text; no syscalls ---- */

/* Rejects unknown, missing and duplicate members, duplicate names, and values out of range. */
int keys_read_text(const char *text, size_t n, struct key_entry **ret, size_t *ret_n,
		   struct err *e);

/* The caller frees the result; NULL without memory. */
char *keys_write_text(const struct key_entry *list, size_t n);

/*
 * Applies the changes, or none of them: -EINVAL for invalid, duplicate or too many agents, an
 * unknown isolation level, or a limit above INT64_MAX.
 */
int key_grant_change(struct key_grant *g, const struct key_change *c, struct err *e);
/* Does the grant name this agent? */
bool key_grant_has(const struct key_grant *g, const char *agent);

/* True for "e2b_" and 40 digits of 0-9a-f. */
bool key_text_valid(const char *text, size_t n);
void key_hash(const char *text, size_t n, uint8_t ret[static KEY_HASH]);
