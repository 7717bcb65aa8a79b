/* SPDX-License-Identifier: Apache-2.0 */
/* The CAs that servers' certificates are checked against. */
#pragma once

#include <openssl/types.h>

#include "base/err.h"

enum {
	TRUST_FILE_MAX = 16 * 1024 * 1024,
	TRUST_ROOTS_MAX = 8192,
	TRUST_FILES_MAX = 4096, /* in a directory */
};

/*
 * Loads the host's: SSL_CERT_FILE and SSL_CERT_DIR of the environment, or the usual places. Reads
 * everything now, because the files cannot be opened later. *ret_n is the number of certificates;
 * none is no error. The caller frees the store.
 */
int trust_load(X509_STORE **ret, size_t *ret_n, struct err *e);

/* Adds all certificates of the PEM text. -EINVAL if there is none, or another text between. */
int trust_add(X509_STORE *store, const char *pem, struct err *e);
