/* SPDX-License-Identifier: Apache-2.0 */
/* Sets, removes and lists secrets, for the command line. Each change holds the store's lock. */
#pragma once

#include <jansson.h>

#include "secret/secret.h"

/* Where a value came from. */
enum secret_source {
	SECRET_PROMPT,
	SECRET_STDIN,
	SECRET_FILE,
	SECRET_ENV,
	SECRET_EXEC,
	SECRET_OAUTH,	   /* the value is a credential, as JSON on one line: src/token */
	SECRET_GITHUB_APP, /* the same */
	SECRET_SOURCES
};

/* Is the value a credential that tokens are requested with? */
static inline bool secret_is_refreshed(enum secret_source i)
{
	return i == SECRET_OAUTH || i == SECRET_GITHUB_APP;
}

const char *secret_source_name(enum secret_source i);

struct secret_origin {
	enum secret_source source;
	const char *const *command; /* of SECRET_EXEC: `n` words, absolute or a name for $PATH */
	size_t n;
};

/* All that may be shown of a secret. */
struct secret_info {
	char name[SECRET_NAME_MAX + 1];
	enum secret_source source;
	uint64_t set, used; /* clock_wall(); used 0: never */
	json_t *command;    /* array of strings, or NULL */
	json_t *hosts;	    /* array of strings, or NULL */
	struct err trouble; /* .num 0, or why its files are not readable */
};
void secret_info_done(struct secret_info *i);
#define _cleanup_secret_info_ _cleanup_(secret_info_done)

/* Unseals the values of all secrets. 0 with their number, or the first error. */
int secret_store_check(const struct secret_store *s, size_t *ret_n, struct err *e);

/* Lists all secrets by name. secret_infos_free() frees the list. */
int secret_store_list(const struct secret_store *s, struct secret_info **ret, size_t *ret_n,
		      struct err *e);
void secret_infos_free(struct secret_info *list, size_t n);

/* -ENOENT, with the closest name. An unreadable file is an error, unlike in a list. */
int secret_find(const struct secret_store *s, const char *name, struct secret_info *ret,
		struct err *e);

/* Sets -EEXIST for a secret that is not to be replaced. */
int secret_exists(const char *name, struct err *e);

/* Removes one newline at the end of `b`. */
void secret_value_trim(struct buf *b);

/* -EINVAL with the reason; the message contains no part of the value. */
int secret_value_check(const char *value, size_t n, struct err *e);
int secret_command_check(const char *const *command, size_t n, struct err *e);

enum secret_how {
	SECRET_NEW,	/* -EEXIST if there is one */
	SECRET_REPLACE, /* or new */
	SECRET_ROTATE,	/* -ENOENT if there is none */
};

/*
 * Seals and stores the value, whole or not at all. -E2BIG at SECRET_STORE_MAX. The first value
 * makes the host key; a store with values and without a key is an error.
 */
int secret_set(const struct secret_store *s, const char *name, const struct buf *value,
	       const struct secret_origin *origin, enum secret_how how, struct err *e);

/* Removes the secret, also one whose file is damaged. -ENOENT. */
int secret_remove(const struct secret_store *s, const char *name, struct err *e);

/* ---- refreshed secrets ---- */

struct secret_token {
	struct buf token, refresh; /* `refresh` replaces that of the credential; empty: none */
	uint64_t issued, expires;  /* clock_wall() */
};
#define SECRET_TOKEN_INIT                                                                          \
	{                                                                                          \
		.token = BUF_INIT(SECRET_VALUE_MAX + 1), .refresh = BUF_INIT(SECRET_VALUE_MAX + 1) \
	}
void secret_token_done(struct secret_token *t);
#define _cleanup_secret_token_ _cleanup_(secret_token_done)

/* When a quarter of its life is left. */
uint64_t secret_token_due(const struct secret_token *t);

/* Takes the lock of this secret's refresh; closing *ret_fd releases it. The store stays unlocked.
 */
int secret_token_lock(const struct secret_store *s, const char *name, int *ret_fd, struct err *e);

/*
 * Reads the credential, into a buffer that its owner wipes, and the current token, which is empty
 * if there is none for this credential. -EINVAL if the secret is not refreshed.
 */
int secret_token_read(const struct secret_store *s, const char *name, struct secret_info *ret_info,
		      struct buf *ret_credential, struct secret_token *ret, struct err *e);

/* Stores token and refresh token with one rename. -ESTALE if the credential has changed since. */
int secret_token_write(const struct secret_store *s, const struct secret_info *info,
		       const struct secret_token *t, struct err *e);
