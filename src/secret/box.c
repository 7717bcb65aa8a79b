/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed texts: tokens, and others outside the store, such as the CA key of a saved sandbox. Nonce
 * and ciphertext under the host key, with their purpose authenticated. */
#include <string.h>

#include "secret/inner.h"

#define NONCE crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define TAG   crypto_aead_xchacha20poly1305_ietf_ABYTES

/* The store's lock, because two processes may make the key. */
static int key_of(const struct secret_store *s, bool make, uint8_t ret[static SECRET_KEY],
		  struct err *e)
{
	_cleanup_free_ secret_name *names = NULL;
	_cleanup_close_ int lock = -EBADF;
	size_t n = 0;

	if (s->dir < 0)
		return err_set(e, -ENOENT, "there is no store of secrets");
	if (secret_lock(s, true, &lock, e) < 0 || secret_names(s, &names, &n, e) < 0)
		return e->num;
	return secret_key(s, make, n == 0, ret, e);
}

int box_seal(const uint8_t key[static SECRET_KEY], const char *purpose, const struct buf *text,
	     struct buf *ret, struct err *e)
{
	uint8_t *out = malloc(NONCE + text->len + TAG);
	unsigned long long n = 0;
	int r;

	if (!out)
		return err_oom(e);
	randombytes_buf(out, NONCE);
	(void)crypto_aead_xchacha20poly1305_ietf_encrypt(
		out + NONCE, &n, (const uint8_t *)text->data, text->len, (const uint8_t *)purpose,
		strlen(purpose), NULL, out, key);
	r = buf_put(ret, out, NONCE + n);
	free(out);
	return r < 0 ? err_oom(e) : 0;
}

int box_open(const uint8_t key[static SECRET_KEY], const char *purpose, const struct buf *sealed,
	     struct buf *ret, struct err *e)
{
	const uint8_t *in = (const uint8_t *)sealed->data;
	unsigned long long n = 0;
	uint8_t *out;
	int r;

	if (sealed->len < NONCE + TAG)
		return err_set(e, -EBADMSG, "a sealed file is too short");
	out = malloc(sealed->len);
	if (!out)
		return err_oom(e);
	r = crypto_aead_xchacha20poly1305_ietf_decrypt(
		out, &n, NULL, in + NONCE, sealed->len - NONCE, (const uint8_t *)purpose,
		strlen(purpose), in, key);
	if (r < 0)
		r = err_set(e, -EBADMSG, "a sealed file is damaged, or of another host key");
	else if (buf_put(ret, out, n) < 0)
		r = err_oom(e);
	sodium_memzero(out, sealed->len);
	free(out);
	return r;
}

int secret_box_seal(const struct secret_store *s, const char *purpose, const struct buf *text,
		    struct buf *ret, struct err *e)
{
	uint8_t key[SECRET_KEY];
	int r = key_of(s, true, key, e);

	if (r == 0)
		r = box_seal(key, purpose, text, ret, e);
	sodium_memzero(key, sizeof(key));
	return r;
}

int secret_box_open(const struct secret_store *s, const char *purpose, const struct buf *sealed,
		    struct buf *ret, struct err *e)
{
	uint8_t key[SECRET_KEY];
	int r = sealed->len < NONCE + TAG ? 0 : key_of(s, false, key, e);

	if (r == 0)
		r = box_open(key, purpose, sealed, ret, e);
	sodium_memzero(key, sizeof(key));
	return r;
}
