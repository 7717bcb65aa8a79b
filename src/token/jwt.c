/* SPDX-License-Identifier: Apache-2.0 */
#include "token/jwt.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <string.h>

#include "base/base64.h"
#include "base/json-util.h"

enum {
	EARLY_S = 60, /* the server's clock may be late */
	LIFE_S = 540, /* GitHub allows ten minutes */
	BITS_MIN = 2048,
	SIGNATURE_MAX = 2048, /* bytes */
	JWT_MAX = 16 * 1024,
};

DEFINE_CLEANUP(EVP_PKEY *, cleanup_key, EVP_PKEY_free);
DEFINE_CLEANUP(EVP_MD_CTX *, cleanup_digest, EVP_MD_CTX_free);
DEFINE_CLEANUP(BIO *, cleanup_bio, BIO_free_all);

/* The URL-safe alphabet, without padding. */
static int put_part(struct buf *b, const void *data, size_t n)
{
	const size_t from = b->len;

	if (base64_put(b, data, n) < 0)
		return b->err;
	while (b->len > from && b->data[b->len - 1] == '=')
		b->data[--b->len] = '\0';
	for (size_t i = from; i < b->len; i++) {
		if (b->data[i] == '+')
			b->data[i] = '-';
		else if (b->data[i] == '/')
			b->data[i] = '_';
	}
	return 0;
}

static int put_claims(struct buf *b, const char *issuer, uint64_t now)
{
	static const char head[] = "{\"alg\":\"RS256\",\"typ\":\"JWT\"}";
	_cleanup_json_ json_t *o = NULL;
	_cleanup_free_ char *text = NULL;

	o = JSON_OBJECT({ "iat", json_number(now - EARLY_S) }, { "exp", json_number(now + LIFE_S) },
			{ "iss", json_string(issuer) });
	text = o ? json_write_line(o) : NULL;
	if (!text)
		return -ENOMEM;
	(void)put_part(b, head, sizeof(head) - 1);
	(void)buf_putc(b, '.');
	return put_part(b, text, strlen(text));
}

/* A key with a password is refused: it would be asked for at the terminal. */
static int no_password(char *out, int n, int writing, void *arg)
{
	return -1;
}

static EVP_PKEY *read_key(const char *pem)
{
	_cleanup_(cleanup_bio) BIO *b = BIO_new_mem_buf(pem, -1);

	return b ? PEM_read_bio_PrivateKey(b, NULL, no_password, NULL) : NULL;
}

static int sign(EVP_PKEY *key, struct buf *b, struct err *e)
{
	_cleanup_(cleanup_digest) EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned char out[SIGNATURE_MAX];
	size_t n = sizeof(out);

	if (!ctx || EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) != 1 ||
	    EVP_DigestSign(ctx, out, &n, (const unsigned char *)b->data, b->len) != 1)
		return err_set(e, -EINVAL, "cannot sign with 'private_key'");
	(void)buf_putc(b, '.');
	return put_part(b, out, n) < 0 ? err_oom(e) : 0;
}

int jwt_make(const char *pem, const char *issuer, uint64_t now, struct buf *ret, struct err *e)
{
	_cleanup_(cleanup_key) EVP_PKEY *key = read_key(pem);
	struct buf b = BUF_INIT(JWT_MAX);
	int r;

	ERR_clear_error();
	if (!key || EVP_PKEY_get_base_id(key) != EVP_PKEY_RSA ||
	    EVP_PKEY_get_bits(key) < BITS_MIN || EVP_PKEY_get_size(key) > SIGNATURE_MAX)
		return err_set(e, -EINVAL,
			       "'private_key' is not an RSA key of at least %d bits, in PEM "
			       "without password",
			       BITS_MIN);
	r = put_claims(&b, issuer, now) < 0 ? err_oom(e) : sign(key, &b, e);
	if (r == 0 && buf_put(ret, b.data, b.len) < 0)
		r = err_oom(e);
	buf_done(&b);
	ERR_clear_error();
	return r;
}
