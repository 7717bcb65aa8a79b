/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Java keystores, and bundles of certificates: without our CA they are the same bytes as before it
 * was added. A JKS input gets a correct checksum first.
 */
#include <string.h>

#include "ca-store/bundle.h"
#include "ca-store/keystore.h"
#include "ca-store/sha1.h"
#include "fuzz.h"

#define CERTIFICATE "0123 Hutch sandbox CA"
#define PEM	    "-----BEGIN CERTIFICATE-----\nMDEyMyBIdXRjaCBzYW5kYm94IENB\n-----END CERTIFICATE-----\n"

enum {
	MAX_BYTES = 1 << 20,
};

static void fix_checksum(struct buf *b)
{
	static const char before[] = "\0c\0h\0a\0n\0g\0e\0i\0tMighty Aphrodite";
	struct sha1 s;

	if (!jks_begins(b) || b->len < SHA1_BYTES)
		return;
	sha1_init(&s);
	sha1_put(&s, before, sizeof(before) - 1);
	sha1_put(&s, b->data, b->len - SHA1_BYTES);
	sha1_end(&s, (uint8_t *)b->data + b->len - SHA1_BYTES);
}

static bool same(const struct buf *a, const struct buf *b)
{
	return a->len == b->len && memcmp(buf_text(a), buf_text(b), a->len) == 0;
}

static void try_keystore(const struct buf *in)
{
	_cleanup_buf_ struct buf plain = BUF_INIT(MAX_BYTES), added = BUF_INIT(MAX_BYTES),
				 again = BUF_INIT(MAX_BYTES), back = BUF_INIT(MAX_BYTES);

	if (keystore_rewrite(in, NULL, 0, &plain) < 0)
		return;
	if (!bundle_is_ours(in->data, in->len))
		assert(same(in, &plain));
	assert(keystore_rewrite(in, CERTIFICATE, strlen(CERTIFICATE), &added) == 0);
	assert(keystore_rewrite(&added, CERTIFICATE, strlen(CERTIFICATE), &again) == 0);
	assert(same(&added, &again));
	assert(keystore_rewrite(&added, NULL, 0, &back) == 0);
	assert(same(&plain, &back));
}

static void try_bundle(const char *data, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(MAX_BYTES), plain = BUF_INIT(MAX_BYTES);

	assert(buf_put(&b, data, n) == 0);
	bundle_strip(&b);
	assert(b.len == 0 || bundle_strip_copies(&b) == 0);
	assert(b.len <= n && buf_put(&plain, buf_text(&b), b.len) == 0);
	/* Half a block of the input would end in ours. */
	if (b.len > 0 && memmem(b.data, b.len, "# Hutch", strlen("# Hutch")))
		return;
	assert(bundle_append(&b, PEM, strlen(PEM)) == 0);
	bundle_strip(&b);
	assert(same(&plain, &b));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_buf_ struct buf in = BUF_INIT(MAX_BYTES / 2);

	if (buf_put(&in, data, size) < 0)
		return 0;
	fix_checksum(&in);
	try_keystore(&in);
	try_bundle((const char *)data, size);
	return 0;
}
