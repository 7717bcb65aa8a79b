/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of secrets of one user of the host: a directory with one sealed file per secret (value,
 * when it was set and from where) and one file with notes (its hosts, its last use).
 * hutch-state(5) has the format.
 *
 * The value of some secrets is a credential, for which an endpoint issues tokens that expire. The
 * current one is in NAME.token, with the endpoint's refresh token if it sent one.
 *
 * A reader needs no lock: each change of a value is one rename to NAME.value, or its removal, so
 * IN_MOVED_TO and IN_DELETE of inotify(7) report each change. All functions but
 * secret_store_open() use only the directory's descriptor.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
	SECRET_NAME_MAX = 64, /* [A-Za-z_][A-Za-z0-9_]*, as the policy's names */
	SECRET_VALUE_MIN = 8, /* shorter values cannot be masked in responses */
	SECRET_VALUE_MAX = 8 * 1024,
	SECRET_STORE_MAX = 1024, /* secrets */
	SECRET_ARGS_MAX = 32,	 /* words of a command */
	SECRET_COMMAND_MAX = 4096,
};

/* Name of the file with a secret's value: NAME and this. */
#define SECRET_VALUE_FILE ".value"
/* The file with the current token of a secret that is refreshed. */
#define SECRET_TOKEN_FILE ".token"

struct secret_store {
	int dir; /* the directory; -EBADF: there is none yet */
	char path[4096];
};
#define SECRET_STORE_INIT     \
	{                     \
		.dir = -EBADF \
	}

/* Opens the store; `make`: creates it if it is missing, otherwise a missing store is an empty one.
 */
int secret_store_open(bool make, struct secret_store *ret, struct err *e);
void secret_store_close(struct secret_store *s);
#define _cleanup_secret_store_ _cleanup_(secret_store_close)

int secret_name_check(const char *name, struct err *e);

/* 1 if the secret has a value, 0 if not, or an error. */
int secret_has(const struct secret_store *s, const char *name, struct err *e);

/*
 * Appends the value to `ret`, whose owner wipes it (secret_wipe()). A value is UTF-8 of
 * SECRET_VALUE_MIN to SECRET_VALUE_MAX bytes without control characters. -ENOENT: no such secret;
 * -EBADMSG: it cannot be unsealed. The value of a refreshed secret is its current token: -ENODATA
 * without one, -ETIME if it has expired.
 */
int secret_get(const struct secret_store *s, const char *name, struct buf *ret, struct err *e);

/*
 * 1 for a refreshed secret, 0 for another one, or an error. *ret_due (clock_wall()) is when less
 * than a quarter of the token's life is left, *ret_end when it expires: 0 and 0 without a token.
 */
int secret_token_times(const struct secret_store *s, const char *name, uint64_t *ret_due,
		       uint64_t *ret_end, struct err *e);

/* Notes, for `hutch secret ls`, that a policy binds the secret to the host, or that it was used
 * now. Failures do not matter: nothing is returned. */
void secret_note_host(const struct secret_store *s, const char *name, const char *host);
void secret_note_use(const struct secret_store *s, const char *name);

/*
 * Seals a text under the host key, for a file outside the store, and opens it again: only for the
 * same purpose. Sealing makes the key if there is none. `ret` is appended to. -EBADMSG: damaged, or
 * of another key.
 */
int secret_box_seal(const struct secret_store *s, const char *purpose, const struct buf *text,
		    struct buf *ret, struct err *e);
int secret_box_open(const struct secret_store *s, const char *purpose, const struct buf *sealed,
		    struct buf *ret, struct err *e);

/* Wipes the bytes and frees them. */
void secret_wipe(struct buf *b);
#define _cleanup_secret_ _cleanup_(secret_wipe)
