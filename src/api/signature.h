/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signed URLs of files: whoever has one may read or write that file as that user, and nothing else.
 * A signature is made with the token of a sandbox, which the URL does not name, so each token that
 * could be it is tried.
 */
#pragma once

#include <stdbool.h>

#include "http/http-server.h"

enum {
	SIGNATURE_TEXT = 46, /* "v1_" and base64 of 32 bytes without padding */
};

/* `expiration` may be NULL: none. All of it as it stands in the query, decoded. */
void signature_make(const char *path, const char *op, const char *user, const char *token,
		    const char *expiration, char ret[static SIGNATURE_TEXT + 1]);

/* Was the query of this request signed with `token` for `op` ("read", "write")? What is no
 * signature, or has no memory to be looked at, was not. Says nothing about its time. */
bool signature_matches(const struct exchange *x, const char *token, const char *op);

/* 1: its time is over, 0: it is not, or has no end; -EINVAL: that cannot be read; -ENOMEM. */
int signature_expired(const struct exchange *x);
