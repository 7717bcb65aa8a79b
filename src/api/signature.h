/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signed URLs of files: a URL allows reading or writing one file as one user. It is signed with a
 * sandbox's token but does not name the sandbox, so each possible token is tried.
 */
#pragma once

#include <stdbool.h>

#include "http/http-server.h"

enum {
	SIGNATURE_TEXT = 46, /* "v1_" and base64 of 32 bytes without padding */
};

/* `expiration` may be NULL. All texts are as in the query, decoded. */
void signature_make(const char *path, const char *op, const char *user, const char *token,
		    const char *expiration, char ret[static SIGNATURE_TEXT + 1]);

/* Whether the query was signed with `token` for `op` ("read", "write"). False also if the signature
 * is malformed or memory is short. Does not check the expiration. */
bool signature_matches(const struct exchange *x, const char *token, const char *op);

/* 1: expired; 0: valid or without expiration; -EINVAL: malformed; -ENOMEM. */
int signature_expired(const struct exchange *x);
