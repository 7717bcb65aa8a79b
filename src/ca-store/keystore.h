/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our CA in a Java keystore of CAs (`cacerts`). There are two formats: JKS, and PKCS #12 without a
 * password, which JDK 18 and later have. Both functions read untrusted bytes.
 */
#pragma once

#include "base/buf.h"

/*
 * Writes to `out` the keystore `in` without our CA, and then with the certificate `der`, unless it
 * is NULL. `out` is a new buffer. -ENOTSUP: another format or password; -ENOBUFS; -ENOMEM.
 */
int keystore_rewrite(const struct buf *in, const char *der, size_t n, struct buf *out);

/* The name of our CA in a keystore. */
#define KEYSTORE_ALIAS "hutch-sandbox-ca"

/* The formats. */
int jks_rewrite(const struct buf *in, const char *der, size_t n, struct buf *out);
int pkcs12_rewrite(const struct buf *in, const char *der, size_t n, struct buf *out);

/* Does the file begin as a JKS keystore? Otherwise it may be PKCS #12. */
bool jks_begins(const struct buf *in);
