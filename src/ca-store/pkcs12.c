/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PKCS #12 (RFC 7292) without encryption and without a checksum, as JDK 18 and later ship their
 * CAs:
 *
 *   SEQUENCE { 3, content }         the file; a checksum would follow, with a password
 *     content: SEQUENCE { OID data, [0] { OCTET STRING { SEQUENCE { content... } } } }
 *       content: SEQUENCE { OID data, [0] { OCTET STRING { SEQUENCE { bag... } } } }
 *         bag: SEQUENCE { OID certBag, [0] { certificate }, SET { attribute... } }
 *
 * Lengths have their shortest form (DER), so that a file without our CA again has the same bytes as
 * before. Our certificate is a content of its own at the end; Java moves it among the others when
 * it writes the file.
 */
#include <string.h>

#include "base/str.h"
#include "ca-store/bundle.h"
#include "ca-store/keystore.h"

enum {
	INTEGER = 0x02,
	OCTETS = 0x04,
	OID = 0x06,
	BMP = 0x1e,
	SEQUENCE = 0x30,
	SET = 0x31,
	TAG_0 = 0xa0,
	LENGTH_BYTES = 4,
	CONTENT_MORE = 512, /* bytes around our certificate */
};

#define OID_DATA	  "\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01"
#define OID_CERT_BAG	  "\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x0a\x01\x03"
#define OID_X509	  "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x16\x01"
#define OID_FRIENDLY_NAME "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x14"
/* Oracle's "trusted key usage", without which Java ignores a certificate, and "any usage". */
#define OID_TRUSTED "\x60\x86\x48\x01\x86\xf9\x66\xad\xca\x7b\x01\x01"
#define OID_ANY	    "\x55\x1d\x25\x00"

/* ---- reading ---- */

/* Reads the shortest form of a length. */
static size_t get_length(struct reader *r)
{
	uint64_t first = reader_be(r, 1), n;
	const unsigned int bytes = (unsigned int)first & 0x7f;

	if (first < 0x80)
		return (size_t)first;
	if (bytes == 0 || bytes > LENGTH_BYTES) {
		r->err = -EBADMSG;
		return 0;
	}
	n = reader_be(r, bytes);
	if (n < 0x80 || n >> (8 * (bytes - 1)) == 0)
		r->err = -EBADMSG;
	return (size_t)n;
}

/* Reads an element with this tag; *ret has its contents. */
static bool get(struct reader *r, uint8_t tag, struct reader *ret)
{
	const uint8_t *p;
	size_t n;

	if (reader_be(r, 1) != tag)
		r->err = -EBADMSG;
	n = get_length(r);
	p = reader_bytes(r, n);
	if (r->err)
		return false;
	*ret = reader_of(p, n);
	return true;
}

static bool is_end(const struct reader *r)
{
	return reader_finish(r) == 0;
}

static bool is_bytes(const struct reader *r, const char *bytes, size_t n)
{
	return reader_left(r) == n && memcmp(r->pos, bytes, n) == 0;
}

/* The list in a content with plain data. */
static bool get_data(struct reader *content, struct reader *ret)
{
	struct reader oid, explicit, octets;

	return get(content, OID, &oid) && is_bytes(&oid, OID_DATA, STRLEN(OID_DATA)) &&
	       get(content, TAG_0, &explicit) && is_end(content) &&
	       get(&explicit, OCTETS, &octets) && is_end(&explicit) &&
	       get(&octets, SEQUENCE, ret) && is_end(&octets);
}

/* ---- writing ---- */

static void put_length(struct buf *b, size_t n)
{
	unsigned int bytes = 1;

	if (n < 0x80) {
		(void)buf_put_be(b, n, 1);
		return;
	}
	while (bytes < LENGTH_BYTES && n >> (8 * bytes) > 0)
		bytes++;
	(void)buf_put_be(b, 0x80 | bytes, 1);
	(void)buf_put_be(b, n, bytes);
}

static void put(struct buf *b, uint8_t tag, const void *data, size_t n)
{
	(void)buf_put_be(b, tag, 1);
	put_length(b, n);
	(void)buf_put(b, data, n);
}

/* Puts the whole buffer into an element, and passes on its error. */
static void wrap(struct buf *b, uint8_t tag)
{
	struct buf inner = *b;

	*b = (struct buf)BUF_INIT(inner.max);
	b->err = inner.err;
	if (!inner.err)
		put(b, tag, buf_text(&inner), inner.len);
	buf_done(&inner);
}

/* The same, after another element. */
static void wrap_after(struct buf *b, uint8_t tag, uint8_t first, const char *data, size_t n)
{
	struct buf inner = *b;

	*b = (struct buf)BUF_INIT(inner.max);
	b->err = inner.err;
	put(b, first, data, n);
	if (!inner.err)
		(void)buf_put(b, buf_text(&inner), inner.len);
	buf_done(&inner);
	wrap(b, tag);
}

/* The reverse of get_data(). */
static void wrap_data(struct buf *b)
{
	wrap(b, SEQUENCE);
	wrap(b, OCTETS);
	wrap(b, TAG_0);
	wrap_after(b, SEQUENCE, OID, OID_DATA, STRLEN(OID_DATA));
}

static void put_certificate(struct buf *b, const char *der, size_t n)
{
	put(b, OCTETS, der, n);
	wrap(b, TAG_0);
	wrap_after(b, SEQUENCE, OID, OID_X509, STRLEN(OID_X509));
	wrap(b, TAG_0);
}

static void put_name(struct buf *b)
{
	for (const char *c = KEYSTORE_ALIAS; *c; c++)
		(void)buf_put_be(b, (uint8_t)*c, 2);
	wrap(b, BMP);
	wrap(b, SET);
	wrap_after(b, SEQUENCE, OID, OID_FRIENDLY_NAME, STRLEN(OID_FRIENDLY_NAME));
}

static void put_usage(struct buf *b)
{
	put(b, OID, OID_ANY, STRLEN(OID_ANY));
	wrap(b, SET);
	wrap_after(b, SEQUENCE, OID, OID_TRUSTED, STRLEN(OID_TRUSTED));
}

/* A content with our certificate. */
static int put_ours(struct buf *out, const char *der, size_t n)
{
	_cleanup_buf_ struct buf bag = BUF_INIT(n + CONTENT_MORE), name = BUF_INIT(CONTENT_MORE),
				 usage = BUF_INIT(CONTENT_MORE);

	put_certificate(&bag, der, n);
	put_name(&name);
	put_usage(&usage);
	(void)buf_put(&name, buf_text(&usage), usage.len);
	wrap(&name, SET);
	(void)buf_put(&bag, buf_text(&name), name.len);
	wrap_after(&bag, SEQUENCE, OID, OID_CERT_BAG, STRLEN(OID_CERT_BAG));
	wrap_data(&bag);
	if (bag.err || name.err || usage.err)
		return bag.err ? bag.err : name.err ? name.err : usage.err;
	return buf_put(out, bag.data, bag.len);
}

/* ---- rewriting ---- */

static size_t since(const struct reader *r, const uint8_t *start)
{
	return (size_t)(r->pos - start);
}

/* Copies the bags of a list without ours. Returns how many were ours, or -EBADMSG. */
static int copy_bags(struct reader *list, struct buf *out)
{
	int ours = 0;

	while (reader_left(list) > 0) {
		const uint8_t *start = list->pos;
		struct reader bag;

		if (!get(list, SEQUENCE, &bag))
			return -EBADMSG;
		if (bundle_is_ours((const char *)bag.pos, reader_left(&bag)))
			ours++;
		else
			(void)buf_put(out, start, since(list, start));
	}
	return ours;
}

/* Copies a content without our certificate. One that is not a list of bags stays as it is. */
static int copy_content(struct reader *r, struct buf *out)
{
	_cleanup_buf_ struct buf bags = BUF_INIT(out->max);
	const uint8_t *start = r->pos;
	struct reader content, list;
	int ours = 0;

	if (!get(r, SEQUENCE, &content))
		return -ENOTSUP;
	if (get_data(&content, &list))
		ours = copy_bags(&list, &bags);
	if (ours <= 0)
		return buf_put(out, start, since(r, start));
	if (bags.len > 0 || bags.err) {
		wrap_data(&bags);
		(void)buf_put(out, buf_text(&bags), bags.len);
	}
	return bags.err ? bags.err : out->err;
}

int pkcs12_rewrite(const struct buf *in, const char *der, size_t n, struct buf *out)
{
	struct reader r = reader_of(in->data, in->len), file, version, content, list;
	int k = 0;

	if (!get(&r, SEQUENCE, &file) || !is_end(&r) || !get(&file, INTEGER, &version) ||
	    !is_bytes(&version, "\3", 1) || !get(&file, SEQUENCE, &content) ||
	    !get_data(&content, &list) || !is_end(&file))
		return -ENOTSUP;
	while (k == 0 && reader_left(&list) > 0)
		k = copy_content(&list, out);
	if (k == 0 && der)
		k = put_ours(out, der, n);
	if (k < 0)
		return k;
	wrap_data(out);
	wrap_after(out, SEQUENCE, INTEGER, "\3", 1);
	return out->err;
}
