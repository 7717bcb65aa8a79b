/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The credential of a refreshed secret: an object of JSON whose members are texts.
 *
 *	oauth (RFC 6749): token_url, client_id, client_secret, refresh_token, scope, audience, auth
 *	github-app: app_id, installation_id, private_key (PEM), api_url, repositories (a list),
 *		    permissions (an object)
 *
 * With a refresh token the grant is refresh_token, without one client_credentials.
 */
#pragma once

#include <jansson.h>

#include "secret/change.h"

enum {
	CREDENTIAL_URL_MAX = 1024,
	CREDENTIAL_HOST_MAX = 255,
	CREDENTIAL_TEXT_MAX = 4096, /* one member */
	TOKEN_RESPONSE_MAX = 64 * 1024,
	TOKEN_REQUEST_MAX = 64 * 1024,
	TOKEN_LIFE_S = 3600, /* if an OAuth answer has no expires_in */
	TOKEN_LIFE_MIN_S = 10,
	TOKEN_LIFE_MAX_S = 366 * 24 * 3600,
};

/* An https URL in parts. */
struct token_url {
	char host[CREDENTIAL_HOST_MAX + 1]; /* without brackets */
	char port[6];
	bool is_addr;
	char target[CREDENTIAL_URL_MAX + 1]; /* path and query */
};

/* Only https, without user, fragment or characters that a URL must encode. -EINVAL. */
int token_url_parse(const char *url, struct token_url *ret, struct err *e);

struct credential {
	enum secret_source type; /* SECRET_OAUTH or SECRET_GITHUB_APP */
	struct token_url url;	 /* for the request */
	/* Texts of `json`; "" if missing. */
	const char *client_id, *client_secret, *refresh_token, *scope, *audience;
	bool in_body; /* `auth: body`: client_secret goes into the body, not into Authorization */
	const char *app_id, *private_key;
	const json_t *repositories, *permissions; /* or NULL */
	json_t *json;
};
void credential_done(struct credential *c);
#define _cleanup_credential_ _cleanup_(credential_done)

/* Strict; messages name members and contain no value. */
int credential_parse(const char *text, size_t n, enum secret_source type, struct credential *ret,
		     struct err *e);

/* ---- request.c ---- */

/*
 * Appends the whole HTTP request. `refresh`: the latest refresh token, "" for that of the
 * credential. `jwt` proves the identity of a GitHub App.
 */
int credential_request(const struct credential *c, const char *refresh, const char *jwt,
		       struct buf *ret, struct err *e);

/* ---- response.c ---- */

/*
 * Finds the body of a response of `n` bytes so far, decoded in place. 1 if it is complete, 0 if it
 * needs more; at the end of the stream (`end`) that is an error. -EBADMSG.
 */
int response_body(char *text, size_t n, bool end, unsigned int *ret_status, char **ret_body,
		  size_t *ret_n, struct err *e);

/* ---- answer.c ---- */

/*
 * Interprets the body. Messages contain no text of it but error codes that RFC 6749 defines. `now`
 * (clock_wall()) is the time of the request.
 */
int token_answer(const struct credential *c, unsigned int status, const char *body, size_t n,
		 uint64_t now, struct secret_token *ret, struct err *e);
