/* SPDX-License-Identifier: Apache-2.0 */
/* Our CA in the text of a bundle of PEM certificates. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"

/* Is the text one PEM certificate, without a line that begins or ends a block of ours? */
bool bundle_is_certificate(const char *pem, size_t n);

/* The bytes of a PEM certificate. 0, -EINVAL or -ENOMEM; the caller frees them. */
int bundle_decode(const char *pem, size_t n, char **ret, size_t *ret_n);

/* Do the bytes of a certificate name our CA as their subject or issuer? */
bool bundle_is_ours(const char *der, size_t n);

/* Removes the blocks that bundle_append() has added; users may have damaged one. */
void bundle_strip(struct buf *b);

/* Removes certificates of our CA outside of blocks: update-ca-certificates has added them. */
int bundle_strip_copies(struct buf *b);

/* Adds the certificate at the end, in a block. It may be there already. */
int bundle_append(struct buf *b, const char *pem, size_t n);
