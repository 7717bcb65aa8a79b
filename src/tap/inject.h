/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials of requests. For a host and path to which secrets are bound, all credentials of the
 * sandbox are removed, and at most one secret is set. Elsewhere a request keeps its credentials: a
 * placeholder is worthless there.
 */
#pragma once

#include "tap/request.h"

struct injection {
	bool bound;	/* a secret is bound to the host and path */
	int secret;	/* the one to set, or -1 */
	bool need_body; /* the credential depends on the body, which must be complete first */
	bool chunks;	/* the body has signed chunks: request->chain signs them again */
	bool trailers;	/* and signed trailers */
};

/* Does a secret with patterns for paths bind the host? */
bool inject_names_paths(const struct tap_config *c, const struct name *host);

/* Decides what inject_apply() will do. 0, -ENOMEM, or -EBADMSG with *why. */
int inject_choose(const struct tap_config *c, const struct name *host, struct request *q,
		  struct injection *ret, struct refusal *why);

/*
 * Removes and sets credentials of a finished request (request_finish()). `body` is complete if
 * need_body. 0, -ENOMEM, or -EBADMSG with *why.
 */
int inject_apply(const struct tap_config *c, const struct name *host, const struct injection *inj,
		 const struct buf *body, struct request *q, struct refusal *why);

struct mask;

/* Adds the secret texts of the value to the mask. 0, -ENOMEM or -ENOSPC. */
int inject_mask(const struct tap_secret *s, struct mask *m);
