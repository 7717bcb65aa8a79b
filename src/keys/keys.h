/* SPDX-License-Identifier: Apache-2.0 */
/*
 * API keys: who may ask hutchd for what. hutch-keys(5) has the format of the file.
 *
 * A key is "e2b_" and 40 hex digits, of 160 random bits, and is shown once. What is kept is its
 * BLAKE2b-256 behind a prefix of our own, so a hash that leaked from elsewhere is of no use here.
 * A slow hash is for secrets that people choose; 160 random bits cannot be guessed at any speed.
 *
 * Whoever checks keys holds a struct keys, and looks twice a second, when asked, whether the file
 * is another: a key that was revoked stops working within a second, without a signal to anybody.
 * A file that cannot be read or is wrong in any part means that no key is valid.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "quota.h"

enum {
	KEY_DIGITS = 40,
	KEY_TEXT = 4 + KEY_DIGITS,
	KEY_PREFIX = 8, /* digits that are kept and shown; 128 bits stay secret */
	KEY_NAME_MAX = 63,
	KEY_HASH = 32,
	KEY_AGENTS_MAX = 16,
	KEY_AGENT_MAX = 63, /* as of a policy's name */
	KEY_LEVEL_MAX = 15,
	KEYS_MAX = 1024,
	KEYS_FILE_MAX = 1024 * 1024,
	KEYS_PATH_MAX = 512,
};

#define KEY_START "e2b_"
#define KEYS_FILE "keys.json"

/*
 * What a key is for. admin: everything. user: the planes that the E2B SDKs speak to, and of what is
 * listed there only the sandboxes of the key's own name. metrics: GET /metrics and nothing else.
 */
enum key_role {
	KEY_ADMIN,
	KEY_USER,
	KEY_METRICS,
	KEY_ROLES
};

extern const char *const key_role_names[KEY_ROLES + 1]; /* ends with NULL */

/* 0, or -EINVAL for a word that is no role. */
int key_role_parse(const char *word, enum key_role *ret);

/*
 * What the sandboxes of a key may be; an administrator's key is not bound by it. Whoever asks with
 * the key can narrow this and never widen it.
 */
struct key_grant {
	/* Agents whose policies it may use; the first one unless the template is named like
	 * another. None: the default agent of hutchd, and no other. */
	char agents[KEY_AGENTS_MAX][KEY_AGENT_MAX + 1];
	size_t n_agents;
	char level[KEY_LEVEL_MAX + 1]; /* the lowest isolation level; "": that of the policy */
	struct quota quota;	       /* of all its sandboxes together */
};

/* What is to be changed of a grant; what is NULL stays as it is. */
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

/* 1 to 63 of a-z, 0-9 and hyphen, neither first nor last a hyphen, and not what a prefix looks
 * like. */
bool key_name_valid(const char *name);

/*
 * Draws a key; nothing knows it yet. `name` NULL: "key-PREFIX". The caller shows `text` once and
 * clears it. -EINVAL: not a name.
 */
int key_draw(const char *name, enum key_role role, uint64_t expires,
	     char ret_text[static KEY_TEXT + 1], struct key_info *ret, struct err *e);

/* ---- the file ---- */

struct keys {
	int dir;
	char path[KEYS_PATH_MAX]; /* of the file */
	struct key_entry *list;
	size_t n;
	/* private: the file that `list` is of, when it was looked at, and what is wrong with it */
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
 * Opens the state directory (base/state-dir.h), with `make` also one that is not there yet (0700).
 * -EPERM if it is not ours or others can write in it. Reads nothing yet.
 */
int keys_open(struct keys *k, bool make, struct err *e);
void keys_close(struct keys *k);

/* Reads the file now, into k->list. No file: no keys. On an error there are none either. */
int keys_load(struct keys *k, struct err *e);

/*
 * Is `text` a key? 0 and what is known of it, or -ENOKEY: no such key; -EKEYEXPIRED; -EIO: the file
 * cannot be read, so there are no keys (keys_trouble()). Takes as long for each key that is kept.
 */
int keys_check(struct keys *k, const char *text, size_t n, struct key_info *ret);

/* True, once for each new reason, if the file cannot be used: for the log. */
bool keys_trouble(struct keys *k, struct err *ret);

/*
 * Adds a drawn key; under a lock, as one replacement of the file. -EEXIST: name or prefix are
 * taken. -E2BIG at KEYS_MAX. A file that cannot be read is left as it is.
 */
int keys_add(struct keys *k, const struct key_info *info, const char *text, struct err *e);

/*
 * Changes the grant of the key of that name or prefix, as it is in the file. *ret is what is kept.
 * -ENOENT; -EINVAL for what is none, and for keys that no grant binds.
 */
int keys_set_grant(struct keys *k, const char *which, const struct key_change *c,
		   struct key_info *ret, struct err *e);

/* Takes away the key of that name, or of that prefix (with "e2b_" or without). -ENOENT. */
int keys_revoke(struct keys *k, const char *which, struct key_info *ret, struct err *e);

/* The key of that name or prefix in what was loaded, or NULL. */
const struct key_entry *keys_find(const struct keys *k, const char *which);

/* ---- its text; pure ---- */

/* Strict: unknown, missing and duplicate keys, names twice, and all that is out of range are
 * refused. */
int keys_read_text(const char *text, size_t n, struct key_entry **ret, size_t *ret_n,
		   struct err *e);

/* The caller frees it; NULL without memory. */
char *keys_write_text(const struct key_entry *list, size_t n);

/* -EINVAL for what is no name of an agent, one twice, or too many; for what is no isolation level;
 * and for a limit beyond any host. Then the grant is as it was. */
int key_grant_change(struct key_grant *g, const struct key_change *c, struct err *e);
/* Whether it names this agent. */
bool key_grant_has(const struct key_grant *g, const char *agent);

/* True for "e2b_" and 40 digits of 0-9a-f. */
bool key_text_valid(const char *text, size_t n);
void key_hash(const char *text, size_t n, uint8_t ret[static KEY_HASH]);
