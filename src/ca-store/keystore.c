/* SPDX-License-Identifier: Apache-2.0 */
#include "ca-store/keystore.h"

int keystore_rewrite(const struct buf *in, const char *der, size_t n, struct buf *out)
{
	return jks_begins(in) ? jks_rewrite(in, der, n, out) : pkcs12_rewrite(in, der, n, out);
}
