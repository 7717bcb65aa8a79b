/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JKS, Java's own format: a head, entries, and a checksum, all numbers in network order. There is
 * no public specification; this is what OpenJDK's JavaKeyStore.java reads and writes:
 *
 *   u32 0xfeedfeed, u32 version, u32 number of entries
 *   each entry: u32 kind (2: a certificate), text alias, u64 time in ms, text "X.509", u32 length,
 *               the certificate's bytes
 *   SHA-1 of the password in UTF-16, "Mighty Aphrodite", and all bytes before
 *
 * A text is its length (u16) and its bytes. The password of every `cacerts` is "changeit"; Java
 * does not check it when it loads its CAs, but keytool does.
 */
#include <string.h>

#include "base/str.h"
#include "ca-store/bundle.h"
#include "ca-store/keystore.h"
#include "ca-store/sha1.h"

#define MAGIC	UINT32_C(0xfeedfeed)
#define TIME_MS UINT64_C(1704067200000) /* of our entry: always the same */
#define TYPE	"X.509"

enum {
	VERSION = 2,
	CERTIFICATE = 2, /* kind of an entry */
	HEAD = 12,
};

bool jks_begins(const struct buf *in)
{
	struct reader r = reader_of(in->data, in->len);

	return reader_be(&r, 4) == MAGIC && !r.err;
}

static void checksum(const char *data, size_t n, uint8_t ret[static SHA1_BYTES])
{
	static const char password[] = "\0c\0h\0a\0n\0g\0e\0i\0t";
	struct sha1 s;

	sha1_init(&s);
	sha1_put(&s, password, sizeof(password) - 1);
	sha1_put(&s, "Mighty Aphrodite", STRLEN("Mighty Aphrodite"));
	sha1_put(&s, data, n);
	sha1_end(&s, ret);
}

/* Copies an entry unless it is our CA. Returns the number of entries copied, or -ENOTSUP. */
static int copy_entry(struct reader *r, struct buf *out)
{
	const uint8_t *const start = r->pos, *der;
	size_t n;

	if (reader_be(r, 4) != CERTIFICATE) /* a private key, which no store of CAs has */
		return -ENOTSUP;
	(void)reader_bytes(r, (size_t)reader_be(r, 2));
	(void)reader_be(r, 8);
	(void)reader_bytes(r, (size_t)reader_be(r, 2));
	n = (size_t)reader_be(r, 4);
	der = reader_bytes(r, n);
	if (r->err)
		return -ENOTSUP;
	if (bundle_is_ours((const char *)der, n))
		return 0;
	(void)buf_put(out, start, (size_t)(r->pos - start));
	return 1;
}

static void put_text(struct buf *out, const char *text)
{
	(void)buf_put_be(out, strlen(text), 2);
	(void)buf_puts(out, text);
}

static void put_entry(struct buf *out, const char *der, size_t n)
{
	(void)buf_put_be(out, CERTIFICATE, 4);
	put_text(out, KEYSTORE_ALIAS);
	(void)buf_put_be(out, TIME_MS, 8);
	put_text(out, TYPE);
	(void)buf_put_be(out, n, 4);
	(void)buf_put(out, der, n);
}

/* The number of entries, in the file's head. */
static void set_count(struct buf *out, uint32_t count)
{
	for (unsigned int i = 0; i < 4; i++)
		out->data[HEAD - 4 + i] = (char)(count >> (24 - 8 * i));
}

static int copy_entries(struct reader *r, struct buf *out, uint32_t *ret_count)
{
	uint32_t entries, kept = 0;

	if (reader_be(r, 4) != MAGIC || reader_be(r, 4) != VERSION)
		return -ENOTSUP;
	entries = (uint32_t)reader_be(r, 4);
	if (r->err || buf_put(out, r->pos - HEAD, HEAD) < 0)
		return r->err ? -ENOTSUP : out->err;
	for (uint32_t i = 0; i < entries; i++) {
		int k = copy_entry(r, out);

		if (k < 0)
			return k;
		kept += (uint32_t)k;
	}
	*ret_count = kept;
	return reader_finish(r) < 0 ? -ENOTSUP : out->err;
}

int jks_rewrite(const struct buf *in, const char *der, size_t n, struct buf *out)
{
	uint8_t sum[SHA1_BYTES];
	struct reader r;
	uint32_t count = 0;
	int k;

	if (in->len < HEAD + SHA1_BYTES)
		return -ENOTSUP;
	checksum(in->data, in->len - SHA1_BYTES, sum);
	if (memcmp(in->data + in->len - SHA1_BYTES, sum, SHA1_BYTES) != 0)
		return -ENOTSUP;
	r = reader_of(in->data, in->len - SHA1_BYTES);
	k = copy_entries(&r, out, &count);
	if (k < 0)
		return k;
	if (der)
		put_entry(out, der, n);
	if (out->err)
		return out->err;
	set_count(out, count + (der ? 1 : 0));
	checksum(out->data, out->len, sum);
	return buf_put(out, sum, SHA1_BYTES);
}
