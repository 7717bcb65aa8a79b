/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this directory. */
#pragma once

#include <sodium.h>

#include "base/clock.h"
#include "secret/change.h"

enum {
	SECRET_KEY = crypto_aead_xchacha20poly1305_ietf_KEYBYTES,
	SECRET_FILE_MAX = 64 * 1024,
	SECRET_FILE_NAME = SECRET_NAME_MAX + 16,
};

#define KEY_FILE   "key"
#define NOTES_FILE ".json"
#define TOKEN_LOCK ".lock"

/* Writes NAME and the suffix. */
const char *secret_file_name(const char *name, const char *suffix,
			     char out[static SECRET_FILE_NAME]);

/*
 * Reads a file of the store: regular, ours, 0600 or less, at most ret->max bytes. -ENOENT has no
 * message.
 */
int secret_read_file(const struct secret_store *s, const char *file, struct buf *ret,
		     struct err *e);

/* Takes the lock of the store; closing *ret_fd releases it. `wait` false: -EWOULDBLOCK. */
int secret_lock(const struct secret_store *s, bool wait, int *ret_fd, struct err *e);

/* Sets -ENOENT with the closest name, and what to do. */
int secret_missing(const struct secret_store *s, const char *name, struct err *e);

typedef char secret_name[SECRET_NAME_MAX + 1];

/* Names of all secrets, sorted; the caller frees the list. -E2BIG beyond SECRET_STORE_MAX. */
int secret_names(const struct secret_store *s, secret_name **ret, size_t *ret_n, struct err *e);

/* ---- NAME.value (file.c) ---- */

/* Reads the host key. `make`: makes a missing one, if the store has no value yet (`empty`). */
int secret_key(const struct secret_store *s, bool make, bool empty, uint8_t ret[static SECRET_KEY],
	       struct err *e);

/* Makes the text of the file; the caller frees it. */
int secret_seal(const uint8_t key[static SECRET_KEY], const struct secret_info *info,
		const struct buf *value, char **ret, struct err *e);

/* Reads the text without unsealing it: source, set, command. */
int secret_read_info(const struct buf *text, struct secret_info *ret, struct err *e);
int secret_unseal(const uint8_t key[static SECRET_KEY], const char *name, const struct buf *text,
		  struct buf *ret, struct err *e);

/* ---- NAME.json (notes.c) ---- */

/* Fills in hosts and used; a missing file is no error. */
int secret_read_notes(const struct secret_store *s, struct secret_info *info, struct err *e);

/* Same for the text of the file. */
int secret_notes_text(const struct buf *text, struct secret_info *info, struct err *e);

/* ---- sealed texts (box.c); -EBADMSG ---- */

int box_seal(const uint8_t key[static SECRET_KEY], const char *purpose, const struct buf *text,
	     struct buf *ret, struct err *e);
int box_open(const uint8_t key[static SECRET_KEY], const char *purpose, const struct buf *sealed,
	     struct buf *ret, struct err *e);

/* ---- NAME.token (token-file.c) ---- */

enum {
	SECRET_PURPOSE_MAX = SECRET_NAME_MAX + CLOCK_RFC3339_MAX + 32,
	SECRET_TOKEN_TEXT = 2 * 6 * SECRET_VALUE_MAX + 1024, /* two values, escaped */
};

/* The file is sealed for this text. */
const char *secret_token_purpose(const struct secret_info *i, char out[static SECRET_PURPOSE_MAX]);

/* 0 if there is a token of this credential, -ENODATA if not. A damaged file is no token: a new one
 * replaces it. */
int secret_token_load(const struct secret_store *s, const uint8_t key[static SECRET_KEY],
		      const struct secret_info *info, struct secret_token *ret, struct err *e);

/* The value itself, also of a refreshed secret; and all that may be shown. */
int secret_credential(const struct secret_store *s, const char *name, struct secret_info *ret_info,
		      struct buf *ret, struct err *e);

/* Appends the current token; `info` has name and time of the credential. */
int secret_token_get(const struct secret_store *s, const uint8_t key[static SECRET_KEY],
		     const struct secret_info *info, struct buf *ret, struct err *e);
