/* SPDX-License-Identifier: Apache-2.0 */
/* The sandbox's own CA, and the certificates that it signs for servers. */
#pragma once

#include <openssl/types.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

enum {
	CA_YEARS = 10,
	CA_BACK_DAYS = 30, /* valid from so long ago: the clock in a sandbox may be late */
	CERT_DAYS = 360,   /* some programs accept no more than 398 in all */
};

/* Makes a CA and its key, both PEM; the caller wipes the key. */
int ca_make(struct buf *cert, struct buf *key, struct err *e);

struct ca;

int ca_load(const char *cert, const char *key, struct ca **ret, struct err *e);
struct ca *ca_free(struct ca *ca);

/* A certificate for `host`, a name or an address in canonical form, with the public half of `key`.
 * The caller frees it. NULL without memory. */
X509 *ca_sign(const struct ca *ca, const char *host, bool is_addr, EVP_PKEY *key);
